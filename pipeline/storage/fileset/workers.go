package fileset

import (
	"fmt"

	"github.com/lsiofs/lsiofs/uring"
)

// worker is a goroutine that reads files: a looker, or a waiter, which may wait for a disk.
type worker = uring.Worker[fileKey, job]

// fileKey identifies a file by its directory's path and its number in there.
type fileKey struct {
	path string
	i    int
}

// hire makes the crews of lookers and waiters.
func (s *Storage) hire() {
	s.pool = uring.NewPool[fileKey, job](&s.mu)
	s.lookers = s.pool.AddCrew(&uring.Crew[fileKey, job]{Most: s.mostLookers, Do: s.do, Begins: s.begins, Ends: s.ends, Batch: takenJobs, Yields: true})
	s.waiters = s.pool.AddCrew(&uring.Crew[fileKey, job]{Most: func() int { return s.most }, Do: s.do, Begins: s.begins, Ends: s.ends, Batch: takenJobs})
}

// begins gives a worker an opener.
func (s *Storage) begins(w *worker) {
	o, _ := s.openers.Get().(*opener)
	if o == nil {
		o = &opener{storage: s}
	}
	w.Local = o
}

// ends takes it back.
func (s *Storage) ends(w *worker) {
	s.openers.Put(w.Local)
	w.Local = nil
}

// mostLookers returns the most lookers at a time. As many as cores keep these busy while the kernel
// has everything in memory; if it can't report that, each goroutine may have to wait for a disk.
func (s *Storage) mostLookers() int {
	if s.blind.Load() {
		return s.most
	}
	return min(s.cores, s.most)
}

// takenJobs is the most jobs that a goroutine takes at a time: taking the lock costs a twentieth of
// a small read.
const takenJobs = uring.MaxBatch

// do reads the files of a job.
func (s *Storage) do(w *worker, j job) {
	o, x := w.Local.(*opener), j.reading
	if j.to == 0 {
		var err error
		w.Begin(fileKey{}, nil)
		j, err = s.begin(o, x)
		w.End()
		if err != nil {
			x.fail(err)
			s.end(x)
			return
		}
	}
	o.enter(x.read.Object.Path)
	for ; j.from < j.to && x.failed.Load() == nil; j.from++ {
		i, key := j.from, fileKey{x.read.Object.Path, j.from}
		if w.Park(key, j) {
			s.count(o)
			return
		}
		w.Begin(key, nil)
		if s.before != nil {
			s.before(key)
		}
		switch err := o.file(x, i, j.missed || s.blind.Load()); {
		case err == errMissed:
			s.miss(job{reading: x, from: i, to: i + 1, missed: true})
		case err != nil:
			x.fail(fmt.Errorf("%s: %w", o.path[:len(o.path)-1], err))
			s.errors.Add(1)
		}
		w.End()
	}
	s.count(o)
	s.end(x)
}

// count adds an opener's counts to the storage's.
func (s *Storage) count(o *opener) {
	s.reads.Add(o.reads)
	s.bytes.Add(o.bytes)
	o.reads, o.bytes = 0, 0
}
