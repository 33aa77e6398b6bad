package catalog

import (
	"context"
	"sync"
)

// admission limits how many shards are indexed at a time. Until a shard is finished, the index
// entries of its records are held in memory. Their size is estimated from everything read so far
// from all shards: for images in tars it is a 10 000th of the file, for short lines a 20th. Shards
// may begin as long as the expected total stays within a bound. One shard may always run; it fails
// if it exceeds the bound by itself (index.NewPacker). It is safe for concurrent use.
type admission struct {
	boundBytes int64

	mu      sync.Mutex
	wake    chan struct{} // buffered with one element: something has changed
	running map[*admitted]struct{}
	read    int64 // bytes of finished shards
	held    int64 // bytes that were held for them at their end
}

// admitted is a shard that is being indexed.
type admitted struct {
	of         *admission
	size       int64 // of the file
	read, held int64 // bytes
}

func newAdmission(boundBytes int64) *admission {
	return &admission{boundBytes: boundBytes, wake: make(chan struct{}, 1), running: map[*admitted]struct{}{}}
}

// begin waits until a shard of sizeBytes may begin. It must be called from one goroutine.
func (a *admission) begin(ctx context.Context, sizeBytes int64) (*admitted, error) {
	for {
		if s := a.try(sizeBytes); s != nil {
			return s, nil
		}
		select {
		case <-a.wake:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (a *admission) try(sizeBytes int64) *admitted {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.running) > 0 && a.expected(sizeBytes) > float64(a.boundBytes) {
		return nil
	}
	s := &admitted{of: a, size: sizeBytes}
	a.running[s] = struct{}{}
	return s
}

const (
	// enoughBytes is how many bytes must have been read before the measured share of held bytes is
	// used.
	enoughBytes = 1 << 20
	// mostHeld is the share assumed until then: lines of 4 bytes take that much, lines of 2 bytes
	// twice as much.
	mostHeld = 0.25
	// margin allows for shards that are unlike the others, and for the growth of slices.
	margin = 1.5
)

// expected returns how many bytes will be held once another shard of sizeBytes has begun. mu must
// be held.
func (a *admission) expected(sizeBytes int64) float64 {
	read, held := a.read, a.held
	for s := range a.running {
		read, held = read+s.read, held+s.held
	}
	share := mostHeld
	if read >= enoughBytes {
		share = margin * float64(held) / float64(read)
	}
	all := share * float64(sizeBytes)
	for s := range a.running {
		all += max(share*float64(s.size), float64(s.held))
	}
	return all
}

// reached records how much of a shard has been read, and how many bytes are held for its records.
func (s *admitted) reached(readBytes, heldBytes int64) {
	s.of.change(func() { s.read, s.held = readBytes, heldBytes })
}

// end reports that nothing is held for a shard any more.
func (s *admitted) end() {
	s.of.change(func() {
		delete(s.of.running, s)
		s.of.read, s.of.held = s.of.read+s.read, s.of.held+s.held
	})
}

func (a *admission) change(how func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	how()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}
