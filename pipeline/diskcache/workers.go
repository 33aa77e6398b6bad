package diskcache

import "sync"

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

func newCrew(members int) *workers {
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
