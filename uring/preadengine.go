package uring

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxPreaders bounds concurrent preads. A pool of 32 was measured to reach 0.92–1.0 of a ring's
	// throughput for reads of 128 KiB and more.
	maxPreaders = 32

	// stuckAfter is the time after which a pread is assumed to never end, and another may run in
	// its place. This does no harm if the read is merely slow.
	stuckAfter = time.Second

	// maxStuck bounds the threads that such preads hold.
	maxStuck = 512

	// maxStuckOfFile is the number of stuck preads of a File from which on no more of its reads are
	// started, so that a file that stalls does not take all threads.
	maxStuckOfFile = 4
)

// preadReader reads with blocking preads on goroutines that start when there is work for them, and
// stay until close.
type preadReader struct {
	*counters
	blocks blocks

	mu       sync.Mutex
	work     sync.Cond // waiting grew, or closed was set
	waiting  queue
	preaders int // number of goroutines, except stuck ones
	idle     int // number of them that will look into waiting next
	stuck    int // preads that take longer than stuckAfter
	parked   int // jobs of stalling Files
	closed   bool
	running  sync.WaitGroup // the goroutines
}

// stall is the state of a File in a preadReader.
type stall struct {
	stuck  int   // number of stuck preads
	parked []job // jobs that wait until one of these ends
}

// preader is one goroutine of the pool. All of it is protected by the pool's lock.
type preader struct {
	timer   *time.Timer
	reading bool
	file    *File // the File being read, or nil
	stuck   bool  // it is not counted in the pool
}

var _ reader = (*preadReader)(nil)

func openPread(reason string) *engine {
	p := newPreadReader(&counters{})
	return newEngine(string(ModePread), reason, p.counters, p, p)
}

func newPreadReader(c *counters) *preadReader {
	p := &preadReader{counters: c}
	p.work.L = &p.mu
	return p
}

func (p *preadReader) submit(jobs []job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting.push(jobs...)
	for range min(p.idle, len(jobs)) {
		p.work.Signal()
	}
	p.start()
}

// start starts goroutines for waiting jobs. The caller must hold p.mu.
func (p *preadReader) start() {
	for p.preaders < maxPreaders && p.idle < p.waiting.len() {
		p.preaders++
		p.idle++
		p.running.Go(p.read)
	}
}

// read is one goroutine of the pool. After close it ends when nothing is waiting or parked: while
// jobs are parked, a stuck pread will wake it when it ends.
func (p *preadReader) read() {
	x := &preader{}
	x.timer = time.AfterFunc(stuckAfter, func() { p.getsStuck(x) })
	defer x.timer.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for p.waiting.len() == 0 {
			if p.closed && p.parked == 0 {
				return
			}
			p.work.Wait()
		}
		j := p.waiting.pop()
		if f := j.request.File; f != nil && f.stall.stuck >= maxStuckOfFile {
			f.stall.parked = append(f.stall.parked, j)
			p.parked++
			continue
		}
		p.idle--
		x.reading, x.file = true, j.request.File
		x.timer.Reset(stuckAfter)
		p.mu.Unlock()
		p.one(j)
		x.timer.Stop()
		p.mu.Lock()
		if !p.ended(x) {
			return
		}
		p.idle++
	}
}

// getsStuck counts a goroutine out whose pread does not end: another may start.
func (p *preadReader) getsStuck(x *preader) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !x.reading || x.stuck || p.stuck >= maxStuck {
		return
	}
	x.stuck = true
	p.stuck++
	p.counters.stuck.Add(1)
	p.preaders--
	if f := x.file; f != nil {
		f.stall.stuck++
	}
	p.start()
}

// ended is called after a pread, and reports whether its goroutine is still needed.
func (p *preadReader) ended(x *preader) bool {
	f := x.file
	x.reading, x.file = false, nil
	if !x.stuck {
		return true
	}
	x.stuck = false
	p.stuck--
	p.counters.stuck.Add(-1)
	if f != nil {
		f.stall.stuck--
		p.waiting.push(f.stall.parked...)
		p.parked -= len(f.stall.parked)
		f.stall.parked = nil
	}
	p.work.Broadcast() // for what was parked, or to end
	if p.preaders == maxPreaders {
		return false
	}
	p.preaders++
	return true
}

func (p *preadReader) one(j job) {
	err := j.request.begin()
	if err != nil {
		p.complete(j.request, 0, err)
		return
	}
	if f := j.request.File; f != nil && f.remote {
		j.direct = f.readsDirectly(p.counters, j.off(), len(j.rest()))
	}
	if !(j.direct && p.readDirectly(&j)) {
		var more int
		more, err = pread(j.request.fd(), j.rest(), j.off())
		j.n += more
	}
	if f := j.request.File; f != nil && f.remote && err == nil {
		p.remote.Add(1)
	}
	p.end(j.request, j.n, err)
}

// readDirectly reads a job without the page cache. If it returns false, the rest must be read as
// usual.
func (p *preadReader) readDirectly(j *job) (ended bool) {
	d := j.request.File.direct.Load()
	var block []byte
	defer func() { p.blocks.give(block) }()
	for len(j.rest()) > 0 {
		var got int
		var err error
		if n := d.straight(j.off(), j.rest()); n > 0 {
			got, err = preadOnce(d.fd, j.rest()[:n], j.off())
		} else {
			if block == nil {
				// There is one for each goroutine, if there are any.
				if block, _ = p.blocks.take(); block == nil {
					return false
				}
			}
			next := directPart(d, j)
			got, err = preadOnce(d.fd, block[:next.size], next.off)
			short := got > 0
			got = next.deliver(j, block, got)
			if short && got == 0 && !endsBefore(j.request.fd(), j.off()) {
				return false // it ended before the first wanted byte
			}
		}
		if err != nil {
			if refusesDirect(err) {
				p.refuse(j.request.File, refusedAtRead)
			}
			return false // the plain read will return the error
		}
		if got == 0 {
			break // the file ends here
		}
		j.n += got
	}
	p.direct.Add(1)
	return true
}

// refusesDirect reports whether an error means that a file can't be read directly.
func refusesDirect(err error) bool { return err == unix.EINVAL || err == unix.EOPNOTSUPP }

func (p *preadReader) close() error {
	p.mu.Lock()
	p.closed = true
	p.work.Broadcast()
	p.mu.Unlock()
	p.running.Wait()
	return p.blocks.close()
}
