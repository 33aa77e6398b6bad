package catalog

import (
	"context"
	"sync"
)

// admission says how many shards may be indexed at a time. Until a shard is finished, what
// is known of its records is held in memory. How much that becomes is estimated from what
// has been read so far of all shards: for images in tars it is a 10 000th of the file,
// for short lines a 20th. So many shards may begin as are expected to stay within a
// bound; one may always, and ends with an error if it does not stay within the bound by itself
// (index.NewPacker). It is safe for concurrent use.
type admission struct {
	boundBytes int64

	mu      sync.Mutex
	wake    chan struct{} // of one place: something has changed
	running map[*admitted]struct{}
	read    int64 // bytes of shards that are finished
	held    int64 // what was held of them in the end
}

// admitted is a shard that is indexed now.
type admitted struct {
	of         *admission
	size       int64 // of the file
	read, held int64 // bytes
}

func newAdmission(boundBytes int64) *admission {
	return &admission{boundBytes: boundBytes, wake: make(chan struct{}, 1), running: map[*admitted]struct{}{}}
}

// begin waits until a shard of so many bytes may begin. It is for one goroutine.
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
	// enoughBytes of shards say how much is held of a byte.
	enoughBytes = 1 << 20
	// mostHeld is expected before: lines of 4 bytes take that much, those of 2 twice.
	mostHeld = 0.25
	// margin is for shards that are not like the others, and for the growth of slices.
	margin = 1.5
)

// expected is how much will be held when another shard has begun. mu is held.
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

// reached says how much of a shard has been read, and how much is held of its records.
func (s *admitted) reached(readBytes, heldBytes int64) {
	s.of.change(func() { s.read, s.held = readBytes, heldBytes })
}

// end says that nothing is held of a shard any more.
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
