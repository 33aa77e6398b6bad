package local

import (
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

const (
	// maxOpeners is how many files are opened at a time: each open may wait for a disk. Opening
	// through a ring was measured with 100 000 small files. With data in the kernel's memory it
	// took 30 % less CPU but 30 % longer, because a ring uses one core; from disk it took 10 to 20
	// % more CPU and 15 to 40 % longer, because the kernel uses threads of its own.
	maxOpeners = 16

	// stuckAfter is when a system call of an opener counts as one that may never end, so that
	// another opener may start. This does not affect a call that is merely slow.
	stuckAfter = time.Second

	// maxStuck bounds the threads held by such calls.
	maxStuck = 512
)

// job is work for an opener: a file to open, a file to map, a file to close, or a read that failed
// at once.
type job struct {
	file *file

	object storage.Object
	mapped func(storage.Mapping, error)

	closing *uring.File

	read *storage.Read
	err  error
}

// opener is one goroutine. It is guarded by Storage.mu.
type opener struct {
	storage *Storage
	timer   *time.Timer
	waiting bool // in a system call that may never end
	stuck   bool // not counted as an opener
	gone    func(stuck bool)
}

// start hands jobs to the openers, and starts more openers if needed. It may be called with the
// lock of the file cache held.
func (s *Storage) start(jobs []job) {
	if len(jobs) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs = append(s.jobs, jobs...)
	s.startOpeners(len(jobs))
}

// startOpeners starts up to n more openers. s.mu is held.
func (s *Storage) startOpeners(n int) {
	for range min(n, maxOpeners-s.openers) {
		s.openers++
		go s.work()
	}
}

// work runs an opener. It ends when there are no jobs left; Close waits for it.
func (s *Storage) work() {
	x := &opener{storage: s}
	x.timer = time.AfterFunc(s.stuckAfter, x.getsStuck)
	x.timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.jobs) > 0 && s.openers <= maxOpeners {
		j := s.jobs[0]
		s.jobs[0] = job{}
		s.jobs = s.jobs[1:]
		s.mu.Unlock()
		switch {
		case j.file != nil:
			s.open(x, j.file)
		case j.mapped != nil:
			s.mapObject(x, j)
		case j.closing != nil:
			x.waits(nil, func() { _ = j.closing.Close() })
			s.files.hasClosed()
		default:
			s.done(j.read, j.err)
		}
		s.mu.Lock()
	}
	if len(s.jobs) == 0 {
		s.jobs = nil
	}
	s.openers--
	if s.openers+s.stuck == 0 {
		s.quiet.Broadcast()
	}
}

// waits makes system calls that may never end. If they take so long that the opener stops counting,
// gone(true) is called, and gone(false) once they have ended.
func (x *opener) waits(gone func(stuck bool), calls func()) {
	s := x.storage
	s.mu.Lock()
	x.waiting, x.gone = true, gone
	s.mu.Unlock()
	x.timer.Reset(s.stuckAfter)
	calls()
	x.timer.Stop()
	s.mu.Lock()
	stuck := x.stuck
	x.waiting, x.stuck, x.gone = false, false, nil
	if stuck {
		s.stuck--
		s.openers++ // if there are too many now, this one ends after its job
	}
	s.mu.Unlock()
	if stuck && gone != nil {
		gone(false)
	}
}

// getsStuck stops counting an opener whose system call does not end, so that another may start.
func (x *opener) getsStuck() {
	s := x.storage
	s.mu.Lock()
	if !x.waiting || x.stuck || s.stuck >= maxStuck {
		s.mu.Unlock()
		return
	}
	x.stuck = true
	s.stuck++
	s.openers--
	s.startOpeners(len(s.jobs))
	gone := x.gone
	s.mu.Unlock()
	if gone != nil {
		gone(true)
	}
}

// open opens a file and starts the reads that waited for it.
func (s *Storage) open(x *opener, f *file) {
	waiting, err := s.files.openFile(x, f, s.policy())
	requests := make([]*uring.Request, 0, len(waiting))
	for _, r := range waiting {
		if err != nil {
			s.done(r, err)
			continue
		}
		requests = append(requests, s.request(f, r))
	}
	if len(requests) > 0 {
		s.engine.Submit(requests)
	}
}
