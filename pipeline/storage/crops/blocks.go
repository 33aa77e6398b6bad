package crops

import (
	"github.com/lsiofs/lsiofs/pipeline/zarr"
	"github.com/lsiofs/lsiofs/pipeline/zarr/blosc"
)

// A chunk that is a blosc buffer may be much longer than the part of it that a crop needs. For such
// arrays each block of a chunk is a cell of its own: blocks are decoded, cached and expected one by
// one. The first header that is read decides this for the array, because the block size that
// writers choose depends on sizes alone. A chunk with another block size is decoded without being
// cached.

// Values of field.blockBytes that are not sizes.
const (
	blocksUnknown = 0
	blocksNone    = -1 // chunks are decoded whole
)

// mostBlocksOfPart bounds the cells that a part spans.
const mostBlocksOfPart = 1 << 10

// mostBlocks bounds the blocks of a buffer that is decoded in part: lists of blocks take a few
// bytes for each.
const mostBlocks = 1 << 18

// blockSize returns the size of blocks that are cells, or 0 if whole chunks are the cells or that
// is not known yet.
func (f *field) blockSize() int64 { return max(f.blockBytes.Load(), 0) }

// blocksOf returns the range of blocks of the given size that hold elements of a part; last is
// exclusive.
func (f *field) blocksOf(p *zarr.Part, blockBytes int64) (first, last int64) {
	begin, end := f.copier.Span(p)
	return begin / blockBytes, (end-1)/blockBytes + 1
}

// longestPart returns the longest part that a crop can have of a chunk.
func longestPart(crop *zarr.Crop, chunk []int64) *zarr.Part {
	n := len(chunk)
	p := &zarr.Part{Chunk: make([]int64, n), From: make([]int64, n), At: make([]int64, n), Count: make([]int64, n)}
	for d, edge := range chunk {
		p.Count[d] = min(crop.Count[d], (edge+crop.Step[d]-1)/crop.Step[d])
	}
	return p
}

// learn decides, from the header of a chunk, whether blocks of the field are cells. If they are,
// the first call also recomputes what is expected of the field.
func (s *Storage) learn(f *field, h blosc.Header) {
	if f.blockBytes.Load() != blocksUnknown || h.Stored() || h.Blocks() == 0 {
		return
	}
	size := int64(blocksNone)
	if f.copier.Pieces(h.BlockBytes) && h.Blocks() <= mostBlocks {
		_, n := f.blocksOf(f.longest, h.BlockBytes)
		if 2*n <= int64(h.Blocks()) && n <= mostBlocksOfPart {
			size = h.BlockBytes
		}
	}
	if f.blockBytes.CompareAndSwap(blocksUnknown, size) && size > 0 {
		s.expectAgain(f)
	}
}

// wantedBlocks returns the blocks that a task wants, in ascending order, out of count blocks of
// blockBytes each.
func (w *worker) wantedBlocks(t *task, count int, blockBytes int64) []int {
	w.wanted = append(w.wanted[:0], make([]bool, count)...)
	low, high := count, 0
	for i := range t.wants {
		first, last := t.field.blocksOf(&t.wants[i].part, blockBytes)
		for b := first; b < last; b++ {
			w.wanted[b] = true
		}
		low, high = min(low, int(first)), max(high, int(last))
	}
	var list []int
	for b := low; b < high; b++ {
		if w.wanted[b] {
			list = append(list, b)
		}
	}
	return list
}

