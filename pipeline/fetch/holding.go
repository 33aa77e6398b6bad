package fetch

import (
	"math"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// holding is what it takes to have pieces in memory: their bytes, what is lost
// between them, and their tables, which of short records take more than the
// records themselves. It is what all decisions about memory go by.
type holding struct {
	shards  int    // that hold records of the part
	packed  int    // of these, the compressed ones
	bytes   int64  // of these, decoded
	records uint64 // of any kind that these hold
	pieces  int    // that hold records of the part
	tables  int64  // of all these pieces
	decoder int64  // about what a decoder holds, of the shards where that is most
}

// survey of the shards and pieces in use. What lies between records of the part is
// mostly read with them.
func (f *Fetcher) holding() holding {
	var h holding
	for i := range f.index.Shards() {
		if s := f.index.Shard(i); f.recordsOf(s) > 0 {
			h.shards++
			h.bytes += s.DecodedBytes
			h.records += s.Records
			if s.Codec != nil {
				h.packed++
				h.decoder = max(h.decoder, decoderBytesOf(&s))
			}
		}
	}
	for piece := range f.pieces.len() {
		if f.wants(piece) {
			h.pieces++
			h.tables += tableBytes(f.pieces.records(piece))
		}
	}
	return h
}

// pieceBytes is about the size of a large piece.
func (h *holding) pieceBytes(c *Config) int64 {
	record := float64(h.bytes) / float64(max(h.records, 1))
	return int64(min(float64(c.PieceBytes), float64(c.PieceRecords)*record) + record)
}

// all is what it takes to have all pieces in memory: the last segment is partly
// empty, and one is spare.
func (h *holding) all(c *Config, l *limits) int64 {
	return max(l.placed(h.bytes, h.pieces, h.pieceBytes(c)), l.placedTables(h.tables)) + 2*l.segment + h.tables
}

// placed is what pieces of so many bytes take in segments: they begin at cache
// lines or pages, and what does not fit behind them is lost, but never more than
// half.
func (l *limits) placed(bytes int64, pieces int, pieceBytes int64) int64 {
	if pieceBytes >= alignFrom {
		bytes += int64(pieces) * 2 * pageBytes
	} else {
		bytes += int64(pieces) * 64
	}
	if pieceBytes >= l.segment {
		return bytes
	}
	return min(2*bytes, int64(float64(bytes)*float64(l.segment)/float64(l.segment-pieceBytes)))
}

// placedTables is what segments take however little is in them, as each has so
// many bytes of tables at most.
func (l *limits) placedTables(tables int64) int64 { return tables / l.tables * l.segment }

// room is what pieces and their tables have beside so many decoders, which never
// take more than half.
func (f *Fetcher) room(decoders int64) int64 {
	return max(f.limits.cache/2, f.limits.cache-decoders*f.held.decoder)
}

// decoderBytesOf is about what a decoder of a shard holds: of zstd's frames, which
// have a window each, as for one that the usual levels make.
func decoderBytesOf(s *catalog.Shard) int64 {
	if s.Codec.Name() == "gzip" {
		return decoderBytes
	}
	return decoderBytes + min(s.DecodedBytes/int64(max(s.Members, 1)), usualWindowBytes)
}

// usualWindowBytes is zstd's up to level 8.
const usualWindowBytes = 2 << 20

// fits says whether all shards in use can be held, decoded, with their tables. A
// quarter is left to what comes and goes meanwhile.
func (f *Fetcher) fits() bool {
	h := &f.held
	return h.bytes <= f.limits.cache/4*3 && h.all(&f.config, &f.limits) <= f.room(int64(min(h.packed, f.config.Decoders)))
}

// waiting is about how much a scan keeps of records that have been read and wait
// for their turn: what the shuffle holds, for each place where the order is read,
// with what is lost between records that stay and such that have gone; the pieces
// that they come with; and the tables of the pieces of which any waits.
func (f *Fetcher) waiting() int64 {
	h, o := &f.held, f.config.Order
	all := h.all(&f.config, &f.limits)
	if h.records == 0 || o.Shuffle == spec.ShuffleFull {
		return all
	}
	places := float64(max(f.config.Spool.Places, 1))
	waits := float64(o.SizeRecords)*float64(h.bytes)/float64(h.records)*1.5 + 2*float64(o.Lanes)*float64(f.config.PieceBytes)
	return int64(min(places*waits+float64(f.waitingTables()), float64(all)))
}

// waitingTables is about what the tables of pieces take of which any record waits.
func (f *Fetcher) waitingTables() int64 {
	if f.held.pieces == 0 {
		return 0
	}
	return int64(f.openPieces() / float64(f.held.pieces) * float64(f.held.tables))
}

// openPieces is about of how many pieces any record waits.
func (f *Fetcher) openPieces() float64 {
	return f.openRuns(float64(f.held.records)/float64(max(f.held.pieces, 1)), float64(f.held.pieces))
}

// openDecoders is about how many decoders stand in shards at a time.
func (f *Fetcher) openDecoders() int64 {
	open := f.openRuns(float64(f.held.records)/float64(max(f.held.shards, 1)), float64(f.held.packed))
	return int64(min(open, float64(f.config.Decoders)))
}

// openRuns is about of how many runs of R consecutive records any waits: the last of
// them leaves a buffer of B after about B·ln R turns (see need).
func (f *Fetcher) openRuns(r, most float64) float64 {
	o := f.config.Order
	places := float64(max(f.config.Spool.Places, 1))
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
func (f *Fetcher) begunAgain(c *compressed) float64 {
	places := float64(max(f.config.Spool.Places, 1))
	if f.config.Order.Shuffle != spec.ShuffleNone {
		places *= float64(max(f.config.Order.Lanes, 1))
	}
	if places < 2 {
		return 0
	}
	return places / 2 / float64(max(c.shards, 1))
}
