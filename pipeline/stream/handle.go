package stream

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/read"
)

// Handle is an open file. ReadAt may be called concurrently; readers at different positions of one
// handle do not wait for each other.
type Handle struct {
	set    *Set
	w      uint64
	kind   Kind
	reader reader // for data files
	joins  bool   // its records are contiguous in memory, in the order of the stream
	before []byte // the prologue
	number uint64 // number among the source's handles, starting at 1
	// retired is set if the source was already closed; closed, once Close was called.
	retired bool
	closed  atomic.Bool
	size    atomic.Int64 // size of the file plus 1; 0 while unknown

	mu      sync.Mutex
	parks   bool // it is in Source.parking
	parked  []*walker
	ahead   ahead
	fillers sync.WaitGroup
}

// maxParked is how many positions a handle remembers: for several mappings of one open file, or for
// read-ahead that overtakes.
const maxParked = 4

// Open returns a handle for reading a file. It panics if the worker is out of range, or if there is
// no file of that kind.
func (s *Set) Open(w uint64, k Kind) *Handle {
	if w >= s.Workers() || k > Crops || k == Crops && s.source.crops.open == nil {
		panic(fmt.Sprintf("stream: open of worker %d of %d, kind %d", w, s.Workers(), k))
	}
	h := &Handle{set: s, w: w, kind: k, number: s.source.opened.Add(1)}
	if h.retired = !s.source.enter(); h.retired {
		return h
	}
	switch k {
	case Data, Offsets:
		h.before = s.source.prologue(s.view.Count(w))
	case Crops:
		h.before = s.source.crops.rows.Prologue(s.view.Count(w))
	}
	if k == Data {
		h.reader = s.source.lender(sequence{s, w})
		h.joins = h.reader.Contiguous() && s.source.presenter == nil
		if s.begun != nil {
			s.first.Do(s.begun)
		}
	}
	return h
}

// Retired reports whether the source was closed before the handle was opened: all its reads return
// ErrRetired.
func (h *Handle) Retired() bool { return h.retired }

// BeforeRecords returns the number of bytes before the first record.
func (h *Handle) BeforeRecords() int64 { return int64(len(h.before)) }

// Close closes the handle. Replies that were not released yet stay valid.
func (h *Handle) Close() {
	if h.retired {
		return
	}
	h.endAhead()
	h.set.source.parking.remove(h)
	if h.reader != nil {
		h.reader.Close()
	}
	if !h.closed.Swap(true) {
		h.set.source.leave()
	}
}

// sequence is worker w's stream in the form that the fetcher reads.
type sequence struct {
	set *Set
	w   uint64
}

func (s sequence) Len() uint64 { return s.set.view.Count(s.w) }

// Epoch implements chunkmap.Epochal.
func (s sequence) Epoch() uint64 { return s.set.view.Epoch().Number() }

func (s sequence) Records(k uint64, dst []uint64) int { return s.set.view.Records(s.w, k, dst) }

// ReadAt fills r with the n bytes at off, or returns an error and leaves r empty. It returns fewer
// bytes only at the end of the file, and none past it. n is at most MaxReadBytes. On success r must
// be released, and may then be reused.
//
// Errors are those of read.Reader.Read and of Set.SizeBytes. A failed call may be repeated.
func (h *Handle) ReadAt(ctx context.Context, r *Reply, off int64, n int) error {
	h.begin(r)
	if off < 0 || n < 0 || n > MaxReadBytes {
		return fmt.Errorf("read of %d bytes at %d: not between 0 and %d bytes from 0 on", n, off, MaxReadBytes)
	}
	size, err := h.sizeBytes(ctx)
	if err != nil {
		return err
	}
	end := min(off+int64(n), size)
	if off >= end {
		return nil
	}
	switch h.kind {
	case IDs:
		h.ids(r, off, int(end-off))
		return nil
	case Offsets:
		return h.offsets(ctx, r, off, int(end-off))
	case Crops:
		h.crops(r, off, int(end-off))
		return nil
	}
	for tries := 0; ; tries++ {
		if err = h.read(ctx, r, off, end, size); err == nil {
			return nil
		}
		r.Release()
		if tries == mostTries || !errors.Is(err, read.ErrReadAgain) {
			return err
		}
		h.begin(r)
	}
}

// mostTries is how often a read is repeated after a cached copy of its data was lost
// (read.ErrReadAgain). All copies may be lost at once and be noticed one by one: each try finds at
// least one more, which is not used again. So the tries end by themselves, and this bound only
// guards against a defect.
const mostTries = 1 << 16

// begin makes r an empty reply of this handle.
func (h *Handle) begin(r *Reply) {
	r.begin(h.set.source.buffers)
	r.own = meter.Waiter{Ledger: &h.set.source.meter.Readers}
	r.waits = &r.own
}

// sizeBytes caches Set.SizeBytes.
func (h *Handle) sizeBytes(ctx context.Context) (int64, error) {
	if known := h.size.Load(); known > 0 {
		return known - 1, nil
	}
	size, err := h.set.SizeBytes(ctx, h.w, h.kind)
	if err == nil {
		h.size.Store(size + 1)
	}
	return size, err
}

