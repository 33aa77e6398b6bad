package stream

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/meter"
)

const (
	// maxBlocks bounds the number of blocks of all handles together; a block has at most 1 MiB.
	maxBlocks = 16
	// handleBlocks is the number of blocks per handle: the one being read, the next one, and the
	// one being filled.
	handleBlocks = 3
	// firstAheadBytes is how much a reader reads sequentially before blocks are copied ahead of it.
	// Shorter runs may be random access.
	firstAheadBytes = 256 << 10
)

// ahead is the state of a handle's read-ahead: blocks that are copied together before their reader
// asks for them, while cores are idle. The copy then overlaps with the kernel's copy to the reader.
// Records that are already contiguous in memory are not copied ahead. It is guarded by Handle.mu.
type ahead struct {
	next    int64    // end of the last read
	run     int64    // length of the sequential run that ends at next, in bytes
	blocks  []*block // each starts where the previous one ends
	filling bool     // a goroutine is filling blocks
	at      *block   // the block it is filling; nil if none
	closed  bool
	waits   meter.WaitClock // of the goroutine that fills
	ctx     context.Context
	cancel  context.CancelFunc // nil until the first read-ahead
}

// read fills r with the bytes [from, to) of the file: from blocks as far as they are filled, then
// from memory or storage.
func (h *Handle) read(ctx context.Context, r *Reply, from, to, size int64) error {
	var taken [handleBlocks]*block
	for _, b := range h.follow(taken[:0], from, to, size) {
		end := min(to, b.to)
		if from < b.from || from >= end {
			b.drop()
			continue
		}
		if !h.help(ctx, b, end, r.waits) || !b.has(ctx, end, r.waits, &h.ahead.waits) {
			end = b.filledUntil(end)
			h.leaveOff(ctx, b)
			r.again = true // the goroutine that fills the block may have been lent what is read now
		}
		if from < end {
			r.share(b, from, end)
			from = end
		} else {
			b.drop()
		}
	}
	if from == to {
		return nil
	}
	return h.data(ctx, r, from, to)
}

// follow records a read of [from, to), starts reading ahead of it if that is worthwhile, and
// returns the blocks that the read overlaps, holding a reference to each.
func (h *Handle) follow(taken []*block, from, to, size int64) []*block {
	s, a := h.set.source, &h.ahead
	idle := s.recent.add(h.number)
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(a.blocks)
	if from != a.next && (n == 0 || from < a.blocks[0].from || from > a.blocks[n-1].to) {
		a.clear()
		a.run = 0
		if a.cancel != nil { // don't wait for a block that is being filled at the old position
			a.cancel()
			a.ctx, a.cancel = context.WithCancel(context.Background())
		}
	}
	a.run += to - from
	a.next = to
	for len(a.blocks) > 0 && a.blocks[0].to <= from {
		a.blocks[0].drop()
		a.blocks = append(a.blocks[:0], a.blocks[1:]...)
	}
	if idle && !h.joins && a.run >= firstAheadBytes && !a.closed && !h.reader.Busy() {
		h.extend(from, to, size)
	}
	for _, b := range a.blocks {
		if b.from < to {
			b.hold()
			taken = append(taken, b)
		}
	}
	return taken
}

func (a *ahead) clear() {
	for _, b := range a.blocks {
		b.drop()
	}
	a.blocks = a.blocks[:0]
}

// extend adds blocks after the existing ones, each at least as large as the reads. It is called
// with h.mu held.
func (h *Handle) extend(from, to, size int64) {
	a, s := &h.ahead, h.set.source
	length := min(max(to-from, a.run/4), MaxReadBytes)
	for len(a.blocks) < handleBlocks {
		at := to
		if n := len(a.blocks); n > 0 {
			at = max(at, a.blocks[n-1].to)
		}
		end := min(at+length, size)
		if at >= end {
			break
		}
		b := s.newBlock(h, at, end)
		if b == nil {
			break
		}
		a.blocks = append(a.blocks, b)
	}
	if a.unfilled() == nil || a.filling {
		return
	}
	if a.cancel == nil {
		a.ctx, a.cancel = context.WithCancel(context.Background())
	}
	a.filling = true
	h.fillers.Go(h.fill)
}

// unfilled returns the first block with parts that no goroutine has taken, or nil.
func (a *ahead) unfilled() *block {
	for _, b := range a.blocks {
		if !b.isTaken() {
			return b
		}
	}
	return nil
}

// fill fills blocks until none is unfilled.
func (h *Handle) fill() {
	var r Reply
	for {
		h.mu.Lock()
		b := h.ahead.unfilled()
		if b == nil {
			h.ahead.filling, h.ahead.at = false, nil
			h.mu.Unlock()
			return
		}
		b.hold()
		h.ahead.at = b
		ctx := h.ahead.ctx
		h.mu.Unlock()
		h.fillBlock(ctx, &r, b)
		b.drop()
	}
}

