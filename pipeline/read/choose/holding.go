package choose

import (
	"math"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// heldPieceBytes is about what is held of a large piece.
func (s *Sizes) heldPieceBytes() int64 {
	if h := &s.Held; h.WholeBytes > 0 {
		return 2 * h.Bytes / int64(max(h.Pieces, 1))
	}
	return s.pieceBytes()
}

// pieceBytes is about the size of a large piece.
func (s *Sizes) pieceBytes() int64 {
	return s.Held.LargePieceBytes(s.PieceBytes, s.PieceRecords)
}

// LargePieceBytes is about the size of a piece that ends with the record that reaches so many
// bytes, or records.
func (h *Held) LargePieceBytes(pieceBytes, pieceRecords uint64) int64 {
	bytes, records := h.whole()
	record := float64(bytes) / float64(max(records, 1))
	return int64(min(float64(pieceBytes), float64(pieceRecords)*record) + record)
}

// AllBytes is what it takes to have all pieces in memory: the last segment is partly
// empty, and one is spare.
func (s *Sizes) AllBytes() int64 {
	h, l := &s.Held, &s.Limits
	return max(l.placed(h.Bytes, h.Pieces, s.heldPieceBytes()), l.placedTables(h.TableBytes)) + 2*l.SegmentBytes + h.TableBytes
}

// placed is what pieces of so many bytes take in segments: they begin at cache
// lines or pages, and what does not fit behind them is lost, but never more than
// half.
func (l *Limits) placed(bytes int64, pieces int, pieceBytes int64) int64 {
	if pieceBytes >= budget.AlignFromBytes {
		bytes += int64(pieces) * 2 * budget.PageBytes
	} else {
		bytes += int64(pieces) * 64
	}
	if pieceBytes >= l.SegmentBytes {
		return bytes
	}
	return min(2*bytes, int64(float64(bytes)*float64(l.SegmentBytes)/float64(l.SegmentBytes-pieceBytes)))
}

// placedTables is what segments take however little is in them, as each has so
// many bytes of tables at most.
func (l *Limits) placedTables(tables int64) int64 { return tables / l.TableBytes * l.SegmentBytes }

// Room is what pieces and their tables have beside so many decoders, which never
// take more than half.
func (s *Sizes) Room(decoders int64) int64 {
	return max(s.Limits.CacheBytes/2, s.Limits.CacheBytes-decoders*s.Held.DecoderBytes)
}

// Fits says whether all shards in use can be held, decoded, with their tables. A
// quarter is left to what comes and goes meanwhile.
func (s *Sizes) Fits() bool {
	h := &s.Held
	return h.Bytes <= s.Limits.CacheBytes/4*3 && s.AllBytes() <= s.Room(int64(min(h.Packed, s.Decoders)))
}

// waiting is about how much a scan keeps of records that have been read and wait
// for their turn: what the shuffle holds, for each place where the order is read,
// with what is lost between records that stay and such that have gone; the pieces
// that they come with; and the tables of the pieces of which any waits.
func (s *Sizes) waiting() int64 {
	h, o := &s.Held, s.Order
	all := s.AllBytes()
	if h.Records == 0 || o.Shuffle == spec.ShuffleFull {
		return all
	}
	places := float64(max(s.Places, 1))
	waits := float64(o.SizeRecords)*float64(h.Bytes)/float64(h.Records)*1.5 + 2*float64(o.Lanes)*float64(s.PieceBytes)
	return int64(min(places*waits+float64(s.waitingTables()), float64(all)))
}

// waitingTables is about what the tables of pieces take of which any record waits.
func (s *Sizes) waitingTables() int64 {
	if s.Held.Pieces == 0 {
		return 0
	}
	return int64(s.OpenPieces() / float64(s.Held.Pieces) * float64(s.Held.TableBytes))
}

// OpenPieces is about of how many pieces any record waits.
func (s *Sizes) OpenPieces() float64 {
	return s.openRuns(float64(s.Held.Records)/float64(max(s.Held.Pieces, 1)), float64(s.Held.Pieces))
}

// OpenDecoders is about how many decoders stand in shards at a time.
func (s *Sizes) OpenDecoders() int64 {
	open := s.openRuns(float64(s.Held.Records)/float64(max(s.Held.Shards, 1)), float64(s.Held.Packed))
	return int64(min(open, float64(s.Decoders)))
}

// openRuns is about of how many runs of R consecutive records any waits: the last of
// them leaves a buffer of B after about B·ln R turns (see need).
func (s *Sizes) openRuns(r, most float64) float64 {
	o := s.Order
	places := float64(max(s.Places, 1))
	r = max(r, 1)
	b := max(float64(o.SizeRecords)/float64(max(o.Lanes, 1)), 1)
	open := most
	switch o.Shuffle {
	case spec.ShuffleNone:
		open = 2 * places
	case spec.ShuffleBlock:
		open = places * float64(o.Lanes) * (1 + math.Ceil(b/r))
	case spec.ShuffleReservoir:
		open = places * float64(o.Lanes) * (1 + math.Ceil(b*(math.Log(r)+1)/r))
	}
	return min(open, most)
}

// begunAgain is about how often each byte is decoded, beside the first time, only
// since decoding begins at the begin of shards that places of the order begin
// inside of: half a shard for each place.
func (s *Sizes) begunAgain(c *compressed) float64 {
	places := float64(max(s.Places, 1))
	if s.Order.Shuffle != spec.ShuffleNone {
		places *= float64(max(s.Order.Lanes, 1))
	}
	if places < 2 {
		return 0
	}
	return places / 2 / float64(max(c.shards, 1))
}
