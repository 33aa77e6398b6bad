package local

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

// leases manages read leases (fcntl(2), F_SETLEASE) on mapped files. The kernel grants one only
// while the file is not open for writing or mapped writable anywhere; from then on, a program that
// opens it for writing or truncates it waits in the kernel until the lease is released. So the
// mapped contents of such a file don't change.
//
// A goroutine, which exists only while files are mapped, checks for each lease whether a writer
// waits, and then releases it; it also requests the leases that were not available earlier. The
// signal that the kernel could send is turned off: it would go to the whole process, which is not
// only ours.
//
// # Lost leases
//
// A lease that is not released is revoked after /proc/sys/fs/lease-break-time (45 s), without
// notice. That time is in whole seconds, and 0 means never: so if no writer waits for a lease at
// some moment, the lease exists for at least a second from that moment, whatever the value is, now
// or later. The goroutine records until when all leases certainly hold (until). If the process
// stops, or has no time for the goroutine, that time passes, and files are checked instead.
//
// The kernel counts that second in ticks, which follow CLOCK_MONOTONIC, as the clock here does:
// both stop while the machine is suspended.
type leases struct {
	broken atomic.Uint64 // leases so far that a writer has waited for
	until  atomic.Int64  // on clock: no lease can have been revoked before
	clock  func() time.Duration
	none   bool // never request leases

	mu      sync.Mutex
	held    map[*mapping]struct{}      // including those about to be released
	waiting map[*mapping]time.Duration // when to request the lease again, on clock
	refused map[*mapping]string        // mapped files without a lease, and the reason
	watch   *leaseWatch                // nil if held and waiting are empty
}

// leaseWatch is one run of the goroutine.
type leaseWatch struct {
	stop, ended chan struct{}
}

const (
	// leasePoll is how often each lease is checked: a writer waits for at most this long.
	leasePoll = 50 * time.Millisecond
	// leaseStands is how long after a check a lease can't have been revoked. The kernel rounds its
	// second down to ticks, of at most 10 ms.
	leaseStands = 500 * time.Millisecond
	// leaseAgain is how long to wait before requesting the lease of a file again that was open for
	// writing.
	leaseAgain = time.Second
	// maxLeases bounds the cost of one poll: about 0.1 µs each.
	maxLeases = 2048
)

// States of a mapping's lease.
const (
	leaseNone    = iota // it may be available later
	leaseWriter         // likewise, because a program has the file open for writing
	leaseHeld           // the file does not change
	leaseRefused        // permanently
)

const openForWriting = "a program has the file open for writing (what it stores through a mapping may go unnoticed)"

// isLocal reports whether an open file is on a file system where all writers go through this
// kernel, which enforces leases.
func isLocal(fd int) bool { return uring.TraitsOf(fd).Watched }

func (l *leases) init() {
	start := time.Now()
	l.clock = func() time.Duration { return time.Since(start) }
	l.held, l.waiting, l.refused = map[*mapping]struct{}{}, map[*mapping]time.Duration{}, map[*mapping]string{}
}

// Leased implements storage.Mapping.
func (m *mapping) Leased() bool { return m.lease.Load() == leaseHeld }

// OpenForWriting implements storage.Mapping.
func (m *mapping) OpenForWriting() bool { return m.lease.Load() == leaseWriter }

// Lost implements storage.Mapping: the object itself is mapped.
func (m *mapping) Lost() error { return nil }

// begin requests a lease on a file that has just been mapped.
func (l *leases) begin(m *mapping) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.none {
		l.refuse(m, "others write to files like this")
		return
	}
	began := l.clock()
	l.take(m)
	if l.watch == nil && len(l.held)+len(l.waiting) > 0 {
		l.until.Store(int64(began + leaseStands))
		l.watch = &leaseWatch{make(chan struct{}), make(chan struct{})}
		go l.poll(l.watch)
	}
}

