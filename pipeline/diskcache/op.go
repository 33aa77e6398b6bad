package diskcache

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

// op is a read in progress. It is reused.
//
//	begin ─► sums ─► plan ─┬─► pieces: cached pages, read and checked ────┬─► end
//	                       ├─► flights: missing pages, shared with others ┤
//	                       └─► below: missing pages that are not cached ──┘
type op struct {
	s       *Storage
	read    *storage.Read
	object  *object
	pages   run
	planned bool          // the sums have been read: plan is next
	sums    []byte        // of pages
	request uring.Request // for the sums
	landed  uint64        // object.landed, before the sums were read
	looks   int           // how often they were read
	left    atomic.Int32  // parts that are not done

	mu       sync.Mutex
	err      error // the first
	unwanted bool
}

// maxLooks is how often sums are read before missing pages are fetched, although flights have ended
// meanwhile, perhaps with these pages.
const maxLooks = 4

func (s *Storage) newOp(r *storage.Read) *op {
	x, _ := s.ops.Get().(*op)
	if x == nil {
		x = &op{s: s}
		x.request.Done = x.sumsRead
	}
	x.read, x.object, x.planned, x.looks, x.err, x.unwanted = r, nil, false, 0, nil, false
	return x
}

// run implements task.
func (x *op) run() {
	if x.planned {
		x.plan()
		return
	}
	x.begin()
}

func (x *op) begin() {
	s, r := x.s, x.read
	size := int64(len(r.Buf))
	sound := size > 0 && r.OffsetBytes >= 0 && size <= r.Object.SizeBytes && r.OffsetBytes <= r.Object.SizeBytes-size
	if !sound || s.health.off.Load() {
		x.pass()
		return
	}
	if !x.wanted() {
		x.finish(storage.ErrUnwanted)
		return
	}
	if x.object = s.hold(r.Object); x.object == nil {
		x.pass()
		return
	}
	x.pages = runOf(r.OffsetBytes, size)
	x.readSums()
}

// pass submits the whole read to the storage below, unchanged.
func (x *op) pass() {
	r := x.read
	x.left.Store(1)
	x.s.missed(runOf(r.OffsetBytes, int64(len(r.Buf))).pages())
	x.s.counts.reads.Add(1)
	x.s.submitBelow(&storage.Read{Object: r.Object, OffsetBytes: r.OffsetBytes, Buf: r.Buf, Wanted: r.Wanted, Done: x.part})
}

// wanted asks the submitter, until it answers false.
func (x *op) wanted() bool {
	if x.read.Wanted == nil {
		return true
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.unwanted {
		x.unwanted = !x.read.Wanted()
	}
	return !x.unwanted
}

func (x *op) readSums() {
	x.landed = x.object.landed.Load()
	n := int(x.pages.pages()) * sumBytes
	if cap(x.sums) < n {
		x.sums = make([]byte, n)
	}
	x.sums = x.sums[:n]
	p := x.object.files.Load()
	if p == nil {
		clear(x.sums)
		x.plan()
		return
	}
	x.request.File, x.request.OffsetBytes, x.request.Buf = p.sums, sumsAt(x.pages.begin), x.sums
	if x.s.config.Engine.ReadNow(&x.request) {
		x.plan()
		return
	}
	x.s.config.Engine.Submit([]*uring.Request{&x.request})
}

// sumsRead is called by the engine.
func (x *op) sumsRead(n int, err error) {
	if err != nil {
		x.s.failed("read sums of "+x.read.Object.Path, err)
		n = 0
	}
	clear(x.sums[n:]) // the file ends before that: these pages are missing
	x.planned = true
	x.s.readers.add(x)
}

// plan decides about each page.
func (x *op) plan() {
	x.planned = false
	x.left.Store(1)
	gone := missing(x.sums, x.pages.begin, x.s.config.GapBytes/pageBytes)
	if len(gone) == 0 {
		x.s.seals.whole(x.object.listed)
	}
	if x.looks++; !x.bring(gone, x.looks < maxLooks) {
		x.readSums() // some have arrived meanwhile
		return
	}
	// Cached pages, except those that are read together with missing ones.
	at := x.pages.begin
	for _, r := range append(gone, run{x.pages.end, x.pages.end}) {
		if at < r.begin {
			x.cut(run{at, r.begin})
		}
		at = r.end
	}
	x.part(nil)
}

// buf returns the part of the submitter's buffer for the wanted bytes of pages, and how many bytes
// of the pages come before them.
func (x *op) buf(r run) (to []byte, skip int64) {
	begin := max(r.begin*pageBytes, x.read.OffsetBytes)
	end := min(r.end*pageBytes, x.read.OffsetBytes+int64(len(x.read.Buf)))
	return x.read.Buf[begin-x.read.OffsetBytes : end-x.read.OffsetBytes], begin - r.begin*pageBytes
}

// copyIn copies the wanted bytes of pages.
func (x *op) copyIn(r run, content []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.unwanted {
		to, skip := x.buf(r)
		copy(to, content[skip:])
	}
}

// part ends one part of the read.
func (x *op) part(err error) {
	if err != nil {
		x.mu.Lock()
		if x.err == nil {
			x.err = err
		}
		x.mu.Unlock()
	}
	if x.left.Add(-1) > 0 {
		return
	}
	err = x.err
	if x.unwanted {
		err = storage.ErrUnwanted
	}
	x.finish(err)
}

// finish completes the submitter's read, and ends the op.
func (x *op) finish(err error) {
	s, r, o := x.s, x.read, x.object
	if err != nil && err != storage.ErrUnwanted {
		// The error names the requested range, not the one that was read.
		var of *storage.Error
		if errors.As(err, &of) {
			err = of.Err
		}
		err = &storage.Error{Object: r.Object.Path, OffsetBytes: r.OffsetBytes, SizeBytes: int64(len(r.Buf)), Err: err}
	}
	x.read, x.object, x.request.File, x.request.Buf = nil, nil, nil, nil
	s.ops.Put(x)
	if o != nil {
		s.release(o)
	}
	r.Done(err)
	s.end()
}

func (s *Storage) missed(pages int64) { s.counts.misses.Add(uint64(max(pages, 0))) }
