package decode

import (
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/meter"
)

// throughBytes is how much of a shard Through decodes at a time.
const throughBytes = 256 << 10

// Through decodes a whole shard from front to back, and calls write with the bytes, a buffer at a
// time, which is only valid during the call. It stores in clock when it last made progress (the set's
// now), and records its waits for storage in waits. It holds a core while it decodes.
func (s *Set) Through(shard int, clock *atomic.Int64, waits *meter.WaitClock, write func([]byte) error) error {
	d := s.whole(shard, clock, waits)
	defer s.endWhole(d)
	s.TakeCore()
	defer s.GiveCore()
	if err := d.open(); err != nil {
		return err
	}
	for buf := make([]byte, min(throughBytes, d.decoded)); d.pos < d.decoded; {
		b := buf[:min(d.decoded-d.pos, int64(len(buf)))]
		if err := d.fill(b); err != nil {
			return err
		}
		s.GiveCore() // write may be slow
		err := write(b)
		s.TakeCore()
		if err != nil {
			return err
		}
	}
	return d.endMember()
}

// whole returns a decoder of a whole shard, which takes no loads.
func (s *Set) whole(shard int, clock *atomic.Int64, waits *meter.WaitClock) *Decoder {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.newDecoder(shard, s.o.Index.Entry(shard, 0), throughBytes)
	d.raw.got, d.raw.waits = clock, waits
	d.running = true
	s.all[d] = struct{}{}
	s.hold(d, d.memory())
	return d
}

func (s *Set) endWhole(d *Decoder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(d)
}
