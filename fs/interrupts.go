package fs

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// interrupts are the requests under way whose clients were interrupted by a signal.
// It finds out which of these clients are dying: only their requests are given up.
//
// The kernel interrupts a request once, whatever the signal: a handler runs, a job is
// stopped, a tracer attaches. And FUSE hands EINTR to the program even where a
// handler has SA_RESTART. Programs take that for an error or, which is worse, for the
// end of the file, since no local file system does so. So a client is looked at when
// it is interrupted, and again each lookAgain, for the signal that kills it may be a
// later one.
//
// One goroutine looks at all of them; it runs while there are any, and is one of the
// group that its owner waits for. The zero value with a group is ready.
type interrupts struct {
	group *sync.WaitGroup
	// gone says that the kernel has given up all requests (umount -f does that), so
	// that nobody waits for answers. nil where that can't be found out.
	gone func() bool
	// unsure says that an interrupt may never come: by rings the kernel sends none of a request that is
	// still waiting for a thread. So clients that have waited for lookAgain are looked at without one.
	unsure bool

	mu       sync.Mutex
	requests map[*patience]*interruption
	stop     chan struct{} // of the goroutine; nil when it does not run
}

// interruption is one of them.
type interruption struct {
	client client
	asked  <-chan struct{} // closed when the client was interrupted
	since  time.Time       // when that was noticed; zero before
	dies   chan struct{}   // closed when it is given up
	over   bool            // it is closed
}

const (
	// lookAgain is how soon a client is seen to die of a signal that is not its first.
	lookAgain = 200 * time.Millisecond
	// lookShare bounds what looking costs: a pause is so many times as long as the
	// look before it. A look at one client takes about 30 µs.
	lookShare = 20
	// unseenGrace is how long a request goes on whose client can't be looked at: it
	// lives in another PID namespace (another container), or /proc hides it. It is long
	// because what it ends may be a read of a program that only handles a signal; and
	// it ends because else nothing but --read-timeout would end those that were killed.
	unseenGrace = time.Minute
)

// unsureAfter tells when to look at a client that was not interrupted; never, if all interrupts come.
func (s *interrupts) unsureAfter() <-chan time.Time {
	if !s.unsure {
		return nil
	}
	return time.After(lookAgain)
}

// add takes a request whose client has just been interrupted, or, where interrupts may never come, has
// waited for lookAgain. The channel is closed when it is to be given up; that may be at once.
func (s *interrupts) add(p *patience) <-chan struct{} {
	i := &interruption{client: p.client, asked: p.interrupted, dies: make(chan struct{})}
	i.client.meet()
	if i.look(s.isGone()) {
		return i.dies
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests == nil {
		s.requests = make(map[*patience]*interruption)
	}
	s.requests[p] = i
	if s.stop == nil {
		stop := make(chan struct{})
		s.stop = stop
		s.group.Go(func() { s.run(stop) })
	}
	return i.dies
}

// remove forgets a request, which is over.
func (s *interrupts) remove(p *patience) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.requests, p)
	if len(s.requests) == 0 && s.stop != nil {
		close(s.stop)
		s.stop = nil
	}
}

func (s *interrupts) isGone() bool { return s.gone != nil && s.gone() }

// run looks at all clients again and again, until none is left.
func (s *interrupts) run(stop <-chan struct{}) {
	pause := time.NewTimer(lookAgain)
	defer pause.Stop()
	for {
		select {
		case <-stop:
			return
		case <-pause.C:
		}
		began := time.Now()
		s.mu.Lock()
		all := slices.Collect(maps.Values(s.requests))
		s.mu.Unlock()
		gone := s.isGone()
		for _, i := range all {
			i.look(gone)
		}
		pause.Reset(max(lookAgain, lookShare*time.Since(began)))
	}
}

// look says whether the client dies, and tells the request. Two looks are never
// under way at once.
func (i *interruption) look(gone bool) bool {
	if i.over {
		return true
	}
	select {
	case <-i.asked:
		if i.since.IsZero() {
			i.since = time.Now()
		}
	default:
	}
	switch i.client.look() {
	case dies:
		gone = true
	case unseen:
		gone = gone || !i.since.IsZero() && time.Since(i.since) >= unseenGrace
	}
	if gone {
		i.over = true
		close(i.dies)
	}
	return gone
}
