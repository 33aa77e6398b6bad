package choose

import (
	"math"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Settings is what a choice depends on besides the dataset.
type Settings struct {
	MemoryBytes              int64
	PieceBytes, PieceRecords uint64 // of a large piece
	Decoders                 int    // maximum number that is kept
	Order                    spec.Order
	Places                   uint64 // of the order that are read at the same time; 0 is 1
	MaxSpoolBytes            int64  // 0 for what the order needs
	CacheRoomBytes           int64  // that a disk cache may keep of planned chunks; 0 if there is no cache
	LookaheadBytes           int64  // of all readers together; 0 for what their rates require
	Storage                  storage.Profile
}

// Sizes is all that a choice depends on. They are plain values.
type Sizes struct {
	Settings
	Limits Limits

	Held       Held
	Compressed bool // some shard is compressed, wanted or not
	// Shards are the dataset's shards, in its order. Only Choose and Lookahead look at them.
	Shards []Shard
}

// Shard is what a choice needs to know about a shard.
type Shard struct {
	DecodedBytes    int64
	StoredBytes     int64  // of its object
	Records, Wanted uint64 // Wanted counts those in the part
	// EntryPoints and Parts are as in catalog.Shard. Members counts the places where decoding can
	// start, including points within members.
	EntryPoints, Members uint64
	Compressed, Parts    bool
}

// Held is what it takes to have pieces in memory: their bytes, what is lost between them, and their
// tables, which take more than the records if these are short. All decisions about memory depend on
// it.
type Held struct {
	Shards       int    // that hold records of the part
	Packed       int    // of these, the compressed ones
	Bytes        int64  // of these, decoded
	Records      uint64 // in these, of the part or not
	Pieces       int    // that hold records of the part
	TableBytes   int64  // of all these pieces
	DecoderBytes int64  // about what a decoder holds, for the shards for which that is most

	// If an epoch takes a sample, Bytes and Records are what it reads and has of the shards. Then
	// WholeBytes and WholeRecords are those of the shards, and Ranges is about how many ranges of a
	// piece are read on average. All three are 0 without a sample.
	WholeBytes   int64
	WholeRecords uint64
	Ranges       float64
}

const (
	// DecoderBytes is about what a decoder holds.
	DecoderBytes = 1 << 20
	// BesideDecoderBytes is what is held besides a codec's decoder: blocks of the file, and a
	// buffer for bytes that are skipped.
	BesideDecoderBytes = 512 << 10
	// usualWindowBytes is zstd's window up to level 8.
	usualWindowBytes = 2 << 20
)

// DecoderBytesOf returns about what a decoder holds for a shard of that many bytes and members. For
// zstd, whose frames have a window each, it assumes the window of the usual levels.
func DecoderBytesOf(codec string, decodedBytes int64, members uint64) int64 {
	if codec == "gzip" {
		return DecoderBytes
	}
	return DecoderBytes + min(decodedBytes/int64(max(members, 1)), usualWindowBytes)
}

// heldPieceBytes returns about how many bytes of a large piece are held.
func (s *Sizes) heldPieceBytes() int64 {
	if h := &s.Held; h.WholeBytes > 0 {
		return 2 * h.Bytes / int64(max(h.Pieces, 1))
	}
	return s.pieceBytes()
}

// pieceBytes returns about the size of a large piece.
func (s *Sizes) pieceBytes() int64 {
	return s.Held.LargePieceBytes(s.PieceBytes, s.PieceRecords)
}

// LargePieceBytes returns about the size of a piece that ends with the record that reaches
// pieceBytes or pieceRecords.
func (h *Held) LargePieceBytes(pieceBytes, pieceRecords uint64) int64 {
	bytes, records := h.whole()
	record := float64(bytes) / float64(max(records, 1))
	return int64(min(float64(pieceBytes), float64(pieceRecords)*record) + record)
}

// AllBytes returns what it takes to have all pieces in memory: the last segment is partly empty,
// and one is spare.
func (s *Sizes) AllBytes() int64 {
	h, l := &s.Held, &s.Limits
	return max(l.placed(h.Bytes, h.Pieces, s.heldPieceBytes()), l.placedTables(h.TableBytes)) + 2*l.SegmentBytes + h.TableBytes
}

// placed returns what pieces of that many bytes take in segments: they begin at cache lines or
// pages, and the end of a segment that is too small for the next piece is lost, but never more than
// half of a segment.
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

// placedTables returns what segments take however little is in them, since the tables of each are
// limited to TableBytes.
func (l *Limits) placedTables(tables int64) int64 { return tables / l.TableBytes * l.SegmentBytes }

// Room returns what the given number of decoders leaves for pieces and their tables: at least half.
func (s *Sizes) Room(decoders int64) int64 {
	return max(s.Limits.CacheBytes/2, s.Limits.CacheBytes-decoders*s.Held.DecoderBytes)
}

// Fits reports whether all shards in use can be held, decoded, with their tables. A quarter is left
// for what is loaded and dropped meanwhile.
func (s *Sizes) Fits() bool {
	h := &s.Held
	return h.Bytes <= s.Limits.CacheBytes/4*3 && s.AllBytes() <= s.Room(int64(min(h.Packed, s.Decoders)))
}

// waiting returns about how much a scan keeps of records that have been read and are not due yet:
// what the shuffle holds, for each place where the order is read, with what is lost between kept
// and delivered records; the pieces that they are in; and the tables of the pieces that have
// waiting records.
func (s *Sizes) waiting() int64 {
	h, o := &s.Held, s.Order
	all := s.AllBytes()
	if h.Records == 0 || o.Shuffle == spec.ShuffleFull {
		return all
	}
	places := float64(max(s.Places, 1))
	waits := float64(o.SizeRecords)*float64(h.Bytes)/float64(h.Records)*1.5 + 2*float64(o.Lanes)*float64(s.PieceBytes)
	return int64(min(s.withTables(places*waits), float64(all)))
}

// withTables returns what it takes to keep that many bytes of waiting records, with the tables of
// their pieces: the tables themselves, and the segments. If records are short, there are as many
// segments as the tables require, and most of each is empty.
func (s *Sizes) withTables(bytes float64) float64 {
	tables := s.waitingTables()
	return max(bytes, float64(s.Limits.placedTables(tables))) + float64(tables)
}

// waitingTables returns about what the tables of pieces with waiting records take.
func (s *Sizes) waitingTables() int64 {
	if s.Held.Pieces == 0 {
		return 0
	}
	return int64(s.OpenPieces() / float64(s.Held.Pieces) * float64(s.Held.TableBytes))
}

// OpenPieces returns about how many pieces have waiting records.
func (s *Sizes) OpenPieces() float64 {
	return s.openRuns(float64(s.Held.Records)/float64(max(s.Held.Pieces, 1)), float64(s.Held.Pieces))
}

// OpenDecoders returns about how many decoders are in the middle of shards at a time.
func (s *Sizes) OpenDecoders() int64 {
	open := s.openRuns(float64(s.Held.Records)/float64(max(s.Held.Shards, 1)), float64(s.Held.Packed))
	return int64(min(open, float64(s.Decoders)))
}

// openRuns returns about how many runs of R consecutive records have waiting ones: the last record
// of a run leaves a buffer of B after about B·ln R turns (see need).
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

// begunAgain returns about how often each byte is decoded after the first time, only because places
// of the order begin inside of shards, whose decoding has to start at their beginning: half a shard
// for each place.
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

const (
	// Segments are large enough for huge pages, and small enough that a small budget still has 64
	// of them.
	maxSegmentBytes = 2 << 20
	minSegmentBytes = 64 << 10
	minSegments     = 64
)

// Limits are the limits that follow from the budget.
type Limits struct {
	SegmentBytes  int64 // of a segment
	TableBytes    int64 // of the tables of a segment's pieces; beyond this a new segment is begun
	CacheBytes    int64 // segments are freed above this many bytes
	WindowBytes   int64 // of what all readers read ahead together
	InFlightBytes int64 // of what is read ahead and has not arrived yet
	DecoderBytes  int64 // of all decoders together
	RawBlockBytes int   // of a decoder's reads
	LoanSegments  int   // maximum number of segments that one Read pins
}

// SegmentBytes returns the size of the segments of a budget.
func SegmentBytes(budget int64) int64 {
	return min(max(budget/minSegments, minSegmentBytes), maxSegmentBytes) &^ 4095
}

// segmentFor returns the size of the segments of a budget for pieces of a size. If they leave much
// of each segment empty, segments are twice as large, provided that the budget still has 64 of
// them.
func segmentFor(budget, pieceBytes int64) int64 {
	n := SegmentBytes(budget)
	if 2*n > budget/minSegments || pieceBytes <= 0 || pieceBytes > n {
		return n
	}
	empty := func(n int64) float64 { return float64(n%pieceBytes) / float64(n) }
	if empty(n)-empty(2*n) < leastGain {
		return n
	}
	return 2 * n
}

// leastGain is the share of a segment that has to be gained for twice its size.
const leastGain = 0.2

// NewLimits returns the limits of a budget from which tables take some, for a storage, and pieces
// of about that size; 0 if that is not known. It allows for twice the bytes in flight that keep the
// storage busy: readers request more only as they advance, and without a reserve nothing else would
// be queued meanwhile.
func NewLimits(budget, tables, pieceBytes int64, p storage.Profile) Limits {
	l := Limits{SegmentBytes: segmentFor(budget, pieceBytes)}
	l.CacheBytes = max(budget-tables, budget/2)
	if l.CacheBytes >= 8*l.SegmentBytes {
		l.CacheBytes -= 2 * l.SegmentBytes // one to copy into, one spare
	}
	// Making room drops a whole segment, and a segment of very short records could hold the whole
	// dataset.
	l.TableBytes = min(4*l.SegmentBytes, max(l.SegmentBytes, l.CacheBytes/16))
	l.WindowBytes = l.CacheBytes / 8
	blocks := int64(512)
	if AtService(p.Kind) {
		// Here the cost of a request is waiting: a second of reading ahead is worth more memory
		// than what happens to be kept.
		l.WindowBytes = l.CacheBytes / 4
		blocks = 256
	}
	l.InFlightBytes = min(p.Ahead.QueuedBytes, 2*p.InFlightBytes, l.CacheBytes/4)
	l.DecoderBytes = l.CacheBytes / 2
	l.RawBlockBytes = int(min(max(budget/blocks, 16<<10), p.Ahead.DecodeBytes))
	l.LoanSegments = int(min(max(l.CacheBytes/l.SegmentBytes/8, 1), 64))
	return l
}

// SpoolRawBytes returns the size of a decoder's reads if shards are spooled: only as many decoders
// work as there are cores, so each may read more at a time from a service.
func SpoolRawBytes(l Limits, budget int64, p storage.Profile) int {
	if !AtService(p.Kind) {
		return l.RawBlockBytes
	}
	return int(min(max(budget/64, 16<<10), p.Ahead.DecodeBytes))
}
