package cubes

import (
	"github.com/lsiofs/lsiofs/pipeline/zarr"
	"github.com/lsiofs/lsiofs/pipeline/zarr/blosc"
)

// A brick that is a buffer of blosc may be much longer than what a crop has of it. Where that is so
// of an array, its blocks are cells: decoded, kept and expected one by one. It is said by the first
// header that is read; what writers choose depends on sizes alone, and a brick that has other
// blocks is decoded without being kept.

// Values of field.blockBytes that are no sizes.
const (
	blocksUnknown = 0
	blocksNone    = -1 // bricks are decoded whole
)

// mostBlocksOfPart bounds the cells that a part is of.
const mostBlocksOfPart = 1 << 10

// mostBlocks bounds the blocks of a buffer of which only some are decoded: lists of them take some bytes for
// each.
const mostBlocks = 1 << 18

// blockSize is the size of the blocks that are cells; 0 where bricks are, or where that is not known.
func (f *field) blockSize() int64 { return max(f.blockBytes.Load(), 0) }

// blocksOf are the blocks of some size that have elements of a part, last exclusive.
func (f *field) blocksOf(p *zarr.Part, blockBytes int64) (first, last int64) {
	begin, end := f.copier.Span(p)
	return begin / blockBytes, (end-1)/blockBytes + 1
}

// longestPart is the part that a crop has of a brick in which it reaches as far as it can.
func longestPart(crop *zarr.Crop, brick []int64) *zarr.Part {
	n := len(brick)
	p := &zarr.Part{Brick: make([]int64, n), From: make([]int64, n), At: make([]int64, n), Count: make([]int64, n)}
	for d, edge := range brick {
		p.Count[d] = min(crop.Count[d], (edge+crop.Step[d]-1)/crop.Step[d])
	}
	return p
}

// learn says, by the header of a brick, whether blocks of the field are cells. The first time, what is
// expected is said again with it.
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

// wantedBlocks are the blocks that a task wants, in order, of so many of a size.
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

// copyKept copies what is kept of a brick to all that want it, and says whether that was all. Where
// blocks are cells, t.missing are the others.
func (w *worker) copyKept(t *task) bool {
	f := t.field
	size := f.blockSize()
	if size == 0 {
		x := w.cells.get(t.key)
		if x == nil {
			return false
		}
		w.hits.Add(1)
		t.copy(zarr.Window{Bytes: x.slot.bytes})
		w.cells.release(x)
		return true
	}
	wanted := w.wantedBlocks(t, int((f.brickBytes+size-1)/size), size)
	kept := make([]*cell, len(wanted))
	w.cells.mu.Lock()
	for i, b := range wanted {
		kept[i] = w.cells.pin(t.block(b), 1)
	}
	w.cells.mu.Unlock()
	t.missing = wanted[:0]
	for i, x := range kept {
		if x == nil {
			t.missing = append(t.missing, wanted[i])
			continue
		}
		w.hits.Add(1)
		t.copyPiece(zarr.Window{Bytes: x.slot.bytes, OffsetBytes: int64(wanted[i]) * size})
		w.cells.release(x)
	}
	return len(t.missing) == 0
}

// block names a block of a task's brick.
func (t *task) block(b int) key { return key{t.field, t.brick, int64(b) + 1} }

// copyPiece copies a piece of the brick to all that want some of it.
func (t *task) copyPiece(piece zarr.Window) {
	end := piece.OffsetBytes + int64(len(piece.Bytes))
	for i := range t.wants {
		w := &t.wants[i]
		if low, high := t.field.copier.Span(&w.part); low < end && high > piece.OffsetBytes && !w.r.calledOff() {
			t.field.copier.Copy(w.crop, piece, &w.part)
		}
	}
}

// blocks decodes of a stored brick the blocks that are wanted, and none else. It says whether it did: not
// where a brick is decoded as a whole.
func (w *worker) blocks(t *task, stored []byte) (done bool, err error) {
	f := t.field
	if !f.Array.Chain.Blocks() {
		return false, nil
	}
	h, err := blosc.Parse(stored, int64(len(stored)), f.brickBytes)
	if err != nil {
		return false, nil // decoding all of it says what is wrong
	}
	w.learn(f, h)
	list, some := w.missing(t, h)
	if !some {
		return false, nil
	}
	if h.Stored() { // as with bricks that are stored as they are
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

// missing are the blocks that a task needs of a buffer. It is false where it is better decoded as a whole:
// where more than half of it is wanted, of an array of which blocks are no cells.
func (w *worker) missing(t *task, h blosc.Header) (list []int, some bool) {
	size := t.field.blockSize()
	if h.Stored() {
		return nil, size > 0
	}
	if size == h.BlockBytes && t.missing != nil {
		return t.missing, true // what was kept has been copied
	}
	if h.Blocks() < 2 || h.Blocks() > mostBlocks || !t.field.copier.Pieces(h.BlockBytes) {
		return nil, false
	}
	list = w.wantedBlocks(t, h.Blocks(), h.BlockBytes)
	return list, size == h.BlockBytes || 2*len(list) <= h.Blocks()
}

// block decodes a block, with which src begins, and copies it to all that want it. The cell that it was
// decoded into, if it was, is one of t.taken.
func (w *worker) block(t *task, h blosc.Header, b int, src []byte) error {
	begin, end := h.Range(b, b+1)
	var piece []byte
	if size := t.field.blockSize(); size == h.BlockBytes {
		if x := w.cells.take(t.block(b), size); x != nil {
			t.taken = append(t.taken, x)
			piece = x.slot.bytes[:end-begin]
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
