package fileset

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// stuckAfter is how long a file may take before it counts as one that may never be read, so
	// that another may be read in addition. This does not affect a file that is merely slow.
	stuckAfter = time.Second

	// maxStuck bounds the threads and open files of such reads.
	maxStuck = 512

	// maxStuckOfFile is the number of stuck reads of one file after which no more of its reads are
	// started, so that one file that hangs does not use up all threads.
	maxStuckOfFile = 4
)

// queue is a FIFO of jobs that reuses its memory.
type queue struct {
	items []job
	head  int
}

func (q *queue) len() int { return len(q.items) - q.head }

func (q *queue) push(j job) {
	if q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, j)
}

// pop removes and returns the oldest job; there must be one.
func (q *queue) pop() job {
	j := q.items[q.head]
	q.items[q.head] = job{}
	q.head++
	return j
}

// workers is the goroutines for one kind of job: lookers, or waiters, which may wait for a disk. It
// is guarded by Storage.mu.
type workers struct {
	waits   bool
	members int // except stuck ones
	coming  int // members that were started and have not yet looked for a job
}

// worker is one goroutine of a crew. Workers are reused.
type worker struct {
	crew  *workers
	taken [takenJobs]job
	n     int          // number of taken jobs
	next  atomic.Int32 // index in taken of the next job; later jobs may be given to other workers

	mu    sync.Mutex // may be taken with Storage.mu held
	file  fileKey    // being read; the zero value if not known yet
	busy  bool
	count uint64 // files so far
	seen  uint64 // count at the last look
	stuck bool   // not counted as a member
}

// fileKey identifies a file by its directory's path and its number in there.
type fileKey struct {
	path string
	i    int
}

// stall is the state of a file that hangs. It is guarded by Storage.mu.
type stall struct {
	stuck  int   // workers
	parked []job // until one of the stuck workers is done
}

// start starts goroutines for waiting jobs: one for each job without a free goroutine, within the
// limits of the crews. s.mu is held.
func (s *Storage) start() {
	for _, c := range []*workers{&s.lookers, &s.waiters} {
		for c.members < s.mostOf(c) && c.coming < s.left(c) {
			c.members++
			c.coming++
			w := &worker{}
			if n := len(s.spare); n > 0 {
				w, s.spare = s.spare[n-1], s.spare[:n-1]
			}
			w.crew = c
			s.workers[w] = struct{}{}
			go s.work(w)
		}
	}
	if len(s.workers) > 0 && !s.watching {
		s.watching = true
		if s.watch == nil {
			s.watch = time.AfterFunc(s.stuckAfter, s.look)
		} else {
			s.watch.Reset(s.stuckAfter)
		}
	}
}

// left returns how many jobs wait for a crew.
func (s *Storage) left(c *workers) int {
	if c.waits {
		return s.missed.len()
	}
	return s.parts.len() + s.jobs.len()
}

// mostOf returns the most goroutines that a crew may have. As many lookers as cores keep these busy
// while the kernel has everything in memory; if it can't report that, each goroutine may have to
// wait for a disk.
func (s *Storage) mostOf(c *workers) int {
	if c.waits || s.blind.Load() {
		return s.most
	}
	return min(s.cores, s.most)
}

// takenJobs is the most jobs that a goroutine takes at a time: taking the lock costs a twentieth of
// a small read.
const takenJobs = 4

// work does jobs until there are none left. Close waits for it.
func (s *Storage) work(w *worker) {
	o, _ := s.openers.Get().(*opener)
	if o == nil {
		o = &opener{storage: s}
	}
	defer s.openers.Put(o)
	for first := true; s.take(w, first); first = false {
		for {
			i := int(w.next.Add(1)) - 1
			if i >= w.n {
				break
			}
			j := w.taken[i]
			w.taken[i] = job{}
			s.do(o, w, j)
		}
		if !w.crew.waits {
			// System calls that don't wait keep the processor for 10 ms, which would delay the
			// readers of completed reads.
			runtime.Gosched()
		}
	}
}