// copyKept copies what is cached of a chunk to all wants, and reports whether that was all of it.
// If blocks are cells, it sets t.missing to the blocks that are not cached.
func (w *worker) copyKept(t *task) bool {
	f := t.field
	size := f.blockSize()
	if size == 0 {
		x := w.cells.Get(t.key)
		if x == nil {
			return false
		}
		w.hits.Add(1)
		t.copy(zarr.Window{Bytes: x.Bytes()})
		w.cells.Release(x)
		return true
	}
	wanted := w.wantedBlocks(t, int((f.chunkBytes+size-1)/size), size)
	kept := make([]*cell, len(wanted))
	cells := w.cells.Lock()
	for i, b := range wanted {
		kept[i] = cells.Get(t.block(b), 1)
	}
	cells.Unlock()
	t.missing = wanted[:0]
	for i, x := range kept {
		if x == nil {
			t.missing = append(t.missing, wanted[i])
			continue
		}
		w.hits.Add(1)
		t.copyPiece(zarr.Window{Bytes: x.Bytes(), OffsetBytes: int64(wanted[i]) * size})
		w.cells.Release(x)
	}
	return len(t.missing) == 0
}

// block returns the key of a block of the task's chunk.
func (t *task) block(b int) key { return key{t.field, t.chunk, int64(b) + 1} }

// copyPiece copies a piece of the chunk to all wants that overlap it.
func (t *task) copyPiece(piece zarr.Window) {
	end := piece.OffsetBytes + int64(len(piece.Bytes))
	for i := range t.wants {
		w := &t.wants[i]
		if low, high := t.field.copier.Span(&w.part); low < end && high > piece.OffsetBytes && !w.r.calledOff() {
			t.field.copier.Copy(w.crop, piece, &w.part)
		}
	}
}

// blocks decodes only the wanted blocks of a stored chunk. done is false if the chunk has to be
// decoded as a whole.
func (w *worker) blocks(t *task, stored []byte) (done bool, err error) {
	f := t.field
	if !f.Array.Chain.Blocks() {
		return false, nil
	}
	h, err := blosc.Parse(stored, int64(len(stored)), f.chunkBytes)
	if err != nil {
		return false, nil // decoding all of it returns the error
	}
	w.learn(f, h)
	list, some := w.missing(t, h)
	if !some {
		return false, nil
	}
	if h.Stored() { // treated like a chunk that is stored uncompressed
		t.copy(zarr.Window{Bytes: stored[blosc.HeaderBytes:][:h.Bytes]})
		return true, nil
	}
	for _, b := range list {
		at, err := h.Start(stored, b)
		if err == nil {
			err = w.block(t, h, b, stored[at:h.StoredBytes])
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// missing returns the blocks that a task needs of a buffer. some is false if decoding the whole
// buffer is better: if blocks are not cells and more than half of the buffer is wanted.
func (w *worker) missing(t *task, h blosc.Header) (list []int, some bool) {
	size := t.field.blockSize()
	if h.Stored() {
		return nil, size > 0
	}
	if size == h.BlockBytes && t.missing != nil {
		return t.missing, true // cached blocks have been copied already
	}
	if h.Blocks() < 2 || h.Blocks() > mostBlocks || !t.field.copier.Pieces(h.BlockBytes) {
		return nil, false
	}
	list = w.wantedBlocks(t, h.Blocks(), h.BlockBytes)
	return list, size == h.BlockBytes || 2*len(list) <= h.Blocks()
}

// block decodes the block at the beginning of src, and copies it to all wants. If it was decoded
// into a cell, that cell is appended to t.taken.
func (w *worker) block(t *task, h blosc.Header, b int, src []byte) error {
	begin, end := h.Range(b, b+1)
	var piece []byte
	if size := t.field.blockSize(); size == h.BlockBytes {
		if x := w.cells.Fill(t.block(b), size); x != nil {
			t.taken = append(t.taken, x)
			piece = x.Bytes()[:end-begin]
		}
	}
	if piece == nil {
		var err error
		if piece, err = w.unkept.room(end - begin); err != nil {
			return err
		}
	}
	if err := w.blosc.DecodeBlock(piece, src, h, b); err != nil {
		return err
	}
	w.blockCount.Add(1)
	t.copyPiece(zarr.Window{Bytes: piece, OffsetBytes: begin})
	return nil
}
