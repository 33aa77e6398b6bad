// Package retry wraps a storage and repeats reads that failed with a transient error.
//
//	Submit ──► wrapped storage ──► transient error? ──wait──► again, or give up ──► Done
//
// Only this package waits between attempts at a read. The storages below it report what
// happened, and at most try once more immediately. (There is one exception: to open a
// file, package fileset waits up to a second for a free descriptor, because it also
// lists.)
//
// Transient errors are errors with which a kernel reports "not now", and errors of a network file
// system whose server did not answer in time. EIO is not transient: the disk has tried for long
// before it reports EIO, and the engine has repeated the read once. Errors are not remembered: the
// next request for the range reads it again.
package retry

import (
	"errors"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// waits are the waits before the second, third … attempt. Together they are about a second: far
// less than --read-timeout, to which they add, and long enough for a kernel to find memory.
var waits = [...]time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond}

// transient are the errors after which a read is retried.
var transient = [...]error{
	syscall.EAGAIN, syscall.EINTR, syscall.EBUSY, syscall.ENOMEM, syscall.ENOBUFS, syscall.ENFILE,
	syscall.ETIMEDOUT, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EREMOTEIO,
}

// Transient reports whether a read that failed with err may succeed the next time.
func Transient(err error) bool {
	for _, t := range transient {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}

// Stats is a snapshot of the counters.
type Stats struct {
	Retries uint64 `json:"retries"`  // attempts after the first
	GaveUp  uint64 `json:"gave_up"`  // reads that failed in the end
	Waiting int    `json:"in_retry"` // reads currently waiting for their next attempt
}

// Storage is a storage.Storage that wraps another one. Closing it closes the other one.
type Storage struct {
	storage.Storage
	attempts        sync.Pool // of *attempt
	retries, gaveUp atomic.Uint64

	mu      sync.Mutex
	quiet   sync.Cond // signals that waiting has become empty
	waiting map[*attempt]*time.Timer
	going   int // attempts whose timer has expired, and that are about to be submitted
	closed  bool
}

var _ storage.Storage = (*Storage)(nil)

// New wraps s.
func New(s storage.Storage) *Storage {
	r := &Storage{Storage: s, waiting: map[*attempt]*time.Timer{}}
	r.quiet.L = &r.mu
	return r
}

// attempt is a read in progress. It is reused.
type attempt struct {
	s     *Storage
	read  storage.Read // the read passed on
	done  func(error)  // the submitter's
	tried int
}

// Caps implements storage.Storage: only what is submitted is repeated. A reader that maps objects or
// opens streams reads what failed there by Submit, or reports the error.
func (s *Storage) Caps() storage.Caps { return s.Storage.Caps() }

// Submit implements storage.Storage.
func (s *Storage) Submit(reads []*storage.Read) {
	handed := make([]*storage.Read, len(reads))
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
	if err != nil && Transient(err) {
		if a.tried < len(waits) && s.later(a) {
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
func (s *Storage) later(a *attempt) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	wait := waits[a.tried]
	a.tried++
	s.waiting[a] = time.AfterFunc(wait, func() { s.again(a) })
	return true
}

// again submits a read that has waited. If it was cancelled meanwhile, the wrapped storage reports
// that.
func (s *Storage) again(a *attempt) {
	s.mu.Lock()
	if _, waits := s.waiting[a]; !waits {
		s.mu.Unlock()
		return // Close came first
	}
	delete(s.waiting, a)
	s.going++
	s.mu.Unlock()
	s.retries.Add(1)
	s.Storage.Submit([]*storage.Read{&a.read})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.going--
	s.quiet.Broadcast()
}

// Stats returns a snapshot of the counters.
func (s *Storage) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{Retries: s.retries.Load(), GaveUp: s.gaveUp.Load(), Waiting: len(s.waiting)}
}

// Close fails the reads that wait for another attempt, waits for the reads in flight,
// and closes the wrapped storage.
func (s *Storage) Close() error {
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
		a.tried = len(waits)
		a.ended(&storage.Error{Object: a.read.Object.Path, OffsetBytes: a.read.OffsetBytes, SizeBytes: int64(len(a.read.Buf)), Err: fs.ErrClosed})
	}
	return s.Storage.Close()
}

// Wrap is New(s), also as a storage.
func Wrap(s storage.Storage) (storage.Storage, *Storage) {
	r := New(s)
	return r, r
}
