package joined

import (
	"sync"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// togetherBytes is the size from which on a row is read by itself, right to where it is
// wanted: below it a read costs more than copying.
const togetherBytes = 32 << 10

// reading is a read under way, which is several of files.
type reading struct {
	storage *Storage
	read    *storage.Read
	counted bool         // Close waits for it
	pending atomic.Int32 // reads of files that are not done
	failed  atomic.Pointer[error]
	out     []byte   // the part of the buffer that records are in
	layouts []layout // what is left to do there when all are read

	mu       sync.Mutex
	unwanted bool
}

// layout is rows of one part that were read together: they go from rows to out, one every
// recordBytes. first is where the first one goes (its begin may lie before the read), and
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
	for _, r := range reads {
		s.mu.Lock()
		o, err := s.find(r)
		x := &reading{storage: s, read: r, counted: !s.closed}
		if x.counted {
			s.underWay.Add(1)
		}
		s.mu.Unlock()
		var parts []*storage.Read
		if err == nil {
			parts = x.split(o)
		}
		if len(parts) == 0 { // an error, or nothing of a file
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

// split fills what is of no file, and gives the reads of files that are left.
func (x *reading) split(o *object) (reads []*storage.Read) {
	buf, from := x.read.Buf, x.read.OffsetBytes-int64(len(o.prologue)) // of the records
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
		// Rows first … last have bytes in the range: from skip of the first, up to end of
		// the last.
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

// of is a read of a part's file, rowsOffset bytes behind where its rows begin.
func (x *reading) of(p *part, rowsOffset int64, buf []byte) *storage.Read {
	r := &storage.Read{Object: p.file, OffsetBytes: p.offsetBytes + rowsOffset, Buf: buf, Done: x.done}
	if x.read.Wanted != nil {
		r.Wanted = x.wanted
	}
	return r
}

// wanted asks the submitter, who is asked no more when it has said no.
func (x *reading) wanted() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.unwanted && !x.read.Wanted() {
		x.unwanted = true
	}
	return !x.unwanted
}

// done is called for each read of a file, and tells the submitter after the last.
func (x *reading) done(err error) {
	if err != nil {
		x.failed.CompareAndSwap(nil, &err)
	}
	if x.pending.Add(-1) > 0 {
		return
	}
	if x.counted {
		defer x.storage.underWay.Done()
	}
	r := x.read
	x.mu.Lock()
	unwanted := x.unwanted // whatever else went wrong
	x.mu.Unlock()
	switch failed := x.failed.Load(); {
	case unwanted:
		r.Done(storage.ErrUnwanted)
	case failed != nil:
		r.Done(&storage.Error{Object: r.Object.Path, OffsetBytes: r.OffsetBytes, SizeBytes: int64(len(r.Buf)), Err: *failed})
	default:
		for i := range x.layouts {
			x.layouts[i].spread(x.out)
		}
		r.Done(nil)
	}
}

// spread copies the rows to their places in out.
func (l *layout) spread(out []byte) {
	rows, at, n := l.rows, l.first+l.skipped, l.rowBytes-l.skipped
	for len(rows) > 0 {
		n = min(n, int64(len(rows)))
		copy(out[at:], rows[:n])
		rows, at, n = rows[n:], at+n+l.recordBytes-l.rowBytes, l.rowBytes
	}
}
