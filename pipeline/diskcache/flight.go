package diskcache

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// flight is one read below of whole pages, for all ops that miss them and for the cache. Flights of
// one object have no page in common.
//
//	launch ─► below ─► landed ─► shared out ─► written ─► gone
//	└────── ops that miss these pages join ─────────────┘
type flight struct {
	s       *Storage
	object  *object
	pages   run
	place   place
	fill    bool         // part of the fill: no reader has asked for it
	wants   func() bool  // reports whether it is still wanted, if it was announced; nil otherwise
	after   func()       // called at its end, or nil
	buf     []byte       // whole pages
	read    storage.Read // as much of them as the object has
	stage   stage
	err     error
	claimed bool // other processes leave these pages to the flight
	// awaited is when the flight began to wait for another process, demanded when a reader was
	// first seen waiting for the flight since then, and begun when the read below began.
	awaited, demanded, begun time.Time

	// Guarded by object.mu.
	subs      []sub
	copying   int    // subs that copy out of buf
	arrived   bool   // buf is full
	cancelled bool   // nothing wants it any more, and the storage below has been told
	gone      bool   // removed from the object's list
	done      []span // ranges of its pages that were passed before they were written
}

// sub is a part of an op that a flight fetches.
type sub struct {
	x     *op
	pages run
}

// span is a range of bytes.
type span struct{ off, n int64 }

type stage uint8

const (
	stageLaunch stage = iota
	stageAwait
	stageLanded
	stageWrite
)

// bring handles the missing pages of the op: it joins flights, starts flights, and reads below what
// is not going to be cached. With recheck, it does nothing and returns false if flights have ended
// since the sums were read.
func (x *op) bring(gone []run, recheck bool) bool {
	if len(gone) == 0 {
		return true
	}
	s, o := x.s, x.object
	var direct []run
	planned := x.touched(gone)
	s.ahead.plans.read(x.covered(planned))
	o.mu.Lock()
	if recheck && o.landed.Load() != x.landed {
		o.mu.Unlock()
		return false
	}
	fresh := x.bringChunks(planned)
	of := len(fresh)
	var promoted []*flight
	for _, r := range gone {
		s.missed(r.pages())
		for at := r.begin; at < r.end; {
			if f := o.flightAt(at); f != nil {
				part := run{at, min(f.pages.end, r.end)}
				x.left.Add(1)
				f.join(sub{x, part})
				if (f.fill || f.wants != nil) && !f.arrived {
					promoted = append(promoted, f)
				}
				at = part.end
				continue
			}
			part := run{at, min(r.end, o.nextFlight(at), at+s.config.MaxReadBytes/pageBytes)}
			if f := s.newFlight(o, part, toRead); f != nil {
				x.left.Add(1)
				f.subs = append(f.subs, sub{x, part})
				fresh = append(fresh, f)
			} else {
				direct = append(direct, part)
			}
			at = part.end
		}
	}
	for _, f := range fresh[:of] {
		if len(f.subs) > 0 {
			promoted = append(promoted, f) // however late the chunk is due
		}
	}
	x.left.Add(int32(len(direct)))
	o.mu.Unlock()
	s.promote(promoted)
	for _, f := range fresh {
		f.launch()
	}
	reads := make([]*storage.Read, len(direct))
	for i, r := range direct {
		to, skip := x.buf(r)
		reads[i] = &storage.Read{Object: x.read.Object, OffsetBytes: r.begin*pageBytes + skip, Buf: to, Done: x.part}
		if x.read.Wanted != nil {
			reads[i].Wanted = x.wanted
		}
	}
	if len(reads) > 0 {
		s.counts.reads.Add(uint64(len(reads)))
		s.submitBelow(reads...)
	}
	return true
}

// flightAt returns the flight that fetches a page, if it can be joined. o.mu is held.
func (o *object) flightAt(page int64) *flight {
	for _, f := range o.flights {
		if f.pages.begin <= page && page < f.pages.end && !f.cancelled {
			return f
		}
	}
	return nil
}

// nextFlight returns where the next flight begins, or the object's end. o.mu is held.
func (o *object) nextFlight(page int64) int64 {
	next := o.pages
	for _, f := range o.flights {
		if f.pages.begin > page && !f.cancelled {
			next = min(next, f.pages.begin)
		}
	}
	return next
}

