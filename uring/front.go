package uring

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
)

const (
	// lookupBatch is how many requests a looker takes at a time: a lock costs a tenth of a small
	// read, and other lookers should get a part of a burst.
	lookupBatch = 16

	// lookerBytes is the amount of work that is worth a looker of its own. Starting one takes as
	// long as copying about 16 KiB.
	lookerBytes = 128 << 10
)

// reader is what an engine reads with if a request must wait for a disk.
type reader interface {
	// submit takes jobs over; the slice belongs to the caller again afterwards. It never waits, and
	// never completes a job before it returns.
	submit(jobs []job)
	// close waits for all jobs and frees what the reader holds.
	close() error
}

// engine is both engines: requests of Files are first looked up in the page cache, by a few
// goroutines that last as long as there is something to do. What they don't find there, and all
// other requests, go to the reader.
type engine struct {
	name, reason string
	reader       reader
	threads      *preadReader // reads Remote files; may be the reader
	*counters

	mu       sync.Mutex
	waiting  queue
	bytes    int            // total size of waiting
	lookers  int            // number of lookers that are not in a read that may wait
	most     int            // bound on lookers
	passing  []job          // of one Submit, for the reader: not looked up in the page cache
	remote   []job          // of one Submit, for threads
	closed   atomic.Bool    // set under mu
	looking  sync.WaitGroup // lookers
	once     sync.Once
	closeErr error
}

var _ Engine = (*engine)(nil)

func newEngine(name, reason string, c *counters, r reader, threads *preadReader) *engine {
	return &engine{name: name, reason: reason, reader: r, threads: threads, counters: c, most: runtime.GOMAXPROCS(0)}
}

func (e *engine) Submit(requests []*Request) {
	if len(requests) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed.Load() {
		refuse(requests)
		return
	}
	e.submitted(requests)
	for _, r := range requests {
		j := job{request: r}
		if r.File == nil || r.check() != nil {
			e.passing = append(e.passing, j)
			continue
		}
		if r.File.remote {
			e.remote = append(e.remote, j)
			continue
		}
		if j.direct = r.File.alwaysDirect(); j.direct {
			e.passing = append(e.passing, j)
			continue
		}
		e.waiting.push(j)
		e.bytes += len(r.Buf)
	}
	for e.lookers < e.most && e.lookers < e.waiting.len() && e.lookers*lookerBytes < e.bytes {
		e.lookers++
		e.looking.Go(e.look)
	}
	e.passing = hand(e.reader, e.passing)
	e.remote = hand(e.threads, e.remote)
}

// hand submits jobs, and returns their memory for reuse.
func hand(to reader, jobs []job) []job {
	if len(jobs) > 0 {
		to.submit(jobs)
		clear(jobs)
	}
	return jobs[:0]
}

// look is a looker. It ends when nothing is waiting.
func (e *engine) look() {
	var batch, missed [lookupBatch]job
	var room [lookupBatch]ended
	answered := ending{reads: room[:0]}
	for {
		n := e.take(&batch)
		if n == 0 {
			return
		}
		left := missed[:0]
		for i := range batch[:n] {
			if err := batch[i].request.begin(); err != nil {
				e.complete(batch[i].request, 0, err)
			} else if !e.answer(&batch[i], &answered) {
				left = append(left, batch[i])
			} else if answered.bytes >= lookerBytes {
				answered.complete(e.counters)
			}
		}
		answered.complete(e.counters)
		clear(batch[:n])
		switch {
		case len(left) == 1 && e.inFlight.Load() == 1 && !left[0].direct:
			// Nothing else is to be read: a ring would only be a detour.
			if !e.readAlone(left[0]) {
				return
			}
		case len(left) > 0:
			e.reader.submit(left)
		}
		clear(left)
	}
}

// take gives a looker its share of the waiting jobs. If that is none, it counts the looker out.
func (e *engine) take(batch *[lookupBatch]job) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	share := (e.waiting.len() + e.lookers - 1) / e.lookers
	n := min(share, lookupBatch)
	for i := range n {
		batch[i] = e.waiting.pop()
		e.bytes -= len(batch[i].request.Buf)
	}
	if n == 0 {
		e.lookers--
	}
	return n
}

// answer reads a job from the page cache, if it should be looked up there and all of it is found.
// Otherwise it sets how the rest is read.
func (e *engine) answer(j *job, answered *ending) bool {
	r := j.request
	if j.direct = r.File.readsDirectly(e.counters, r.OffsetBytes, len(r.Buf)); j.direct {
		return false
	}
	n, full := r.File.readCached(r.Buf, r.OffsetBytes)
	j.n = n
	if full {
		e.cached.Add(1)
		answered.add(r, n, nil)
	}
	return full
}

// ReadNow looks up like answer, but returns false for direct reads.
func (e *engine) ReadNow(r *Request) bool {
	if r.File == nil || r.File.remote || r.check() != nil || e.closed.Load() || r.File.wantsDirect(e.counters, r.OffsetBytes, len(r.Buf)) {
		return false
	}
	n, full := r.File.readCached(r.Buf, r.OffsetBytes)
	if !full || r.File.verify != nil && r.File.verify() != nil {
		return false
	}
	e.cached.Add(1)
	e.reads.Add(1)
	e.readBytes.Add(uint64(n))
	return true
}

// readAlone reads the only request, so that its looker may wait: others may be started meanwhile.
// It reports whether the looker should continue.
func (e *engine) readAlone(j job) bool {
	e.mu.Lock()
	e.lookers--
	e.mu.Unlock()
	more, err := pread(j.request.fd(), j.rest(), j.off())
	e.end(j.request, j.n+more, err)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lookers >= e.most {
		return false
	}
	e.lookers++
	return true
}

func (e *engine) Status() Status { return e.status(e.name, e.reason) }

func (e *engine) Close() error {
	e.once.Do(func() {
		e.mu.Lock()
		e.closed.Store(true)
		e.mu.Unlock()
		e.looking.Wait()
		e.closeErr = e.reader.close()
		if e.threads != e.reader {
			e.closeErr = errors.Join(e.closeErr, e.threads.close())
		}
	})
	return e.closeErr
}
