package stream

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/meter"
)

const (
	// partBytes is how much of a block is filled at a time, by one goroutine.
	partBytes = 128 << 10
	// stalled is how long a reader waits for the parts of a block that others
	// fill before it reads for itself: the range that they wait for may be one
	// that this reader does not want, and the reader's own deadline counts from
	// its own call.
	stalled = 20 * time.Millisecond
)

// block is a stretch [from, to) of a worker's data, copied together ahead of its
// reader, part by part: by the handle's goroutine, and by a reader who comes
// before that is through. The handle that has it and the replies with slices of
// it count as references; with the last one its memory goes back.
type block struct {
	source   *Source
	from, to int64
	buffer   []byte // of to-from bytes; parts that are filled don't change any more
	refs     atomic.Int32

	mu     sync.Mutex
	next   int                            // parts before it have been taken
	filled [MaxReadBytes / partBytes]bool // by part
	failed bool                           // a part could not be filled, or was left off: the reader will be told why
	waits  *waiter                        // who is woken when a part is filled or failed
}

// waiter is a reader that waits for parts of a block. They are pooled: a reply
// may have to wait several times.
type waiter struct {
	wake  chan struct{} // of capacity 1
	timer *time.Timer
	next  *waiter // of the same block
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

// part is the stretch of a part.
func (b *block) part(i int) (from, to int64) {
	from = b.from + int64(i)*partBytes
	return from, min(from+partBytes, b.to)
}

// take gives the next part that nobody has taken, if it ends before a place in
// the stream or there; the caller fills it and says done.
func (b *block) take(before int64) (part int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if from, to := b.part(b.next); b.failed || from >= b.to || to > before {
		return 0, false
	}
	b.next++
	return b.next - 1, true
}

// isTaken says that all parts are taken.
func (b *block) isTaken() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	from, _ := b.part(b.next)
	return b.failed || from >= b.to
}

// done tells that a part is filled, or can't be.
func (b *block) done(part int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.filled[part] = err == nil
	b.failed = b.failed || err != nil
	b.wake()
}

// state says whether all parts up to a place in the stream are filled, and
// whether they may still be.
func (b *block) state(to int64) (there, coming bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	there = true
	for i := 0; b.from+int64(i)*partBytes < to; i++ {
		there = there && b.filled[i]
	}
	return there, !b.failed
}

// has waits until the bytes up to a place in the stream are there. It returns
// false when they don't come, or not soon. It waits for what those wait for who
// fill the block.
func (b *block) has(ctx context.Context, to int64, waits *meter.Waiter, fillers *meter.Ledger) bool {
	if there, coming := b.state(to); there || !coming {
		return there
	}
	w := b.enter()
	defer b.leave(w)
	number := waits.Begin(meter.Copy, fillers, nil, 0)
	defer waits.End(number)
	for {
		// Whatever changes from here on wakes.
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

// filledUntil is where the parts end that are filled without a gap from the block's
// begin on, or a place in the stream before that.
func (b *block) filledUntil(to int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	end := b.from
	for i := 0; end < to && b.filled[i]; i++ {
		_, end = b.part(i)
	}
	return min(end, to)
}

// leaveOff has no more parts be taken, and nobody wait for those that were.
func (b *block) leaveOff() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed = true
	b.wake()
}

// wake wakes who waits for the block. It is called with mu held.
func (b *block) wake() {
	for w := b.waits; w != nil; w = w.next {
		select {
		case w.wake <- struct{}{}:
		default: // it will look anyway
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

// leave takes a waiter out again.
func (b *block) leave(w *waiter) {
	b.mu.Lock()
	at := &b.waits
	for *at != w {
		at = &(*at).next
	}
	*at, w.next = w.next, nil
	b.mu.Unlock()
	// Nobody knows it any more: nothing comes behind these.
	w.timer.Stop()
	select {
	case <-w.wake:
	default:
	}
	b.source.waiters.Put(w)
}

// bytes of the stretch [from, to), which must be filled, or be the caller's to
// fill.
func (b *block) bytes(from, to int64) []byte {
	return b.buffer[:cap(b.buffer)][from-b.from : to-b.from : to-b.from]
}