// join adds a sub. object.mu is held.
func (f *flight) join(u sub) {
	if !f.arrived {
		f.subs = append(f.subs, u)
		return
	}
	f.copying++
	f.s.readers.add(late{f, u})
}

// late is a sub of a flight whose data has arrived.
type late struct {
	f *flight
	u sub
}

func (l late) run() {
	f := l.f
	f.share(l.u)
	f.object.mu.Lock()
	f.copying--
	f.object.mu.Unlock()
	f.free()
	l.u.x.part(nil)
}

// launch reads the flight's pages below, when there is memory for them.
func (f *flight) launch() {
	if buf, ok := f.s.buffers.take(f); ok {
		f.lent(buf)
	}
}

// wantsBytes and lent implement borrower.
func (f *flight) wantsBytes() int { return int(f.pages.bytes()) }

func (f *flight) lent(buf []byte) {
	f.buf = buf
	if !f.claim() {
		f.await()
		return
	}
	f.readBelow()
}

// readBelow starts the read below.
func (f *flight) readBelow() {
	buf := f.buf
	f.stage = stageLanded
	f.begun = f.s.config.Clock.Now()
	size := min(f.pages.bytes(), f.object.sizeBytes-f.pages.begin*pageBytes)
	f.read = storage.Read{Object: f.object.listed, OffsetBytes: f.pages.begin * pageBytes, Buf: buf[:size], Wanted: f.wanted, Done: f.landed}
	f.s.counts.reads.Add(1)
	if f.fill && f.s.caps.Fill != nil {
		f.s.caps.Fill([]*storage.Read{&f.read})
		return
	}
	f.s.submitBelow(&f.read)
}

// wanted is called by the storage below.
func (f *flight) wanted() bool {
	if f.wants != nil && f.wants() {
		return true
	}
	for asked := 0; ; {
		f.object.mu.Lock()
		if asked > len(f.subs) {
			f.object.mu.Unlock()
			return true // it has landed
		}
		subs := f.subs[asked:]
		f.cancelled = len(subs) == 0
		f.object.mu.Unlock()
		if len(subs) == 0 {
			return false
		}
		for _, u := range subs {
			if u.x.wanted() {
				return true
			}
		}
		asked += len(subs)
	}
}

// landed is called by the storage below.
func (f *flight) landed(err error) {
	if err == nil && !f.begun.IsZero() {
		f.s.claims.took(f.s.config.Clock.Now().Sub(f.begun))
	}
	f.err = err
	f.s.readers.add(f)
}

// run implements task.
func (f *flight) run() {
	switch {
	case f.stage == stageAwait:
		f.look()
	case f.stage == stageWrite:
		kept, ok := f.s.write(f.object, f.pages, f.buf, f.place)
		if !ok {
			f.s.ahead.lost(f)
		}
		f.s.unwritten.Add(-f.pages.bytes())
		f.end(kept)
	case f.err != nil:
		f.object.mu.Lock()
		f.remove()
		subs := f.subs
		f.subs = nil
		f.object.mu.Unlock()
		for _, u := range subs {
			u.x.part(f.err)
		}
		if !f.fill {
			f.s.ahead.lost(f)
		}
		f.end(0)
	default:
		clear(f.buf[min(f.pages.bytes(), f.object.sizeBytes-f.pages.begin*pageBytes):])
		f.object.mu.Lock()
		f.arrived = true
		subs := f.subs
		f.subs = nil
		f.object.mu.Unlock()
		for _, u := range subs {
			f.share(u)
			u.x.part(nil)
		}
		f.stage = stageWrite
		f.s.unwritten.Add(f.pages.bytes())
		f.s.writers.add(f)
	}
}

func (f *flight) share(u sub) {
	u.x.copyIn(u.pages, f.buf[(u.pages.begin-f.pages.begin)*pageBytes:])
}

// remove removes the flight from its object's list. object.mu is held.
func (f *flight) remove() {
	f.gone = true
	f.object.landed.Add(1)
	if i := slices.Index(f.object.flights, f); i >= 0 {
		f.object.flights = slices.Delete(f.object.flights, i, i+1)
	}
}