// take requests a lease from the kernel. l.mu is held.
func (l *leases) take(m *mapping) {
	delete(l.waiting, m)
	if len(l.held) >= maxLeases {
		l.wait(m, leaseNone, "there are many others")
		return
	}
	if !isLocal(m.fd) {
		l.refuse(m, "a lease on a file system of this kind may not keep all writers off")
		return
	}
	if _, err := unix.FcntlInt(uintptr(m.fd), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		switch err {
		case unix.EAGAIN:
			l.wait(m, leaseWriter, openForWriting)
		case unix.EACCES:
			l.refuse(m, "the file is another user's, and the process lacks CAP_LEASE")
		default:
			l.refuse(m, "the file system gives no lease: "+err.Error())
		}
		return
	}
	_, err := unix.FcntlInt(uintptr(m.fd), unix.F_SETOWN, 0)
	if err == nil {
		// Nothing can write any more from here on. Was the file changed before?
		err = verify(m.fd, m.object)
	}
	if err != nil {
		_, _ = unix.FcntlInt(uintptr(m.fd), unix.F_SETLEASE, unix.F_UNLCK)
		l.refuse(m, err.Error())
		return
	}
	delete(l.refused, m)
	l.held[m] = struct{}{}
	m.lease.Store(leaseHeld)
}

// wait records why a mapping has no lease now. l.mu is held.
func (l *leases) wait(m *mapping, state uint32, why string) {
	l.waiting[m] = l.clock() + leaseAgain
	l.refused[m] = why
	m.lease.Store(state)
}

// refuse records why a mapping never gets a lease. l.mu is held.
func (l *leases) refuse(m *mapping, why string) {
	l.refused[m] = why
	m.lease.Store(leaseRefused)
}

// poll maintains the leases until it is stopped, or there are none.
func (l *leases) poll(w *leaseWatch) {
	defer close(w.ended)
	tick := time.NewTicker(leasePoll)
	defer tick.Stop()
	for l.round(w) {
		select {
		case <-w.stop:
			return
		case <-tick.C:
		}
	}
}

// round checks all leases, releases the ones that writers wait for, and requests leases that may be
// available by now. It reports whether the run continues.
func (l *leases) round(w *leaseWatch) bool {
	began := l.clock()
	wanted := l.wanted()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range wanted {
		if _, open := l.held[m]; open && !m.Leased() {
			_, _ = unix.FcntlInt(uintptr(m.fd), unix.F_SETLEASE, unix.F_UNLCK)
			delete(l.held, m)
			l.wait(m, leaseWriter, openForWriting)
		}
	}
	// Nothing relies on the wanted leases any more, some of which may already have been revoked;
	// all others existed when the round began.
	l.until.Store(int64(began + leaseStands))
	if len(l.held) < maxLeases {
		for m, next := range l.waiting {
			if began >= next {
				l.take(m)
			}
		}
	}
	if len(l.held)+len(l.waiting) == 0 && l.watch == w {
		l.watch = nil
	}
	return l.watch == w
}

// wanted returns the mappings whose leases a writer waits for, or that have been revoked. From now
// on nothing relies on them.
func (l *leases) wanted() (wanted []*mapping) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for m := range l.held {
		// While a writer waits, this is the type that the lease is going to have.
		if kind, err := unix.FcntlInt(uintptr(m.fd), unix.F_GETLEASE, 0); err != nil || kind != unix.F_RDLCK {
			m.lease.Store(leaseWriter)
			wanted = append(wanted, m)
		}
	}
	l.broken.Add(uint64(len(wanted)))
	return wanted
}

// end forgets a mapping, whose lease ends with its descriptor, and waits for the goroutine to end
// if it was the last one.
func (l *leases) end(m *mapping) {
	l.mu.Lock()
	delete(l.held, m)
	delete(l.waiting, m)
	delete(l.refused, m)
	w := l.watch
	if w == nil || len(l.held)+len(l.waiting) > 0 {
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

// Unbroken implements storage.Leaser.
func (s *Storage) Unbroken(breaks uint64) bool {
	afterReads()
	return s.leases.broken.Load() == breaks && s.leases.standing()
}

// afterReads orders all earlier reads of mapped files before what follows: the writers are other
// processes, so nothing else orders a processor's reads. On arm64 a load can be reordered after
// later loads, but not after an atomic store followed by an atomic load.
func afterReads() {
	var fence atomic.Uint32
	fence.Store(1)
}

// standing reports whether leases without a waiting writer can't have been revoked.
func (l *leases) standing() bool { return int64(l.clock()) < l.until.Load() }

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
