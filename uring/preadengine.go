package uring

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxPreaders is how many preads run at a time. A pool of 32 was measured to
	// reach 0.92–1.0 of a ring's throughput for reads of 128 KiB and more.
	maxPreaders = 32

	// stuckAfter is from when on a pread is taken for one that may never end, and
	// another may run beside it. A slow read is none the worse for it.
	stuckAfter = time.Second

	// maxStuck bounds the threads that such preads hold.
	maxStuck = 512

	// maxStuckOfFile is with how many of a File no more of its reads are begun: so
	// that one which stalls does not take all threads.
	maxStuckOfFile = 4
)

// preadReader reads with blocking preads on goroutines that start when there
// is work for them, and stay until close.
type preadReader struct {
	*counters
	blocks blocks

	mu       sync.Mutex
	work     sync.Cond // waiting grew, or closed was set
	waiting  queue
	preaders int // goroutines there are, but for stuck ones
	idle     int // of them, those that will look into waiting next
	stuck    int // preads for longer than stuckAfter
	parked   int // jobs of Files that stall
	closed   bool
	running  sync.WaitGroup // the goroutines
}

// stall is what a preadReader knows of a File that stalls, or not.
type stall struct {
	stuck  int   // preads
	parked []job // until one of these ends
}

// preader is one goroutine of the pool. All is under the pool's lock.
type preader struct {
	timer   *time.Timer
	reading bool
	file    *File // that is read, or nil
	stuck   bool  // it does not count as one of the pool
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

// start starts goroutines for what waits. p.mu is held.
func (p *preadReader) start() {
	for p.preaders < maxPreaders && p.idle < p.waiting.len() {
		p.preaders++
		p.idle++
		p.running.Go(p.read)
	}
}

// read is one goroutine of the pool. After close it ends when nothing waits, and
// nothing is parked: then somebody is stuck, who will tell.
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

// ended is called after a pread, and says whether its goroutine is still wanted.
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

// readDirectly reads a job without the page cache. That it has not ended then
// says that the rest is to be read as usual.
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
				return false // it came short of the first byte that is wanted
			}
		}
		if err != nil {
			if refusesDirect(err) {
				p.refuse(j.request.File, refusedAtRead)
			}
			return false // whatever it was, the plain read will say it
		}
		if got == 0 {
			break // the file ends here
		}
		j.n += got
	}
	p.direct.Add(1)
	return true
}

// refusesDirect says that an error means a file that can't be read directly.
func refusesDirect(err error) bool { return err == unix.EINVAL || err == unix.EOPNOTSUPP }

func (p *preadReader) close() error {
	p.mu.Lock()
	p.closed = true
	p.work.Broadcast()
	p.mu.Unlock()
	p.running.Wait()
	return p.blocks.close()
}