// write writes those of the pages that are not in the cache yet, data first. It returns how many
// bytes of pages that is, and whether all are in the cache now. Readers have their bytes already,
// whatever fails.
func (s *Storage) write(o *object, pages run, all []byte, to place) (kept int64, ok bool) {
	if !s.health.writes() {
		return 0, false
	}
	files := s.opened(o, true)
	if files == nil {
		return 0, false
	}
	disk := s.dir.disk
	sums := make([]byte, pages.pages()*sumBytes)
	if _, err := disk.read(files.sums.FD(), sums, sumsAt(pages.begin)); err != nil {
		s.failed("read sums of "+o.listed.Path, err)
		return 0, false
	}
	for r, here := range alike(slices.Clone(sums), pages.begin) {
		if here {
			continue // another process was faster
		}
		content := all[(r.begin-pages.begin)*pageBytes:][:r.bytes()]
		of := sums[(r.begin-pages.begin)*sumBytes:][:r.pages()*sumBytes]
		for i := range r.pages() {
			binary.LittleEndian.PutUint32(of[sumBytes*i:], o.summer.sum(r.begin+i, content[i*pageBytes:][:pageBytes]))
		}
		kept += r.bytes() // a write that fails may have written some
		if to == inShare {
			o.mu.Lock() // so that Passed frees what a failed write has left
			for page := r.begin; page < r.end; page++ {
				o.shared.add(page)
			}
			o.mu.Unlock()
		}
		err := disk.write(files.data.FD(), content, r.begin*pageBytes)
		if err == nil {
			err = disk.write(files.sums.FD(), of, sumsAt(r.begin))
		}
		if err != nil {
			s.failed("write pages of "+o.listed.Path, err)
			return kept, false
		}
		s.counts.written.Add(uint64(r.pages()))
	}
	return kept, true
}

// end ends a flight, of whose pages that many bytes were written.
func (f *flight) end(kept int64) {
	s, o := f.s, f.object
	s.room.put(f.place, f.pages.bytes(), kept)
	s.room.grow(sumBlocks(kept))
	o.mu.Lock()
	if !f.gone {
		f.remove()
	}
	done := f.done
	o.mu.Unlock()
	for _, d := range done {
		s.drop(o, d.off, d.n)
	}
	s.unpromote(f)
	f.unclaim()
	f.free()
	s.release(o)
	if f.after != nil {
		f.after()
	}
	s.ahead.poke()
	s.end()
}

// sumBlocks returns about how much disk space the sums of that many bytes of pages take.
func sumBlocks(pages int64) int64 {
	return (pages/(pageBytes/sumBytes) + pageBytes - 1) / pageBytes * pageBytes
}

// free returns the memory when the flight has ended and nothing copies from it.
func (f *flight) free() {
	f.object.mu.Lock()
	free := f.gone && f.copying == 0 && f.buf != nil
	buf := f.buf
	if free {
		f.buf = nil
	}
	f.object.mu.Unlock()
	if free {
		f.s.buffers.give(buf)
	}
}

// purpose is why pages are fetched.
type purpose uint8

const (
	// toFill is for later: there must be permanent room.
	toFill purpose = iota
	// toRead is for a reader, which does not wait for a disk that is slower than the storage below:
	// then the pages pass through.
	toRead
	// toGather is for readers that come back for other parts: they wait for the disk, because each
	// of them would request again what passes through.
	toGather
)

// newFlight returns a flight if there is room for its pages. o.mu is held.
func (s *Storage) newFlight(o *object, pages run, why purpose) *flight {
	if !s.health.writes() || why == toRead && s.behind() {
		return nil
	}
	p := s.room.take(pages.bytes(), why == toFill)
	if p == nowhere {
		return nil
	}
	f := &flight{s: s, object: o, pages: pages, place: p}
	o.flights = append(o.flights, f)
	s.mu.Lock()
	s.use(o)
	s.underWay++ // the caller's operation is in progress, so Close waits
	s.mu.Unlock()
	return f
}

// behind reports whether data arrives faster than the disk takes it.
func (s *Storage) behind() bool { return s.unwritten.Load() > s.config.BufferBytes/2 }