func (h *Handle) fillBlock(ctx context.Context, r *Reply, b *block) {
	w := meter.Waiter{Ledger: &h.ahead.waits}
	r.waits = &w
	began := meter.Now()
	for {
		part, ok := b.take(b.to)
		if !ok {
			h.set.source.meter.Ahead.Add(meter.Now() - began - w.Nanos)
			return
		}
		from, to := b.part(part)
		r.copyInto(b.bytes(from, to)[:0])
		b.done(part, h.data(ctx, r, from, to))
		r.leave()
	}
}

// help fills those parts of a block that the reader needs completely and that no goroutine has
// taken yet. It returns false if a part can't be filled.
func (h *Handle) help(ctx context.Context, b *block, to int64, w *meter.Waiter) bool {
	part, ok := b.take(to)
	if !ok {
		return true
	}
	r := h.set.source.replies.Get().(*Reply)
	defer h.set.source.replies.Put(r)
	r.waits = w
	for ; ok; part, ok = b.take(to) {
		from, end := b.part(part)
		r.copyInto(b.bytes(from, end)[:0])
		err := h.data(ctx, r, from, end)
		r.leave()
		b.done(part, err)
		if err != nil {
			return false
		}
	}
	return true
}

// leaveOff stops the filling of a block that is late, because its reader reads the rest itself: so
// hardly any record is lent to both. The blocks after it are still filled. If the reader has gone,
// the block is left for the next one.
func (h *Handle) leaveOff(ctx context.Context, b *block) {
	if ctx.Err() != nil {
		return
	}
	b.leaveOff()
	h.mu.Lock()
	defer h.mu.Unlock()
	if a := &h.ahead; a.at == b && a.cancel != nil && !a.closed {
		a.at = nil
		a.cancel()
		a.ctx, a.cancel = context.WithCancel(context.Background())
	}
}

// endAhead stops reading ahead permanently.
func (h *Handle) endAhead() {
	h.mu.Lock()
	h.ahead.closed = true
	h.ahead.clear()
	cancel := h.ahead.cancel
	h.mu.Unlock()
	h.set.source.recent.forget(h.number)
	if cancel != nil {
		cancel()
		h.fillers.Wait()
	}
	h.set.source.holders.remove(h) // it may be listed without ever having got a block
}

// giveUp drops the blocks of a handle that is not being read. It returns false if the handle is in
// use.
func (h *Handle) giveUp() bool {
	if !h.mu.TryLock() {
		return false
	}
	defer h.mu.Unlock()
	h.ahead.clear()
	return true
}

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

// recent remembers which handles read data last, without a clock.
type recent struct {
	cores int // CPUs that may be busy at once; constant
	n     atomic.Uint32
	reads [32]atomic.Uint64 // numbers of handles
}

// add records a read, and reports whether cores are idle for reading ahead. If many readers take
// turns, all cores are busy, and filling blocks would only slow down replies.
func (c *recent) add(handle uint64) bool {
	c.reads[c.n.Add(1)%uint32(len(c.reads))].Store(handle)
	if c.cores == 1 {
		return false
	}
	var seen [len(c.reads)]uint64
	n := 0
	for i := range c.reads {
		number := c.reads[i].Load()
		if number == 0 || slices.Contains(seen[:n], number) {
			continue
		}
		seen[n] = number
		if n++; n > c.cores/2 {
			return false
		}
	}
	return true
}

// forget removes a closed handle.
func (c *recent) forget(handle uint64) {
	for i := range c.reads {
		c.reads[i].CompareAndSwap(handle, 0)
	}
}

// holders are the handles with blocks, ordered by when they last got one, the latest last.
type holders struct {
	mu     sync.Mutex
	list   []*Handle
	blocks atomic.Int64 // of all handles and replies
}

// newBlock returns a new block for a handle. If all maxBlocks are in use, it takes back the blocks
// of the handle that has gone longest without a new one, and returns nil this time.
func (s *Source) newBlock(h *Handle, from, to int64) *block {
	s.holders.mu.Lock()
	defer s.holders.mu.Unlock()
	list := slices.DeleteFunc(s.holders.list, func(o *Handle) bool { return o == h })
	s.holders.list = append(list, h)
	if s.holders.blocks.Load() >= maxBlocks {
		for i, o := range list {
			if o.giveUp() {
				s.holders.list = slices.Delete(s.holders.list, i, i+1)
				break
			}
		}
		return nil
	}
	s.holders.blocks.Add(1)
	b := &block{source: s, from: from, to: to, buffer: s.buffers.get(int(to - from))}
	b.refs.Store(1)
	return b
}

func (c *holders) remove(h *Handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = slices.DeleteFunc(c.list, func(o *Handle) bool { return o == h })
}
