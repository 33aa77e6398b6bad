package fs

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// interrupts are the requests in flight whose clients were interrupted by a signal. It finds out
// which of these clients are dying: only their requests are cancelled.
//
// The kernel interrupts a request once, for any signal: also if a handler runs, a job is stopped or
// a tracer attaches. And FUSE returns EINTR to the program even if a handler has SA_RESTART.
// Programs take that for an error or, worse, for the end of the file, since no local file system
// does so. So a client is looked at when it is interrupted, and then once every lookAgain, because
// the signal that kills it may be a later one.
//
// One goroutine looks at all of them. It runs while there are any, and is one of the group that its
// owner waits for. The zero value with a group is ready.
type interrupts struct {
	group *sync.WaitGroup
	// gone reports whether the kernel has aborted all requests (as umount -f does), so that no
	// client waits for answers. It is nil if that can't be determined.
	gone func() bool
	// unsure is set if an interrupt may never come: with rings, the kernel sends none for a request
	// that is still waiting for a thread. So clients that have waited for lookAgain are looked at
	// without one.
	unsure bool

	mu       sync.Mutex
	requests map[*patience]*interruption
	stop     chan struct{} // of the goroutine; nil if it does not run
}

// interruption is one interrupted request.
type interruption struct {
	client client
	asked  <-chan struct{} // closed when the client was interrupted
	since  time.Time       // when that was noticed; zero before
	dies   chan struct{}   // closed when the request is cancelled
	over   bool            // dies is closed
}

const (
	// lookAgain is how soon a client is seen to die from a signal that is not its first.
	lookAgain = 200 * time.Millisecond
	// lookShare bounds the cost of looking: a pause is this many times as long as the look before
	// it. A look at one client takes about 30 µs.
	lookShare = 20
	// unseenGrace is how long a request continues if its client can't be observed, because it is in
	// another PID namespace (another container), or hidden by /proc. It is long because the request
	// may be a read by a program that only handles a signal. It is bounded because otherwise only
	// --read-timeout would end the requests of killed clients.
	unseenGrace = time.Minute
)

// unsureAfter returns when to look at a client that was not interrupted; never, if all interrupts
// come.
func (s *interrupts) unsureAfter() <-chan time.Time {
	if !s.unsure {
		return nil
	}
	return time.After(lookAgain)
}

// add adds a request whose client has just been interrupted or, if interrupts may never come, has
// waited for lookAgain. The channel is closed when the request must be cancelled; that may be at
// once.
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

// remove removes a request that has ended.
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

// look reports whether the client is dying, and if so cancels the request. Two looks are never in
// progress at once.
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
