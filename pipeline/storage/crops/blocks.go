package crops

import (
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/storage"
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
		if low, high := t.field.copier.Span(&w.part); low < end && high > piece.OffsetBytes && w.copies() {
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
	head := stored
	if w.config.dry != nil {
		head = w.config.dry.head(t)
	}
	h, err := blosc.Parse(head, int64(len(stored)), f.chunkBytes)
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
		at, err := h.Start(head, b)
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
	if w.config.dry == nil {
		if err := w.blosc.DecodeBlock(piece, src, h, b); err != nil {
			return err
		}
	}
	w.blockCount.Add(1)
	w.decodedBytes.Add(uint64(end - begin))
	t.copyPiece(zarr.Window{Bytes: piece, OffsetBytes: begin})
	return nil
}

// If only some blocks of a long chunk are wanted, it is read in steps: first its head, which holds
// the offsets of the blocks, and then the blocks. At any step it may turn out that reading the
// whole chunk is better, or that the chunk is damaged. Then the whole chunk is read next, and its
// result counts.

// A chunk's head is read first from this stored size on. In memory the second step costs a system
// call; below, it costs a wait.
const (
	longInMemory = 64 << 10
	longBelow    = 1 << 20
)

// Blocks at most this far apart are read together.
const (
	blockGapInMemory = 4 << 10
	blockGapBelow    = 64 << 10
)

// headBytes is how much of a chunk is read first while its block size is not known.
const headBytes = 4 << 10

// steps is the state of reading a long chunk.
type steps struct {
	head   []byte // nil until it has been read
	header blosc.Header
	asked  []stretch // what is being read now
	whole  bool      // asked is the whole chunk
	gap    int64

	failed error // the first error of the reads below
	left   int   // reads below that have not completed; guarded by Storage.mu
}

// stretch is a range of a stored chunk, with the wanted blocks that begin in it.
type stretch struct {
	begin, end int64
	blocks     []int
	bytes      []byte
}

// long reports whether a chunk's head is read first.
func (t *task) long(least int64) bool {
	return t.place.SizeBytes >= least && t.field.Array.Chain.Blocks() && t.field.blockBytes.Load() != blocksNone
}

// start begins reading a long chunk.
func (t *task) start(gap int64) {
	n := int64(headBytes)
	if size := t.field.blockSize(); size > 0 {
		n = blosc.HeaderBytes + 4*((t.field.chunkBytes+size-1)/size)
	}
	t.steps = &steps{asked: []stretch{{end: min(n, t.place.SizeBytes)}}, gap: gap}
}

// step continues after the read of what was asked. more is false if the chunk is done, with err or
// nil.
func (w *worker) step(t *task) (more bool, err error) {
	s := t.steps
	for i := range s.asked {
		w.storedBytes.Add(uint64(len(s.asked[i].bytes)))
	}
	switch {
	case s.whole:
		return false, w.decode(t, s.asked[0].bytes)
	case s.head == nil:
		return w.stepHead(t), nil
	}
	for _, a := range s.asked {
		for _, b := range a.blocks {
			at, err := s.header.Start(s.head, b)
			if err == nil {
				err = w.block(t, s.header, b, a.bytes[at-a.begin:])
			}
			if err != nil {
				w.keep(t, false)
				t.stepWhole()
				return true, nil
			}
		}
	}
	w.chunks.Add(1)
	return false, nil
}

func (t *task) stepWhole() {
	t.steps.whole, t.steps.asked = true, []stretch{{end: t.place.SizeBytes}}
}

// stepHead decides from the head what to read next. There always is something.
func (w *worker) stepHead(t *task) bool {
	s := t.steps
	head := s.asked[0].bytes
	if d := w.config.dry; d != nil {
		known := d.head(t)
		head = known[:min(len(head), len(known))]
	}
	h, err := blosc.Parse(head, t.place.SizeBytes, t.field.chunkBytes)
	if err != nil {
		t.stepWhole()
		return true
	}
	w.learn(t.field, h)
	list, some := w.missing(t, h)
	if n := h.StartsBytes(); some && !h.Stored() && n > int64(len(head)) {
		s.asked = []stretch{{end: n}}
		return true
	}
	if some && h.Stored() {
		some = false // its wanted bytes could be read alone, but such chunks are rare
	}
	if !some || !s.cut(h, head, list) {
		t.stepWhole()
		return true
	}
	s.head, s.header = append([]byte(nil), head...), h
	return true
}

// cut asks for the blocks of list, with neighbours in one read. It returns false if the offsets are
// wrong, or if more than half of the buffer would be read.
func (s *steps) cut(h blosc.Header, head []byte, list []int) bool {
	var asked []stretch
	bytes := int64(0)
	starts := make([]int64, h.Blocks())
	for b := range starts {
		var err error
		if starts[b], err = h.Start(head, b); err != nil {
			return false
		}
	}
	sorted := append(slices.Clone(starts), h.StoredBytes)
	slices.Sort(sorted) // writers store blocks in any order
	for _, b := range list {
		begin := starts[b]
		next, _ := slices.BinarySearch(sorted, begin+1)
		end := h.StoredBytes // or the beginning of the next block
		if next < len(sorted) {
			end = sorted[next]
		}
		last := len(asked) - 1
		if last >= 0 && begin >= asked[last].begin && begin <= asked[last].end+s.gap {
			bytes += max(end-asked[last].end, 0)
			asked[last].end = max(end, asked[last].end)
			asked[last].blocks = append(asked[last].blocks, b)
		} else {
			bytes += end - begin
			asked = append(asked, stretch{begin: begin, end: end, blocks: []int{b}})
		}
	}
	s.asked = asked
	return 2*bytes <= h.StoredBytes
}

// readLong reads a long chunk that is in memory. inMemory is false if some of it is not.
func (w *worker) readLong(o *opened, t *task) (inMemory bool, err error) {
	t.start(blockGapInMemory)
	for more := true; more && err == nil; more, err = w.step(t) {
		size := int64(0)
		for _, a := range t.steps.asked {
			size += a.end - a.begin
		}
		rest, err := w.stored.room(size)
		if err != nil {
			return false, nil
		}
		for i := range t.steps.asked {
			a := &t.steps.asked[i]
			n := a.end - a.begin
			a.bytes, rest = rest[:n:n], rest[n:]
			if !o.resident.ReadAt(a.bytes, t.place.OffsetBytes+a.begin) {
				return false, nil
			}
		}
	}
	return true, err
}

// submitSteps returns the reads for the next step of a long chunk, and counts them as under way.
func (w *worker) submitSteps(t *task) (reads []*storage.Read) {
	s, size := t.steps, int64(0)
	for i := range s.asked {
		a := &s.asked[i]
		a.bytes = w.buffer(a.end - a.begin)
		size += a.end - a.begin
		reads = append(reads, &storage.Read{Object: t.listed, OffsetBytes: t.place.OffsetBytes + a.begin, Buf: a.bytes, Wanted: t.wanted, Done: func(err error) {
			w.Storage.cameStretch(t, err)
		}})
	}
	s.left = len(reads)
	w.sent(size)
	return reads
}

// cameStretch counts a completed read off. The last one queues the next step.
func (s *Storage) cameStretch(t *task, err error) {
	s.mu.Lock()
	if err != nil && t.steps.failed == nil {
		t.steps.failed = err
	}
	t.steps.left--
	last := t.steps.left == 0
	s.mu.Unlock()
	if last {
		s.push(job{came: t})
	}
}

// cameSteps continues a long chunk after its reads have completed.
func (w *worker) cameSteps(t *task) {
	s, size := t.steps, int64(0)
	for _, a := range s.asked {
		size += a.end - a.begin
	}
	more, err := false, s.failed
	if err == nil {
		if more, err = w.step(t); !more {
			w.keep(t, err == nil)
		}
	}
	if more {
		reads := w.submitSteps(t)
		w.returned(size)
		w.under.Submit(reads) // from here on another worker may own it
		return
	}
	t.steps = nil
	t.finish(err)
	w.returned(size)
}