// ids fills r with n bytes of the record IDs, starting at off.
func (h *Handle) ids(r *Reply, off int64, n int) {
	var records [walkRecords]uint64
	var extents [walkRecords]catalog.Extent
	dst := r.space(n, n)
	k, skip := uint64(off/idBytes), int(off%idBytes)
	for len(dst) > 0 {
		m := min(walkRecords, (skip+len(dst)+idBytes-1)/idBytes)
		m = h.set.view.Records(h.w, k, records[:m])
		h.set.source.records.Extents(records[:m], extents[:m])
		for _, e := range extents[:m] {
			var id [idBytes]byte
			binary.BigEndian.PutUint64(id[:8], h.set.source.records.Shard(e.Shard).IDPrefix)
			binary.BigEndian.PutUint64(id[8:], e.Ordinal)
			dst = dst[copy(dst, id[skip:]):]
			skip = 0
		}
		k += uint64(m)
	}
}

// offsets fills r with n bytes of the record offsets, starting at off.
func (h *Handle) offsets(ctx context.Context, r *Reply, off int64, n int) error {
	l, err := h.set.layout(ctx)
	if err != nil {
		return err
	}
	k, skip := uint64(off/offsetBytes), int(off%offsetBytes)
	wk := h.take(func(wk *walker) bool { return wk.k <= k }, func(a, b *walker) bool { return a.k > b.k })
	defer h.park(wk)
	wk.seekRecord(l, k)
	dst := r.space(n, n)
	for {
		var value [offsetBytes]byte
		binary.LittleEndian.PutUint64(value[:], uint64(int64(len(h.before))+wk.offset))
		dst = dst[copy(dst, value[skip:]):]
		skip = 0
		if len(dst) == 0 {
			return nil
		}
		if wk.fill() {
			wk.step()
		}
	}
}

// data fills r with the bytes [from, to) of the stream.
func (h *Handle) data(ctx context.Context, r *Reply, from, to int64) error {
	l, err := h.set.layout(ctx)
	if err != nil {
		return err
	}
	most := int(to - from)
	base := int64(0)
	part := func(b []byte) {
		if lo, hi := max(from-base, 0), min(to-base, int64(len(b))); lo < hi {
			copy(r.space(int(hi-lo), most), b[lo:hi])
		}
		base += int64(len(b))
	}
	part(h.before)
	if lo, hi := max(from-base, 0), min(to-base, l.bytes[h.w]); lo < hi {
		if err := h.lend(ctx, r, l, lo, hi, most); err != nil {
			return err
		}
	}
	if base += l.bytes[h.w]; base < to {
		part(h.set.source.epilogue(h.set.view.Count(h.w)))
	}
	return nil
}

// take returns the best of the parked walkers that are good, or a new one.
func (h *Handle) take(good func(*walker) bool, better func(a, b *walker) bool) *walker {
	if wk := h.takeParked(good, better); wk != nil {
		return wk
	}
	h.set.source.parking.add(h)
	return newWalker(h.set, h.w)
}

// takeParked returns nil if the caller should make a new walker.
func (h *Handle) takeParked(good func(*walker) bool, better func(a, b *walker) bool) *walker {
	h.mu.Lock()
	defer h.mu.Unlock()
	best := -1
	for i, wk := range h.parked {
		if good(wk) && (best < 0 || better(wk, h.parked[best])) {
			best = i
		}
	}
	if best < 0 {
		if len(h.parked) < maxParked {
			return nil
		}
		best = 0 // the one parked longest ago
	}
	wk := h.parked[best]
	h.parked = append(h.parked[:best], h.parked[best+1:]...)
	return wk
}

func (h *Handle) park(wk *walker) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.parked) < maxParked && h.parks {
		h.parked = append(h.parked, wk)
		return
	}
	wk.forget()
}

// unpark drops the parked walkers. It is called with h.mu held.
func (h *Handle) unpark() {
	for _, wk := range h.parked {
		wk.forget()
	}
	h.parked, h.parks = nil, false
}

// maxParkedHandles is how many handles remember positions: each up to maxParked of them, at 7 KiB
// each. A handle that has dropped its walkers finds its position again by walking over 2048 records
// on average.
const maxParkedHandles = 256

// parking is the list of handles that may have parked walkers; the one that made a walker last is
// at the end. Its lock is taken before that of a handle.
type parking struct {
	mu   sync.Mutex
	list []*Handle
}

// add records that a handle makes a walker, which is rare for sequential reads. If there are too
// many handles, those that made a walker longest ago drop theirs; handles that are being read keep
// the walkers in use.
func (p *parking) add(h *Handle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(slices.DeleteFunc(p.list, func(o *Handle) bool { return o == h }), h)
	h.mu.Lock()
	h.parks = true
	h.mu.Unlock()
	for i := 0; len(p.list) > maxParkedHandles && i < len(p.list)-1; {
		o := p.list[i]
		if !o.mu.TryLock() {
			i++ // in use
			continue
		}
		o.unpark()
		o.mu.Unlock()
		p.list = slices.Delete(p.list, i, i+1)
	}
}

func (p *parking) remove(h *Handle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = slices.DeleteFunc(p.list, func(o *Handle) bool { return o == h })
	h.mu.Lock()
	h.unpark()
	h.mu.Unlock()
}
