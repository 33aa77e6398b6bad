package crops

import (
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr/blosc"
)

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
		a.bytes = make([]byte, a.end-a.begin)
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
