package arrays

import (
	"sync"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// togetherBytes is the size from which a row is read on its own, directly to its destination: below
// it a read costs more than copying.
const togetherBytes = 32 << 10

// reading is a read in progress, which consists of several reads of files.
type reading struct {
	storage *Storage
	read    *storage.Read
	pending atomic.Int32 // reads of files that are not done
	failed  atomic.Pointer[error]
	out     []byte   // the part of the buffer for records
	layouts []layout // what is left to copy there after all reads

	mu       sync.Mutex
	unwanted bool
}

// layout is rows of one part that were read together: they are copied from rows to out, one every
// recordBytes. first is the destination of the first one (which may begin before the read), and
// skipped is how many of its bytes were not read.
type layout struct {
	rows           []byte
	first, skipped int64
	rowBytes       int64
	recordBytes    int64
}

// Submit implements storage.Storage.
func (s *Storage) Submit(reads []*storage.Read) {
	var all []*storage.Read
	open := s.inflight.Begin(len(reads))
	for _, r := range reads {
		o, err := s.find(r)
		if !open {
			err = storage.ErrClosed
		}
		x := &reading{storage: s, read: r}
		var parts []*storage.Read
		if err == nil {
			parts = x.split(o)
		}
		if len(parts) == 0 { // an error, or the range has no bytes of a file
			x.pending.Store(1)
			go x.done(err)
			continue
		}
		x.pending.Store(int32(len(parts)))
		all = append(all, parts...)
	}
	if len(all) > 0 {
		s.under.Submit(all)
	}
}

// split fills in the bytes that are not from files, and returns the reads of files for the rest.
func (x *reading) split(o *object) (reads []*storage.Read) {
	buf, from := x.read.Buf, x.read.OffsetBytes-int64(len(o.prologue)) // relative to the records
	if from < 0 {
		buf = buf[copy(buf, o.prologue[x.read.OffsetBytes:]):]
		from = 0
	}
	if len(buf) == 0 {
		return nil
	}
	clear(buf)
	to := from + int64(len(buf))
	for i := range o.parts {
		p := &o.parts[i]
		if p.rowBytes == 0 {
			continue
		}
		// Rows first … last overlap the range: the first from its byte skip on, the last up to its
		// byte end.
		first, last := from/o.recordBytes, (to-1)/o.recordBytes
		skip, end := max(from-first*o.recordBytes-p.place, 0), min(to-last*o.recordBytes-p.place, p.rowBytes)
		if skip >= p.rowBytes {
			first, skip = first+1, 0
		}
		if end <= 0 {
			last, end = last-1, p.rowBytes
		}
		if first > last {
			continue
		}
		place := func(row int64) int64 { return row*o.recordBytes + p.place - from }
		if last > first && p.rowBytes < togetherBytes {
			l := layout{first: place(first), skipped: skip, rowBytes: p.rowBytes, recordBytes: o.recordBytes}
			l.rows = make([]byte, (last-first)*p.rowBytes-skip+end)
			x.layouts = append(x.layouts, l)
			reads = append(reads, x.of(p, first*p.rowBytes+skip, l.rows))
			continue
		}
		for row := first; row <= last; row++ {
			low, high := int64(0), p.rowBytes
			if row == first {
				low = skip
			}
			if row == last {
				high = end
			}
			if low < high {
				reads = append(reads, x.of(p, row*p.rowBytes+low, buf[place(row)+low:place(row)+high]))
			}
		}
	}
	x.out = buf
	return reads
}

// of returns a read of a part's file, rowsOffset bytes after the start of its rows.
func (x *reading) of(p *part, rowsOffset int64, buf []byte) *storage.Read {
	r := &storage.Read{Object: p.file, OffsetBytes: p.offsetBytes + rowsOffset, Buf: buf, Done: x.done}
	if x.read.Wanted != nil {
		r.Wanted = x.wanted
	}
	return r
}

// wanted calls the submitter's Wanted until it returns false.
func (x *reading) wanted() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.unwanted && !x.read.Wanted() {
		x.unwanted = true
	}
	return !x.unwanted
}

// done is called for each read of a file, and reports to the submitter after the last one.
func (x *reading) done(err error) {
	if err != nil {
		x.failed.CompareAndSwap(nil, &err)
	}
	if x.pending.Add(-1) > 0 {
		return
	}
	defer x.storage.inflight.End()
	r := x.read
	x.mu.Lock()
	unwanted := x.unwanted // takes precedence over other errors
	x.mu.Unlock()
	switch failed := x.failed.Load(); {
	case unwanted:
		r.Done(storage.ErrUnwanted)
	case failed != nil:
		r.Done(r.Failure(*failed))
	default:
		for i := range x.layouts {
			x.layouts[i].spread(x.out)
		}
		r.Done(nil)
	}
}

// spread copies the rows to their destinations in out.
func (l *layout) spread(out []byte) {
	rows, at, n := l.rows, l.first+l.skipped, l.rowBytes-l.skipped
	for len(rows) > 0 {
		n = min(n, int64(len(rows)))
		copy(out[at:], rows[:n])
		rows, at, n = rows[n:], at+n+l.recordBytes-l.rowBytes, l.rowBytes
	}
}
