package fileset

import (
	"fmt"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// reading is a read in progress. It is reused, so that reading allocates nothing.
type reading struct {
	read     *storage.Read
	accepted bool // submitted before Close
	table    *table
	segment  segment
	files    [2]int       // the first file that overlaps the range, and the one after the last
	pending  atomic.Int32 // jobs that are not done
	failed   atomic.Pointer[error]
}

// job is a read that has not been looked up yet (to is 0), or the files from … to-1 of one.
type job struct {
	reading  *reading
	from, to int
	missed   bool // not in the kernel's memory; one file, for which the worker may have to wait
}

// jobFiles is the most files in a job: the rest of a large read is left to other goroutines,
// because each open may wait for a disk.
const jobFiles = 8

// Submit implements storage.Storage.
func (s *Storage) Submit(reads []*storage.Read) {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := s.inflight.Begin(len(reads))
	for _, r := range reads {
		x := s.newReading()
		x.read, x.accepted, x.table = r, open, s.table
		if x.table != nil {
			x.table.hold()
		}
		x.pending.Store(1)
		s.jobs.push(job{reading: x})
	}
	s.start()
}

// newReading returns a free reading. s.mu is held.
func (s *Storage) newReading() *reading {
	n := len(s.readings)
	if n == 0 {
		return new(reading)
	}
	x := s.readings[n-1]
	s.readings = s.readings[:n-1]
	return x
}

// miss leaves a file to the waiters.
func (s *Storage) miss(j job) {
	j.reading.pending.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missed.push(j)
	s.start()
}

// begin finds the files of a read, and returns a job for the first ones; the others become separate
// jobs.
func (s *Storage) begin(o *opener, x *reading) (job, error) {
	r := x.read
	if !x.accepted {
		return job{}, storage.ErrClosed
	}
	err := r.Check()
	switch {
	case err != nil:
		return job{}, err
	case x.table == nil:
		return job{}, fmt.Errorf("nothing was listed: %w", storage.ErrChanged)
	case r.Wanted != nil && !r.Wanted():
		return job{}, storage.ErrUnwanted
	}
	if x.segment, err = o.find(x.table, r.Object); err != nil {
		return job{}, err
	}
	from, to, err := x.table.locate(&x.segment, r.OffsetBytes, int64(len(r.Buf)), -1)
	if err != nil {
		return job{}, err
	}
	x.files = [2]int{from, to}
	first := job{reading: x, from: from, to: min(from+jobFiles, to)}
	if first.to < to {
		s.mu.Lock()
		defer s.mu.Unlock()
		for at := first.to; at < to; at += jobFiles {
			x.pending.Add(1)
			s.parts.push(job{reading: x, from: at, to: min(at+jobFiles, to)})
		}
		s.start()
	}
	return first, nil
}

// file fills file i's part of a read's buffer: header, contents, zeros. If it must not wait it may
// fail with errMissed.
func (o *opener) file(x *reading, i int, waits bool) error {
	r := x.read
	found, err := o.lookUp(x.table, &x.segment, i)
	if err != nil {
		o.at([]byte("(unknown)"))
		return err
	}
	f, path := &found, o.path[:len(o.path)-1]
	if i == x.files[0] && f.offset > r.OffsetBytes || i == x.files[1]-1 && f.end < r.OffsetBytes+int64(len(r.Buf)) {
		return x.table.damaged() // the range of files was looked up unchecked
	}
	// part returns the bytes of the buffer between two offsets in the object, and how many bytes of
	// that range are before them.
	part := func(from, to int64) (p []byte, skipped int64) {
		low, high := max(from, r.OffsetBytes), min(to, r.OffsetBytes+int64(len(r.Buf)))
		if low >= high {
			return nil, 0
		}
		return r.Buf[low-r.OffsetBytes : high-r.OffsetBytes], low - from
	}
	contents := f.offset + o.storage.framing.HeaderBytes(len(path), f.size)
	if p, skipped := part(f.offset, contents); len(p) > 0 {
		o.header = o.storage.framing.AppendHeader(o.header[:0], path, f.size)
		copy(p, o.header[skipped:])
	}
	p, _ := part(contents+f.size, f.end)
	clear(p)
	p, skipped := part(contents, contents+f.size)
	if len(p) == 0 && f.size > 0 {
		return nil
	}
	return o.contents(f, p, skipped, waits)
}

func (x *reading) fail(err error) { x.failed.CompareAndSwap(nil, &err) }

// end counts a job as done, and reports to the read's submitter after the last one.
func (s *Storage) end(x *reading) {
	if x.pending.Add(-1) > 0 {
		return
	}
	r := x.read
	var err error
	if failed := x.failed.Load(); failed != nil {
		err = *failed
	}
	if x.table != nil {
		x.table.drop()
	}
	x.read, x.table, x.segment = nil, nil, segment{}
	x.failed.Store(nil)
	r.Done(r.Failure(err))
	s.mu.Lock()
	s.readings = append(s.readings, x)
	s.mu.Unlock()
	s.inflight.End()
}
