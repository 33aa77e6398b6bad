package stream

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/meter"
)

const (
	// partBytes is the size of the parts of a block. Each is filled by one goroutine.
	partBytes = 128 << 10
	// stalled is how long a reader waits for parts of a block that others fill before it reads the
	// bytes itself: the others may be waiting for a range that this reader does not need, and the
	// reader's deadline counts from its own call.
	stalled = 20 * time.Millisecond
)

// block is a range [from, to) of a worker's data, copied together before its reader asks for it,
// part by part: by the handle's goroutine, and by a reader that arrives before that has finished.
// The handle that owns it and each reply with slices of it hold a reference; when the last one is
// dropped, the buffer is returned.
type block struct {
	source   *Source
	from, to int64
	buffer   []byte // to-from bytes; filled parts never change
	refs     atomic.Int32

	mu     sync.Mutex
	next   int                            // parts before it have been taken
	filled [MaxReadBytes / partBytes]bool // by part
	// failed means that a part could not be filled, or that the block was left off. The reader's
	// own read returns the error.
	failed bool
	waits  *waiter // readers to wake when a part is filled or fails
}

// waiter is a reader that waits for parts of a block. Waiters are pooled, because a reply may have
// to wait several times.
type waiter struct {
	wake  chan struct{} // capacity 1
	timer *time.Timer
	next  *waiter // next waiter for the same block
}

func newWaiter() any {
	w := &waiter{wake: make(chan struct{}, 1), timer: time.NewTimer(stalled)}
	w.timer.Stop()
	return w
}

func (b *block) hold() { b.refs.Add(1) }

func (b *block) drop() {
	if b.refs.Add(-1) == 0 {
		b.source.buffers.put(b.buffer)
		b.source.holders.blocks.Add(-1)
	}
}

// part returns the range of part i.
func (b *block) part(i int) (from, to int64) {
	from = b.from + int64(i)*partBytes
	return from, min(from+partBytes, b.to)
}

// take returns the next part that no goroutine has taken, if it ends at or before the given offset
// in the stream. The caller fills the part and calls done.
func (b *block) take(before int64) (part int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if from, to := b.part(b.next); b.failed || from >= b.to || to > before {
		return 0, false
	}
	b.next++
	return b.next - 1, true
}

// isTaken reports whether no part is left to take.
func (b *block) isTaken() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	from, _ := b.part(b.next)
	return b.failed || from >= b.to
}

// done records that a part is filled, or that filling it failed.
func (b *block) done(part int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.filled[part] = err == nil
	b.failed = b.failed || err != nil
	b.wake()
}

// state reports whether all parts up to an offset in the stream are filled (there), and whether
// missing ones may still be filled (coming).
func (b *block) state(to int64) (there, coming bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	there = true
	for i := 0; b.from+int64(i)*partBytes < to; i++ {
		there = there && b.filled[i]
	}
	return there, !b.failed
}

// has waits until the bytes up to an offset in the stream are filled. It returns false if they
// can't be filled, or not soon. The wait is charged to what the filling goroutines wait for.
func (b *block) has(ctx context.Context, to int64, waits *meter.Waiter, fillers *meter.WaitClock) bool {
	if there, coming := b.state(to); there || !coming {
		return there
	}
	w := b.enter()
	defer b.leave(w)
	number := waits.Begin(meter.Copy, fillers, nil, 0)
	defer waits.End(number)
	for {
		// Any change from here on wakes this waiter.
		if there, coming := b.state(to); there || !coming {
			return there
		}
		w.timer.Reset(stalled)
		select {
		case <-w.wake:
		case <-w.timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// filledUntil returns the end of the parts that are filled without a gap from the start of the
// block, or to if that is less.
func (b *block) filledUntil(to int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	end := b.from
	for i := 0; end < to && b.filled[i]; i++ {
		_, end = b.part(i)
	}
	return min(end, to)
}

// leaveOff stops parts from being taken, and ends all waits for those that were.
func (b *block) leaveOff() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed = true
	b.wake()
}

// wake wakes all waiters of the block. It is called with mu held.
func (b *block) wake() {
	for w := b.waits; w != nil; w = w.next {
		select {
		case w.wake <- struct{}{}:
		default: // already woken
		}
	}
}

// enter adds a waiter.
func (b *block) enter() *waiter {
	w := b.source.waiters.Get().(*waiter)
	b.mu.Lock()
	defer b.mu.Unlock()
	w.next, b.waits = b.waits, w
	return w
}

// leave removes a waiter.
func (b *block) leave(w *waiter) {
	b.mu.Lock()
	at := &b.waits
	for *at != w {
		at = &(*at).next
	}
	*at, w.next = w.next, nil
	b.mu.Unlock()
	// The waiter is no longer reachable, so nothing is sent after this drain.
	w.timer.Stop()
	select {
	case <-w.wake:
	default:
	}
	b.source.waiters.Put(w)
}

// bytes returns the range [from, to) of the buffer, which must be filled or taken by the caller.
func (b *block) bytes(from, to int64) []byte {
	return b.buffer[:cap(b.buffer)][from-b.from : to-b.from : to-b.from]
}
