// Package faulty is a storage for tests. It wraps a real storage, and fails, alters or delays reads
// as a test specifies. Without faults it behaves like the wrapped storage.
//
//	Submit ──► Hold? ──► Before: error? ──► Delay ──► wrapped storage ──► After ──► Done
package faulty

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Storage wraps a storage. List and Stat are not changed. The hooks must be set before the first
// read. They are called concurrently, and must not block.
type Storage struct {
	storage.Storage

	// Before, if set, is called for each read that is still wanted, before it is passed on; for a
	// held read, that is when it is released. If it returns an error, the read fails with it,
	// wrapped in a *storage.Error.
	Before func(r *storage.Read) error
	// After, if set, is called with the outcome of each read that was passed on, and
	// returns the outcome to report. It may change r.Buf.
	After func(r *storage.Read, err error) error
	// Delay, if set, returns how long a read waits before it is passed on.
	Delay func(r *storage.Read) time.Duration

	mu      sync.Mutex
	arrived sync.Cond // signals that a read is held
	holding bool
	held    []*storage.Read
	failing sync.WaitGroup // goroutines that fail reads, and timers that pass them on
}

var _ storage.Storage = (*Storage)(nil)

// New wraps s. Closing the result closes s.
func New(s storage.Storage) *Storage {
	f := &Storage{Storage: s}
	f.arrived.L = &f.mu
	return f
}

// Caps implements storage.Storage: there is no way around the hooks.
func (f *Storage) Caps() storage.Caps { return f.Storage.Caps().OnlySubmit() }

// Hold makes reads submitted from now on wait for Release.
func (f *Storage) Hold() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holding = true
}

// Release passes on all held reads, in the order of submission, and ends Hold.
func (f *Storage) Release() {
	f.mu.Lock()
	reads := f.held
	f.held, f.holding = nil, false
	f.mu.Unlock()
	f.forward(reads)
}

// WaitHeld waits until at least n reads are held.
func (f *Storage) WaitHeld(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.held) < n {
		f.arrived.Wait()
	}
}

// Submit implements storage.Storage.
func (f *Storage) Submit(reads []*storage.Read) {
	f.mu.Lock()
	if f.holding {
		f.held = append(f.held, reads...)
		f.arrived.Broadcast()
		f.mu.Unlock()
		return
	}
	f.mu.Unlock()
	f.forward(reads)
}

// Close releases held reads, waits for delayed ones and closes the wrapped storage.
func (f *Storage) Close() error {
	f.Release()
	f.failing.Wait()
	return f.Storage.Close()
}

func (f *Storage) forward(reads []*storage.Read) {
	if f.Delay != nil {
		for _, r := range reads {
			f.failing.Add(1)
			time.AfterFunc(f.Delay(r), func() {
				defer f.failing.Done()
				f.handOn([]*storage.Read{r})
			})
		}
		return
	}
	f.handOn(reads)
}

func (f *Storage) handOn(reads []*storage.Read) {
	good := make([]*storage.Read, 0, len(reads))
	for _, r := range reads {
		if f.Before != nil && (r.Wanted == nil || r.Wanted()) {
			if err := f.Before(r); err != nil {
				f.fail(r, err)
				continue
			}
		}
		if f.After != nil {
			handed := *r
			handed.Done = func(err error) { r.Done(f.After(r, err)) }
			good = append(good, &handed)
			continue
		}
		good = append(good, r)
	}
	if len(good) > 0 {
		f.Storage.Submit(good)
	}
}

// fail fails a read from a goroutine of its own, as a real storage would.
func (f *Storage) fail(r *storage.Read, err error) {
	f.failing.Go(func() {
		r.Done(&storage.Error{Object: r.Object.Path, OffsetBytes: r.OffsetBytes, SizeBytes: int64(len(r.Buf)), Err: err})
	})
}

// ErrInjected is wrapped by the errors of Nth.
var ErrInjected = errors.New("injected fault")

// Nth is a Before that fails only the n-th read, counted from 0.
func Nth(n int64) func(*storage.Read) error {
	var count atomic.Int64
	return func(*storage.Read) error {
		if at := count.Add(1) - 1; at == n {
			return fmt.Errorf("%w in read %d", ErrInjected, n)
		}
		return nil
	}
}

// Range is a Before that fails all reads of an object that overlap [from, to).
func Range(path string, from, to int64, err error) func(*storage.Read) error {
	return func(r *storage.Read) error {
		if r.Object.Path == path && r.OffsetBytes < to && r.OffsetBytes+int64(len(r.Buf)) > from {
			return err
		}
		return nil
	}
}

// Truncated is a Before that acts as if the object had been truncated to sizeBytes after it was
// listed.
func Truncated(path string, sizeBytes int64) func(*storage.Read) error {
	return func(r *storage.Read) error {
		if r.Object.Path == path && r.OffsetBytes+int64(len(r.Buf)) > sizeBytes {
			return fmt.Errorf("the file ended at %d: %w", sizeBytes, storage.ErrChanged)
		}
		return nil
	}
}
