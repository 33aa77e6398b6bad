package fs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
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

// client is the thread that waits for the answer to a request. It is observed through the files
// stat and status in /proc, which, unlike others there, don't wait for a lock held during a stalled
// page fault. The zero value can't be observed.
type client struct {
	// thread is its number in the PID namespace of the mount, 0 if it has none there.
	thread uint32
	// seen is set if /proc shows the thread; started is its start time, in ticks since boot. A
	// later thread with the same number has a later start time.
	seen    bool
	started uint64
}

// fate is what happens to a client.
type fate int

const (
	unseen fate = iota
	lives
	dies
)

// meet looks at the thread for the first time, while it is certainly waiting: what /proc does not
// show now, it will not show later.
func (c *client) meet() {
	if c.thread != 0 && ownProc() {
		started, err := startOf(c.thread)
		c.started, c.seen = started, err == nil
	}
}

// look reports whether the thread is dying, and so will not see the answer.
func (c *client) look() fate {
	if !c.seen {
		return unseen
	}
	started, err := startOf(c.thread)
	if err == nil && started != c.started {
		return dies
	}
	var status []byte
	if err == nil {
		status, err = os.ReadFile(fmt.Sprintf("/proc/%d/status", c.thread))
	}
	switch {
	case err == nil:
		return fateOf(status)
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ESRCH):
		return dies
	default: // out of descriptors or memory: look again later
		return lives
	}
}

// endsByDefault are the signals that kill a process without a handler for them. For most of them
// the kernel adds SIGKILL, but those that dump core stay pending as themselves until the thread
// leaves the kernel.
const endsByDefault = ^uint64(1<<(syscall.SIGCHLD-1) | 1<<(syscall.SIGCONT-1) | 1<<(syscall.SIGSTOP-1) | 1<<(syscall.SIGTSTP-1) |
	1<<(syscall.SIGTTIN-1) | 1<<(syscall.SIGTTOU-1) | 1<<(syscall.SIGURG-1) | 1<<(syscall.SIGWINCH-1))

// fateOf reads a thread's file status (proc_pid_status(5)). The kernel makes SIGKILL pending for
// each thread of a process that must end.
func fateOf(status []byte) fate {
	const kill = 1 << (syscall.SIGKILL - 1)
	var pending, shared, blocked, ignored, caught, tracer uint64
	for line := range bytes.Lines(status) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		hex := func(to *uint64) { *to, _ = strconv.ParseUint(string(value), 16, 64) }
		switch string(name) {
		case "State":
			if len(value) > 0 && (value[0] == 'Z' || value[0] == 'X') {
				return dies
			}
		case "TracerPid":
			tracer, _ = strconv.ParseUint(string(value), 10, 64)
		case "SigPnd":
			hex(&pending)
		case "ShdPnd":
			hex(&shared)
		case "SigBlk":
			hex(&blocked)
		case "SigIgn":
			hex(&ignored)
		case "SigCgt":
			hex(&caught)
		}
	}
	pending |= shared
	if pending&kill != 0 {
		return dies
	}
	// A tracer may keep the signal from the process.
	if tracer == 0 && pending&endsByDefault&^(blocked|ignored|caught) != 0 {
		return dies
	}
	return lives
}

// startOf returns when a thread started, in ticks since boot: field 22 of its file stat
// (proc_pid_stat(5)).
func startOf(thread uint32) (ticks uint64, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", thread))
	if err != nil {
		return 0, err
	}
	// The second field, the name, may contain anything; it ends at the last ")".
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const start = 22 - 3
	if len(fields) <= start {
		return 0, fmt.Errorf("/proc/%d/stat has too few fields", thread)
	}
	return strconv.ParseUint(string(fields[start]), 10, 64)
}

// ownProc reports whether /proc shows the processes of this PID namespace, so that its numbers are
// those that FUSE reports.
func ownProc() bool {
	self, err := os.Readlink("/proc/self")
	return err == nil && self == strconv.Itoa(os.Getpid())
}

// patience is the context of one request. It ends when the client is interrupted by a signal that
// kills it (see interrupts), when the view that the request is about is retired, or when the mount
// ends. Other signals end nothing: reads of local file systems continue, too. Nothing is started
// until a caller waits on it, since most requests are answered at once. finish must be called when
// the request is over.
type patience struct {
	interrupted <-chan struct{}
	retired     <-chan struct{} // nil if no restore ends the request
	ending      <-chan struct{} // closed when the mount ends
	client      client
	interrupts  *interrupts

	mu       sync.Mutex
	done     chan struct{} // nil until a caller waits
	finished chan struct{}
	watch    sync.WaitGroup
}

// patient makes a request's context from go-fuse's.
func patient(ctx context.Context, s *interrupts, retired, ending <-chan struct{}) *patience {
	p := &patience{interrupted: ctx.Done(), retired: retired, ending: ending, interrupts: s}
	if c, fromClient := ctx.(*fuse.Context); fromClient {
		p.client.thread = c.Pid
	}
	return p
}

func (p *patience) Deadline() (time.Time, bool) { return time.Time{}, false }
func (p *patience) Value(any) any               { return nil }

func (p *patience) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == nil {
		p.done, p.finished = make(chan struct{}), make(chan struct{})
		p.watch.Go(p.wait)
	}
	return p.done
}

// Err checks before it starts to watch, so that work that calls it now and then costs no goroutine.
func (p *patience) Err() error {
	select {
	case <-p.interrupted:
	case <-p.retired:
	case <-p.ending:
	default:
		return p.ended()
	}
	select {
	case <-p.Done():
		return context.Canceled
	default:
		return nil
	}
}

// ended returns the error for a client that dies without having been interrupted.
func (p *patience) ended() error {
	if !p.interrupts.unsure {
		return nil
	}
	p.mu.Lock()
	done := p.done
	p.mu.Unlock()
	select {
	case <-done:
		return context.Canceled
	default:
		return nil
	}
}

func (p *patience) wait() {
	select {
	case <-p.finished:
		return
	case <-p.retired:
		close(p.done)
		return
	case <-p.ending:
		close(p.done)
		return
	case <-p.interrupted:
	case <-p.interrupts.unsureAfter():
	}
	dies := p.interrupts.add(p)
	defer p.interrupts.remove(p)
	select {
	case <-p.finished:
	case <-p.retired:
		close(p.done)
	case <-p.ending:
		close(p.done)
	case <-dies:
		close(p.done)
	}
}

// finish stops watching; it does not end the context.
func (p *patience) finish() {
	p.mu.Lock()
	if p.done == nil {
		// Later calls of Done wait forever, as on a context without an end.
		p.done = make(chan struct{})
		p.mu.Unlock()
		return
	}
	close(p.finished)
	p.mu.Unlock()
	p.watch.Wait()
}

var _ context.Context = (*patience)(nil)
