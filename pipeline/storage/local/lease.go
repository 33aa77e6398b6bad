package local

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring/filesystem"
)

// leases are read leases (fcntl(2), F_SETLEASE) on mapped files. The kernel
// gives one only while nobody has the file open for writing or mapped writable;
// from then on whoever opens it for writing or truncates it waits in the kernel
// until the lease is given up. So what is mapped of such a file stays what it is.
//
// A goroutine, that there is only while files are mapped, asks for each lease
// whether somebody waits, and gives it up; and asks for those that could not be
// had. The signal that the kernel could send is turned off: it would be one for the
// whole process, which is not ours alone.
//
// # Lost leases
//
// A lease that is not given up is taken after /proc/sys/fs/lease-break-time (45 s),
// which is told to nobody. That is whole seconds, and 0 means never: so one that
// nobody waited for at a moment is there for a second at least from that moment
// on, whatever that file says, now or later. The goroutine notes when it has last
// found all leases so (until). A process that stands still, or has no time for the
// goroutine, sees that this is long ago, and looks at files instead.
//
// The kernel counts that second in ticks, which follow CLOCK_MONOTONIC, as the
// clock here does: both stand still while the machine is suspended.
type leases struct {
	broken atomic.Uint64 // leases that somebody waited for, so far
	until  atomic.Int64  // on clock: no lease can have been taken before
	clock  func() time.Duration
	none   bool // they are not asked for

	mu      sync.Mutex
	held    map[*mapping]struct{}      // those about to be given up, too
	waiting map[*mapping]time.Duration // when to ask next for one that may be had, on clock
	refused map[*mapping]string        // mapped files without a lease, and why
	watch   *leaseWatch                // nil where held and waiting are empty
}

// leaseWatch is one run of the goroutine.
type leaseWatch struct {
	stop, ended chan struct{}
}

const (
	// leasePoll is how often each lease is asked about: a writer waits as long at
	// most.
	leasePoll = 50 * time.Millisecond
	// leaseStands is how long after it was asked about a lease can't have been
	// taken. The kernel rounds its second down to ticks, of 10 ms at most.
	leaseStands = 500 * time.Millisecond
	// leaseAgain is how long a file that is written to, or was, goes without.
	leaseAgain = time.Second
	// maxLeases bounds what one poll costs: about 0.1 µs each.
	maxLeases = 2048
)

// A mapping's lease.
const (
	leaseNone    = iota // it may be had, later
	leaseWriter         // the same: a program has the file open for writing
	leaseHeld           // the file does not change
	leaseRefused        // for good
)

const openForWriting = "a program has the file open for writing (what it stores through a mapping may go unnoticed)"

// isLocal says whether an open file lies where all writers are this kernel's, which
// keeps leases.
func isLocal(fd int) bool { return filesystem.Of(fd).Watched }

var _ storage.Leaser = (*Storage)(nil)

func (l *leases) init() {
	start := time.Now()
	l.clock = func() time.Duration { return time.Since(start) }
	l.held, l.waiting, l.refused = map[*mapping]struct{}{}, map[*mapping]time.Duration{}, map[*mapping]string{}
}

// Leased implements storage.Mapping.
func (m *mapping) Leased() bool { return m.lease.Load() == leaseHeld }

// OpenForWriting implements storage.Mapping.
func (m *mapping) OpenForWriting() bool { return m.lease.Load() == leaseWriter }

// begin asks for a lease on a file that has just been mapped.
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

// take asks the kernel for a lease. l.mu is held.
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
		// Now that nobody can write any more: has somebody, before?
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

// wait notes why a mapping has no lease now. l.mu is held.
func (l *leases) wait(m *mapping, state uint32, why string) {
	l.waiting[m] = l.clock() + leaseAgain
	l.refused[m] = why
	m.lease.Store(state)
}

// refuse notes why a mapping never has a lease. l.mu is held.
func (l *leases) refuse(m *mapping, why string) {
	l.refused[m] = why
	m.lease.Store(leaseRefused)
}

// poll looks after the leases until it is stopped, or there are none.
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

// round asks about all leases, gives up those that somebody waits for, and asks for
// those that may be had by now. It says whether the run goes on.
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
	// Nothing relies on those that were wanted any more, some of which may have been
	// taken already; all others were there when the round began.
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

// wanted are the mappings whose leases somebody waits for, or has taken. Nothing is
// lent relying on them any more.
func (l *leases) wanted() (wanted []*mapping) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for m := range l.held {
		// While somebody waits it is what the lease is to become.
		if kind, err := unix.FcntlInt(uintptr(m.fd), unix.F_GETLEASE, 0); err != nil || kind != unix.F_RDLCK {
			m.lease.Store(leaseWriter)
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

// afterReads has all that was read from mapped files be read before what follows:
// writers are not of this process, so nothing else orders a processor's reads. On
// arm64 a load may overtake another, but neither an atomic store nor an atomic
// load behind that.
func afterReads() {
	var fence atomic.Uint32
	fence.Store(1)
}

// standing says that leases which nobody was seen to wait for can't have been taken.
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
