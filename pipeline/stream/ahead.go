package stream

import (
	"context"

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
		h.set.source.holders.remove(h)
	}
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
