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
	sealed  *seal // the object's, if the page cache held all of pages before anything was read
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
	x.read, x.object, x.sealed, x.planned, x.looks, x.err, x.unwanted = r, nil, nil, false, 0, nil, false
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
	if s.seals.take(x.object, r) {
		o := x.object
		x.read, x.object = nil, nil
		s.ops.Put(x)
		s.release(o)
		return
	}
	x.pages = runOf(r.OffsetBytes, size)
	x.sealed = s.seals.held(x.object, x.pages)
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
	x.read, x.object, x.sealed, x.request.File, x.request.Buf = nil, nil, nil, nil, nil
	s.ops.Put(x)
	if o != nil {
		s.release(o)
	}
	r.Done(err)
	s.end()
}

func (s *Storage) missed(pages int64) { s.counts.misses.Add(uint64(max(pages, 0))) }

const (
	// pieceBytes is how much is read and checked at a time: it fits in a core's own cache.
	pieceBytes = 256 << 10
	// scratchPieceBytes is the maximum that is read into scratch memory. Larger pieces are read
	// directly to where they are wanted, except for pages of which only a part is: a copy costs
	// more than the two reads that this takes.
	scratchPieceBytes = 64 << 10
)

// piece is pages whose sums are there, as one read. It is reused.
type piece struct {
	x       *op
	pages   run
	buf     []byte // the pages' memory
	scratch bool   // buf is not the submitter's memory
	arrived bool   // they have been read: check is next
	request uring.Request
}

// cut divides a run of pages whose sums are there into pieces.
func (x *op) cut(r run) {
	off, n := x.read.OffsetBytes, int64(len(x.read.Buf))
	whole := run{pagesOf(off), (off + n) / pageBytes}.overlap(r)
	if whole.bytes() < scratchPieceBytes {
		x.split(r, scratchPieceBytes/pageBytes, true)
		return
	}
	x.split(run{r.begin, whole.begin}, 1, true)
	x.split(whole, pieceBytes/pageBytes, false)
	x.split(run{whole.end, r.end}, 1, true)
}

func (x *op) split(r run, most int64, scratch bool) {
	for at := r.begin; at < r.end; at += most {
		x.left.Add(1)
		p, _ := x.s.pieces.Get().(*piece)
		if p == nil {
			p = &piece{}
			p.request.Done = p.ended
		}
		p.x, p.pages, p.scratch, p.arrived = x, run{at, min(at+most, r.end)}, scratch, false
		p.begin()
	}
}

func (p *piece) begin() {
	if !p.scratch {
		to, _ := p.x.buf(p.pages)
		p.readInto(to)
		return
	}
	if buf, ok := p.x.s.scratch.take(p); ok {
		p.readInto(buf)
	}
}

// wantsBytes and lent implement borrower.
func (p *piece) wantsBytes() int { return int(p.pages.bytes()) }

func (p *piece) lent(buf []byte) {
	p.buf = buf
	p.x.s.readers.add(p) // this goroutine belongs to another op
}

func (p *piece) readInto(buf []byte) {
	p.buf = buf
	files := p.x.object.files.Load()
	p.request.File, p.request.OffsetBytes, p.request.Buf = files.data, p.pages.begin*pageBytes, buf
	if p.x.s.config.Engine.ReadNow(&p.request) {
		p.check()
		return
	}
	p.x.s.config.Engine.Submit([]*uring.Request{&p.request})
}

// ended is called by the engine.
func (p *piece) ended(n int, err error) {
	if err != nil {
		p.x.s.failed("read pages of "+p.x.read.Object.Path, err)
		n = 0
	}
	// What is missing at the end of the file reads as zeros, which match only the sum of zeros.
	clear(p.buf[n:])
	p.arrived = true
	p.x.s.readers.add(p)
}

// run implements task.
func (p *piece) run() {
	if p.arrived {
		p.check()
		return
	}
	p.readInto(p.buf)
}

// check takes the pages that match their sums, and fetches the others.
func (p *piece) check() {
	x := p.x
	var bad []run
	good := int64(0)
	for i := p.pages.begin; i < p.pages.end; i++ {
		content := p.buf[(i-p.pages.begin)*pageBytes:][:pageBytes]
		if x.object.summer.sum(i, content) != sumOf(x.sums, i-x.pages.begin) {
			bad = with(bad, i)
			continue
		}
		good++
		if x.sealed != nil {
			x.sealed.add(i)
		}
		if p.scratch {
			x.copyIn(run{i, i + 1}, content)
		}
	}
	x.s.counts.hits.Add(uint64(good))
	if p.scratch {
		x.s.scratch.give(p.buf)
	}
	p.x, p.buf, p.request.File, p.request.Buf = nil, nil, nil, nil
	x.s.pieces.Put(p)
	if len(bad) > 0 {
		x.mismatched(bad)
		x.bring(bad, false)
	}
	x.part(nil)
}

// mismatched clears the sums of pages that do not match them. A sum that is 0 by now belongs to a
// page that was dropped while it was read, which is not an error.
func (x *op) mismatched(bad []run) {
	files, disk := x.object.files.Load(), x.s.dir.disk
	for _, r := range bad {
		sums := make([]byte, r.pages()*sumBytes)
		if _, err := disk.read(files.sums.FD(), sums, sumsAt(r.begin)); err != nil {
			x.s.failed("read sums of "+x.read.Object.Path, err)
			return
		}
		for still, here := range alike(sums, r.begin) {
			if !here {
				continue
			}
			x.s.counts.bad.Add(uint64(still.pages()))
			if err := x.s.dir.spoil(files, still); err != nil {
				x.s.failed("write sums of "+x.read.Object.Path, err)
			}
		}
	}
}
