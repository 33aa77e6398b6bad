package local

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// leases are read leases (fcntl(2), F_SETLEASE) on mapped files. The kernel
// gives one only while nobody has the file open for writing; from then on whoever
// opens it for writing or truncates it waits in the kernel until the lease is
// given up, /proc/sys/fs/lease-break-time (45 s) at most. So what is mapped of
// such a file stays what it is.
//
// A goroutine, that there is only while there are leases, asks for each of them
// whether somebody waits. The signal that the kernel could send is turned off: it
// would be one for the whole process, which is not ours alone.
type leases struct {
	// holds is read-locked while bytes are lent that rely on leases; who gives one
	// up locks it.
	holds  sync.RWMutex
	broken atomic.Uint64 // leases that somebody waited for, so far
	start  time.Time

	mu      sync.Mutex
	held    map[*mapping]struct{} // those about to be given up, too
	refused map[*mapping]string
	watch   *leaseWatch // nil where held is empty
}

// leaseWatch is one run of the goroutine.
type leaseWatch struct {
	stop, ended chan struct{}
}

const (
	// leasePoll is how often each lease is asked about: a writer waits as long at
	// most, and for the replies that are under way.
	leasePoll = 50 * time.Millisecond
	// leaseAgain is how long a file that is written to, or was, goes without.
	leaseAgain = time.Second
	// maxLeases bounds what one poll costs: about half a microsecond each.
	maxLeases = 2048
)

// A mapping's lease.
const (
	leaseNone    = iota // it may be had
	leaseHeld           // the file does not change
	leaseRefused        // for good
)

var _ storage.Leaser = (*Storage)(nil)

// Lease implements storage.Mapping.
func (m *mapping) Lease() bool {
	switch m.lease.Load() {
	case leaseHeld:
		return true
	case leaseRefused:
		return false
	}
	now := int64(time.Since(m.storage.leases.start))
	again := m.leaseAgain.Load()
	return now >= again && m.leaseAgain.CompareAndSwap(again, now+int64(leaseAgain)) && m.storage.leases.take(m)
}

// take asks the kernel for a lease.
func (l *leases) take(m *mapping) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, given := l.held[m]; given {
		return m.lease.Load() == leaseHeld // if not it is about to be given up
	}
	if len(l.held) >= maxLeases {
		l.refuse(m, leaseNone, "there are many others")
		return false
	}
	if !isLocal(m.fd) {
		l.refuse(m, leaseRefused, "a lease on a file system of this kind may not keep all writers off")
		return false
	}
	if _, err := unix.FcntlInt(uintptr(m.fd), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		switch err {
		case unix.EAGAIN:
			l.refuse(m, leaseNone, "somebody has the file open for writing")
		case unix.EACCES:
			l.refuse(m, leaseRefused, "the file is another user's, and the process lacks CAP_LEASE")
		default:
			l.refuse(m, leaseRefused, "the file system gives no lease: "+err.Error())
		}
		return false
	}
	_, err := unix.FcntlInt(uintptr(m.fd), unix.F_SETOWN, 0)
	if err == nil {
		// Now that nobody can write any more: has somebody, before?
		err = verify(m.fd, m.object)
	}
	if err != nil {
		_, _ = unix.FcntlInt(uintptr(m.fd), unix.F_SETLEASE, unix.F_UNLCK)
		l.refuse(m, leaseRefused, err.Error())
		return false
	}
	delete(l.refused, m)
	if l.held == nil {
		l.held = map[*mapping]struct{}{}
	}
	l.held[m] = struct{}{}
	if l.watch == nil {
		l.watch = &leaseWatch{make(chan struct{}), make(chan struct{})}
		go l.poll(l.watch)
	}
	m.lease.Store(leaseHeld)
	return true
}

// refuse notes why a mapping has no lease. l.mu is held.
func (l *leases) refuse(m *mapping, state uint32, why string) {
	if l.refused == nil {
		l.refused = map[*mapping]string{}
	}
	l.refused[m] = why
	m.lease.Store(state)
}

// poll gives up the leases that somebody waits for, until it is stopped.
func (l *leases) poll(w *leaseWatch) {
	defer close(w.ended)
	tick := time.NewTicker(leasePoll)
	defer tick.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
			if !l.giveUp(w) {
				return
			}
		}
	}
}

// giveUp gives up the leases that somebody waits for, when what was lent
// relying on them has come back. It says whether the run goes on.
func (l *leases) giveUp(w *leaseWatch) bool {
	wanted := l.wanted()
	if len(wanted) > 0 {
		l.holds.Lock()
		//lint:ignore SA2001 it has waited for those who held
		l.holds.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range wanted {
		if _, open := l.held[m]; open {
			_, _ = unix.FcntlInt(uintptr(m.fd), unix.F_SETLEASE, unix.F_UNLCK)
			delete(l.held, m)
		}
	}
	if len(l.held) == 0 && l.watch == w {
		l.watch = nil
	}
	return l.watch == w
}

// wanted are the mappings whose leases somebody waits for. Nothing is lent
// relying on them any more.
func (l *leases) wanted() (wanted []*mapping) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for m := range l.held {
		// While somebody waits it is what the lease is to become.
		if kind, err := unix.FcntlInt(uintptr(m.fd), unix.F_GETLEASE, 0); err != nil || kind != unix.F_RDLCK {
			m.leaseAgain.Store(int64(time.Since(l.start) + leaseAgain))
			l.refuse(m, leaseNone, "somebody has opened the file for writing")
			wanted = append(wanted, m)
		}
	}
	l.broken.Add(uint64(len(wanted)))
	return wanted
}

// end forgets a mapping, whose lease ends with its descriptor, and waits for
// the goroutine to end if it was the last.
func (l *leases) end(m *mapping) {
	l.mu.Lock()
	delete(l.held, m)
	delete(l.refused, m)
	w := l.watch
	if w == nil || len(l.held) > 0 {
		l.mu.Unlock()
		return
	}
	l.watch = nil
	l.mu.Unlock()
	close(w.stop)
	<-w.ended
}

// Breaks implements storage.Leaser.
func (s *Storage) Breaks() uint64 { return s.leases.broken.Load() }

// Hold implements storage.Leaser.
func (s *Storage) Hold(breaks uint64) bool {
	// Who gives one up is not waited for: the caller may hold others.
	if !s.leases.holds.TryRLock() {
		return false
	}
	if s.leases.broken.Load() == breaks {
		return true
	}
	s.leases.holds.RUnlock()
	return false
}

// Unhold implements storage.Leaser.
func (s *Storage) Unhold() { s.leases.holds.RUnlock() }

// LeaseStats implements storage.Leaser.
func (s *Storage) LeaseStats() storage.LeaseStats {
	l := &s.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	stats := storage.LeaseStats{Held: len(l.held), Broken: l.broken.Load()}
	for _, why := range l.refused {
		if stats.Refused == nil {
			stats.Refused = map[string]int{}
		}
		stats.Refused[why]++
	}
	return stats
}
