package storage

import (
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// retryWaits are the waits before the second, third … attempt. Together they are about a second:
// far less than --read-timeout, to which they add, and long enough for a kernel to find memory.
var retryWaits = [...]time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond}

// transientErrors are the errors after which a read is retried.
var transientErrors = [...]error{
	syscall.EAGAIN, syscall.EINTR, syscall.EBUSY, syscall.ENOMEM, syscall.ENOBUFS, syscall.ENFILE,
	syscall.ETIMEDOUT, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EREMOTEIO,
}

// transient reports whether a read that failed with err may succeed the next time.
func transient(err error) bool {
	for _, t := range transientErrors {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}

// RetryStats is a snapshot of the counters of a Retrying.
type RetryStats struct {
	Retries uint64 `json:"retries"`  // attempts after the first
	GaveUp  uint64 `json:"gave_up"`  // reads that failed in the end
	Waiting int    `json:"in_retry"` // reads currently waiting for their next attempt
}

// Retrying is a Storage that wraps another one and repeats reads that failed with a transient
// error. Closing it closes the other one.
//
//	Submit ──► wrapped storage ──► transient error? ──wait──► again, or give up ──► Done
//
// Nothing else waits between attempts to read a file. The storages below report what happened, and at
// most try once more immediately. (There is one exception: to open a file, package fileset waits up
// to a second for a free descriptor, because it also lists.)
//
// Transient errors are errors with which a kernel reports "not now", and errors of a network file
// system whose server did not answer in time. EIO is not transient: the disk has tried for long
// before it reports EIO, and the engine has repeated the read once. Errors are not remembered: the
// next request for the range reads it again.
type Retrying struct {
	Storage
	attempts        sync.Pool // of *attempt
	retries, gaveUp atomic.Uint64

	mu      sync.Mutex
	quiet   sync.Cond // signals that waiting has become empty
	waiting map[*attempt]*time.Timer
	going   int // attempts whose timer has expired, and that are about to be submitted
	closed  bool
}

var _ Storage = (*Retrying)(nil)

// NewRetrying wraps s.
func NewRetrying(s Storage) *Retrying {
	r := &Retrying{Storage: s, waiting: map[*attempt]*time.Timer{}}
	r.quiet.L = &r.mu
	return r
}

// attempt is a read in progress. It is reused.
type attempt struct {
	s     *Retrying
	read  Read        // the read passed on
	done  func(error) // the submitter's
	tried int
}

// Caps implements Storage: only what is submitted is repeated. A reader that maps objects or
// opens streams reads what failed there by Submit, or reports the error.
func (s *Retrying) Caps() Caps { return s.Storage.Caps() }

// Submit implements Storage.
func (s *Retrying) Submit(reads []*Read) {
	handed := make([]*Read, len(reads))
	for i, r := range reads {
		a, _ := s.attempts.Get().(*attempt)
		if a == nil {
			a = &attempt{s: s}
			a.read.Done = a.ended
		}
		a.done, a.tried = r.Done, 0
		a.read.Object, a.read.OffsetBytes, a.read.Epoch, a.read.Buf, a.read.Wanted = r.Object, r.OffsetBytes, r.Epoch, r.Buf, r.Wanted
		handed[i] = &a.read
	}
	s.Storage.Submit(handed)
}

// ended is called when an attempt has ended.
func (a *attempt) ended(err error) {
	s := a.s
	if err != nil && transient(err) {
		if a.tried < len(retryWaits) && s.later(a) {
			return
		}
		s.gaveUp.Add(1)
	}
	done := a.done
	a.done, a.read.Buf, a.read.Wanted = nil, nil, nil
	s.attempts.Put(a)
	done(err)
}

// later retries a read after a while. It returns false if the storage is closed.
func (s *Retrying) later(a *attempt) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	wait := retryWaits[a.tried]
	a.tried++
	s.waiting[a] = time.AfterFunc(wait, func() { s.again(a) })
	return true
}

// again submits a read that has waited. If it was cancelled meanwhile, the wrapped storage reports
// that.
func (s *Retrying) again(a *attempt) {
	s.mu.Lock()
	if _, waits := s.waiting[a]; !waits {
		s.mu.Unlock()
		return // Close came first
	}
	delete(s.waiting, a)
	s.going++
	s.mu.Unlock()
	s.retries.Add(1)
	s.Storage.Submit([]*Read{&a.read})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.going--
	s.quiet.Broadcast()
}

// Stats returns a snapshot of the counters.
func (s *Retrying) Stats() RetryStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return RetryStats{Retries: s.retries.Load(), GaveUp: s.gaveUp.Load(), Waiting: len(s.waiting)}
}

// Close fails the reads that wait for another attempt, waits for the reads in flight, and closes
// the wrapped storage.
func (s *Retrying) Close() error {
	s.mu.Lock()
	s.closed = true
	var ended []*attempt
	for a, timer := range s.waiting {
		timer.Stop()
		ended = append(ended, a)
	}
	clear(s.waiting)
	for s.going > 0 {
		s.quiet.Wait()
	}
	s.mu.Unlock()
	for _, a := range ended {
		a.tried = len(retryWaits)
		a.ended(&Error{Object: a.read.Object.Path, OffsetBytes: a.read.OffsetBytes, SizeBytes: int64(len(a.read.Buf)), Err: fs.ErrClosed})
	}
	return s.Storage.Close()
}
