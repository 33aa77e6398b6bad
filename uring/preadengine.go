package uring

import (
	"sync"

	"golang.org/x/sys/unix"
)

// maxPreaders bounds concurrent preads, except stuck ones. A pool of 32 was measured to reach
// 0.92–1.0 of a ring's throughput for reads of 128 KiB and more.
const maxPreaders = 32

// preadReader reads with blocking preads on goroutines that start when there is work for them, and
// stay until close.
type preadReader struct {
	*counters
	blocks blocks

	mu      sync.Mutex
	pool    *Pool[*File, job]
	readers *Crew[*File, job]
}

var _ reader = (*preadReader)(nil)

func openPread(reason string) *engine {
	p := newPreadReader(&counters{})
	return newEngine(string(ModePread), reason, p.counters, p, p)
}

func newPreadReader(c *counters) *preadReader {
	p := &preadReader{counters: c}
	p.pool = NewPool[*File, job](&p.mu)
	p.readers = p.pool.AddCrew(&Crew[*File, job]{Most: func() int { return maxPreaders }, Do: p.read, Batch: 1, Stays: true})
	return p
}

func (p *preadReader) submit(jobs []job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readers.Push(jobs...)
	p.pool.Start()
}

// read does a job in the pool.
func (p *preadReader) read(w *Worker[*File, job], j job) {
	f := j.request.File
	if w.Park(f, j) {
		return
	}
	w.Begin(f, nil)
	p.one(j)
	w.End()
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
	p.pool.Close()
	p.mu.Unlock()
	return p.blocks.close()
}
