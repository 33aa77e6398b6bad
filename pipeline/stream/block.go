package stream

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// stalled is how long a reader waits for the next part of a block before it
// reads for itself: the range that the block's goroutine waits for may be one
// that this reader does not want, and the reader's own deadline counts from its
// own call.
const stalled = 20 * time.Millisecond

// block is a stretch [from, to) of a worker's data, copied together ahead of its
// reader. The handle that has it and the replies with slices of it count as
// references; with the last one its memory goes back.
type block struct {
	source   *Source
	from, to int64
	buffer   []byte // of to-from bytes; up to filled they don't change any more
	refs     atomic.Int32
	begun    bool // under Handle.mu: a goroutine fills it, or has

	mu     sync.Mutex
	filled int64
	ended  bool          // nothing more comes
	more   chan struct{} // closed when more has come, nil where nobody waits
}

func (b *block) hold() { b.refs.Add(1) }

func (b *block) drop() {
	if b.refs.Add(-1) == 0 {
		b.source.buffers.put(b.buffer)
		b.source.holders.blocks.Add(-1)
	}
}

// advance tells that so many bytes are filled, or, beside what is, that no more
// will be.
func (b *block) advance(filled int64, ended bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.filled, b.ended = max(b.filled, filled), ended
	if b.more != nil {
		close(b.more)
		b.more = nil
	}
}

// has waits until the bytes up to a place in the stream are there. It returns
// false when they don't come, or not soon.
func (b *block) has(ctx context.Context, to int64) bool {
	var timer *time.Timer
	for {
		b.mu.Lock()
		there, ended, more := b.from+b.filled >= to, b.ended, b.more
		if !there && !ended && more == nil {
			more = make(chan struct{})
			b.more = more
		}
		b.mu.Unlock()
		if there || ended {
			return there
		}
		if timer == nil {
			timer = time.NewTimer(stalled)
			defer timer.Stop()
		} else {
			timer.Reset(stalled)
		}
		select {
		case <-more:
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// bytes of the stretch [from, to), which must be filled.
func (b *block) bytes(from, to int64) []byte {
	return b.buffer[:cap(b.buffer)][from-b.from : to-b.from : to-b.from]
}
