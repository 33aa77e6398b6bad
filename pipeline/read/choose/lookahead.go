package choose

import "github.com/lsiofs/lsiofs/pipeline/spec"

// Lookahead decides how many pieces may be wanted at a time (0: any number), where what
// decoders keep on their way must not fill the memory, and whether a scan sweeps: one that
// nobody would have chosen, that was asked for, of shards that memory does not hold and that
// can be entered at few places. Then readers look no further ahead than a quarter of the
// memory has room for, and a decoder that has begun goes on to the last piece that is
// wanted of its shard. So each pass brings as many pieces as that.
func (s *Sizes) Lookahead(c Choice) (mostPieces int64, sweeps bool) {
	if c.Strategy != spec.ReadScan || !s.Compressed || s.Fits() || s.Held.Pieces == 0 {
		return 0, false
	}
	h := &s.Held
	each := s.AllBytes()/int64(h.Pieces) + 1
	if usual, err := s.Choose(spec.ReadAuto); err != nil || usual.Strategy != spec.ReadScan {
		return max(s.Limits.CacheBytes/4/each, 1), true
	}
	room := s.Room(s.OpenDecoders())
	most := max(room/4*3/each, 1)
	if h.TableBytes < h.Bytes/4 && s.Order.Shuffle != spec.ShuffleFull {
		// Of pieces that are mostly bytes, what waits in the shuffle has partly gone
		// out, and takes no more room.
		most = max(most, int64(2*s.OpenPieces()))
	}
	return most, false
}
