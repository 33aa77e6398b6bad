package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
)

// ErrClosed is the error of reads that are submitted after Close. It wraps fs.ErrClosed.
var ErrClosed = fmt.Errorf("the storage is closed: %w", fs.ErrClosed)

var errEmptyBuffer = errors.New("a read needs a buffer")

// Check returns an error if r is invalid whatever the object is: its buffer is empty, or its range
// is not inside the object.
func (r *Read) Check() error {
	switch size := int64(len(r.Buf)); {
	case size == 0:
		return errEmptyBuffer
	case r.OffsetBytes < 0 || size > r.Object.SizeBytes || r.OffsetBytes > r.Object.SizeBytes-size:
		return fmt.Errorf("the range is not inside of the object, which has %d bytes", r.Object.SizeBytes)
	}
	return nil
}

// Failure returns err as an *Error with r's object and range. It returns nil and ErrUnwanted as they
// are.
func (r *Read) Failure(err error) error {
	if err == nil || err == ErrUnwanted {
		return err
	}
	return &Error{Object: r.Object.Path, OffsetBytes: r.OffsetBytes, SizeBytes: int64(len(r.Buf)), Err: err}
}

// Inflight counts the reads that were submitted to a storage and whose Done has not returned, so
// that Close can wait for them. Its zero value is open. Its methods may be called concurrently, also
// with the storage's own locks held, except for Close.
type Inflight struct {
	mu     sync.Mutex
	idle   sync.Cond // signals that reads has become 0
	reads  int
	closed bool
}

// Begin counts n reads and reports whether the storage is open. If it is not, they count as well:
// the storage completes them with ErrClosed, and calls End for them.
func (f *Inflight) Begin(n int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads += n
	return !f.closed
}

// End is called for each counted read after its Done has returned.
func (f *Inflight) End() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads--
	if f.reads == 0 && f.closed {
		f.idle.Broadcast()
	}
}

// Reads returns the number of reads in flight.
func (f *Inflight) Reads() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads
}

// Closed reports whether Close was called.
func (f *Inflight) Closed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

// Close makes Begin return false from now on, and waits until no read is in flight. It may be called
// again.
func (f *Inflight) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	f.idle.L = &f.mu
	for f.reads > 0 {
		f.idle.Wait()
	}
}