// take gives a goroutine its share of the jobs. If there are none, or more members than allowed, as
// after many were stuck, it removes the goroutine from the crew and returns false.
func (s *Storage) take(w *worker, first bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := w.crew
	if first {
		c.coming--
	}
	lists := []*queue{&s.parts, &s.jobs}
	if c.waits {
		lists = []*queue{&s.missed}
	}
	share := min(max(s.left(c)/max(c.members, 1), 1), s.taken)
	w.n = 0
	for _, list := range lists {
		for c.members <= s.mostOf(c) && w.n < share && list.len() > 0 {
			w.taken[w.n] = list.pop()
			w.n++
		}
	}
	w.next.Store(0)
	if w.n > 0 {
		return true
	}
	c.members--
	delete(s.workers, w)
	s.spare = append(s.spare, w)
	if len(s.workers) == 0 {
		s.quiet.Broadcast()
	}
	return false
}

func (s *Storage) do(o *opener, w *worker, j job) {
	x := j.reading
	if j.to == 0 {
		var err error
		w.begin(fileKey{})
		j, err = s.begin(o, x)
		s.ended(w)
		if err != nil {
			x.fail(err)
			s.end(x)
			return
		}
	}
	o.enter(x.read.Object.Path)
	for ; j.from < j.to && x.failed.Load() == nil; j.from++ {
		i, key := j.from, fileKey{x.read.Object.Path, j.from}
		if s.stuck.Load() > 0 && s.park(key, j) {
			s.count(o)
			return
		}
		w.begin(key)
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
		s.ended(w)
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

// begin records that a worker begins a file.
func (w *worker) begin(key fileKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.file, w.busy = key, true
	w.count++
}

// ended records that a worker is done with its file, and makes it a member again if it was stuck.
func (s *Storage) ended(w *worker) {
	w.mu.Lock()
	w.busy = false
	stuck := w.stuck
	w.mu.Unlock()
	if !stuck {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w.mu.Lock()
	w.stuck = false
	w.mu.Unlock()
	s.stuck.Add(-1)
	w.crew.members++
	if st := s.stalls[w.file]; st != nil {
		for _, j := range st.parked {
			if j.missed {
				s.missed.push(j)
			} else {
				s.parts.push(j)
			}
		}
		st.parked = nil
		if st.stuck--; st.stuck == 0 {
			delete(s.stalls, w.file)
		}
	}
	s.start()
}

// park reports whether a file hangs for many workers already; if so it keeps the job until one of
// these is done.
func (s *Storage) park(key fileKey, j job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stalls[key]
	if st == nil || st.stuck < maxStuckOfFile {
		return false
	}
	st.parked = append(st.parked, j)
	return true
}

// look is called periodically while there are workers. A worker that has been busy with one file
// since the last call is stuck: it no longer counts, so that others may start, and the other jobs
// that it has taken are given to them.
func (s *Storage) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.workers {
		w.mu.Lock()
		stuck := w.busy && !w.stuck && w.count == w.seen && s.stuck.Load() < s.mostStuck
		w.seen, w.stuck = w.count, w.stuck || stuck
		w.mu.Unlock()
		if !stuck {
			continue
		}
		s.stuck.Add(1)
		w.crew.members--
		if s.stalls[w.file] == nil {
			s.stalls[w.file] = &stall{}
		}
		s.stalls[w.file].stuck++
		for i := int(w.next.Swap(takenJobs)); i < w.n; i++ {
			if j := w.taken[i]; j.missed {
				s.missed.push(j)
			} else if j.to > 0 {
				s.parts.push(j)
			} else {
				s.jobs.push(j)
			}
			w.taken[i] = job{}
		}
	}
	s.start()
	if s.watching = len(s.workers) > 0; s.watching {
		s.watch.Reset(s.stuckAfter)
	}
}
