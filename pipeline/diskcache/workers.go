package diskcache

import (
	"math/bits"
	"sync"
)

// task is work for workers.
type task interface{ run() }

// workers are goroutines that run tasks in the order of arrival. The callers of add bound how many
// wait: each task belongs to a read or to a buffer.
type workers struct {
	mu      sync.Mutex
	work    sync.Cond
	waiting []task
	closed  bool
	members sync.WaitGroup
}

func newWorkers(members int) *workers {
	c := &workers{}
	c.work.L = &c.mu
	for range members {
		c.members.Go(c.serve)
	}
	return c
}

// add never waits, and never runs a task itself.
func (c *workers) add(tasks ...task) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, tasks...)
	if len(tasks) == 1 {
		c.work.Signal()
		return
	}
	c.work.Broadcast()
}

func (c *workers) serve() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for len(c.waiting) == 0 {
			if c.closed {
				return
			}
			c.work.Wait()
		}
		t := c.waiting[0]
		c.waiting[0] = nil
		if c.waiting = c.waiting[1:]; len(c.waiting) == 0 {
			c.waiting = nil
		}
		c.mu.Unlock()
		t.run()
		c.mu.Lock()
	}
}

// close waits for all tasks, including those that they add.
func (c *workers) close() {
	c.mu.Lock()
	c.closed = true
	c.work.Broadcast()
	c.mu.Unlock()
	c.members.Wait()
}

// buffers lends memory, at most a fixed number of bytes. A buffer larger than the bound is lent if
// no other is.
type buffers struct {
	most int64

	mu      sync.Mutex
	lent    int64
	kept    int64 // bytes in free, at most half of most
	free    map[int][][]byte
	waiting []borrower
}

// borrower waits for a buffer. lent is called, without a lock, by the goroutine that returned one.
type borrower interface {
	wantsBytes() int
	lent(buf []byte)
}

func newBuffers(most int64) *buffers { return &buffers{most: most, free: map[int][][]byte{}} }

// class returns the size of the buffers used for n bytes: there are four sizes per power of two.
func class(n int) int {
	step := 1 << max(12, bits.Len(uint(n-1))-3)
	return (n + step - 1) / step * step
}

// take lends n bytes, whose contents are undefined. If there are none, ok is false and b is called
// later, in order of arrival.
func (l *buffers) take(b borrower) (buf []byte, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 && l.fits(b.wantsBytes()) {
		return l.lend(b.wantsBytes()), true
	}
	l.waiting = append(l.waiting, b)
	return nil, false
}

func (l *buffers) fits(n int) bool { return l.lent == 0 || l.lent+int64(class(n)) <= l.most }

func (l *buffers) lend(n int) []byte {
	size := class(n)
	l.lent += int64(size)
	if of := l.free[size]; len(of) > 0 {
		buf := of[len(of)-1]
		of[len(of)-1] = nil
		l.free[size] = of[:len(of)-1]
		l.kept -= int64(size)
		return buf[:n]
	}
	// Free buffers of other sizes count, too.
	for other, of := range l.free {
		if l.lent+l.kept <= l.most {
			break
		}
		l.kept -= int64(other) * int64(len(of))
		delete(l.free, other)
	}
	return make([]byte, size)[:n]
}

// give takes a buffer back, and lends to the borrowers that wait.
func (l *buffers) give(buf []byte) {
	type loan struct {
		to  borrower
		buf []byte
	}
	var loans []loan
	l.mu.Lock()
	size := cap(buf)
	l.lent -= int64(size)
	if l.kept+int64(size) <= l.most/2 {
		l.kept += int64(size)
		l.free[size] = append(l.free[size], buf[:size])
	}
	for len(l.waiting) > 0 && l.fits(l.waiting[0].wantsBytes()) {
		b := l.waiting[0]
		l.waiting[0] = nil
		l.waiting = l.waiting[1:]
		loans = append(loans, loan{b, l.lend(b.wantsBytes())})
	}
	l.mu.Unlock()
	for _, x := range loans {
		x.to.lent(x.buf)
	}
}

// idle reports whether at least half of the memory is not lent.
func (l *buffers) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lent <= l.most/2 && len(l.waiting) == 0
}
