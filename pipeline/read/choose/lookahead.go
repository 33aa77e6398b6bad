package choose

import "github.com/lsiofs/lsiofs/pipeline/spec"

// Lookahead returns how many pieces may be wanted at a time (0: any number), if the pieces that
// decoders store as they pass must not fill the memory, and whether a scan sweeps. A scan sweeps if
// it was asked for and would not have been chosen: memory does not hold the shards, and decoding
// can start at few places in them. Then readers look no further ahead than a quarter of the memory
// has room for, and a decoder that has begun continues to the last piece that is wanted in its
// shard. So each pass loads that many pieces.
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
		// If pieces are mostly bytes rather than tables, some of what waits in the shuffle has been
		// delivered, and takes no room any more.
		most = max(most, int64(2*s.OpenPieces()))
	}
	return most, false
}
