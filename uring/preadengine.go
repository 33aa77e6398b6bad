package uring

import (
	"sync"

	"golang.org/x/sys/unix"
)

// maxPreaders is how many preads run at a time. A pool of 32 was measured to
// reach 0.92–1.0 of a ring's throughput for reads of 128 KiB and more.
const maxPreaders = 32

// preadReader reads with blocking preads on goroutines that start when there
// is work for them, and stay until close.
type preadReader struct {
	*counters
	blocks blocks

	mu       sync.Mutex
	work     sync.Cond // waiting grew, or closed was set
	waiting  queue
	preaders int // goroutines there are
	idle     int // of them, those that will look into waiting next
	closed   bool
	running  sync.WaitGroup // the goroutines
}

var _ reader = (*preadReader)(nil)

func openPread(reason string) *engine {
	c := &counters{}
	p := &preadReader{counters: c}
	p.work.L = &p.mu
	return newEngine(string(ModePread), reason, c, p)
}

func (p *preadReader) submit(jobs []job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting.push(jobs...)
	for range min(p.idle, len(jobs)) {
		p.work.Signal()
	}
	for p.preaders < maxPreaders && p.idle < p.waiting.len() {
		p.preaders++
		p.idle++
		p.running.Go(p.read)
	}
}

// read is one goroutine of the pool. After close it ends when nothing waits.
func (p *preadReader) read() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		for p.waiting.len() == 0 {
			if p.closed {
				return
			}
			p.work.Wait()
		}
		p.idle--
		j := p.waiting.pop()
		p.mu.Unlock()
		p.one(j)
		p.mu.Lock()
		p.idle++
	}
}

func (p *preadReader) one(j job) {
	err := j.request.begin()
	if err != nil {
		p.complete(j.request, 0, err)
		return
	}
	if !(j.direct && p.readDirectly(&j)) {
		var more int
		more, err = pread(j.request.fd(), j.rest(), j.off())
		j.n += more
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
