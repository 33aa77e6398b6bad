package size

import (
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/read/choose"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
)

// Index is what is looked at of a catalog.
type Index interface {
	chunkmap.Index
	Records() uint64
	// PieceStarts are the first records of pieces, and the number of records.
	PieceStarts(pieceBytes, pieceRecords, wholeBytes uint64) []uint64
}

// Settings are what a survey goes by beside the dataset. Their fields are those of
// choose.Sizes.
type Settings struct {
	MemoryBytes              int64
	PieceBytes, PieceRecords uint64
	Decoders                 int
	Order                    spec.Order
	Places                   uint64
	MaxSpoolBytes            int64
	CacheRoomBytes           int64
	LookaheadBytes           int64
	Storage                  profile.Profile
}

// Survey is what is known of a dataset.
type Survey struct {
	Settings   Settings
	Places     *chunkmap.Map
	Held       choose.Held
	Limits     choose.Limits
	Compressed bool // some shard is, wanted or not
	// TableBytes is the memory of what there is for each piece of the dataset, whether
	// it is held or not: where it begins, whether it is there and was read before,
	// and, where shards are compressed, how often it is wanted.
	TableBytes int64

	index Index
	part  chunkmap.Part
}

// leastFrontRecords is how many records of a shard that is read from front to back
// may be a piece.
const leastFrontRecords = 128

// mostFrontRecords is how many records may be a piece of a shard that is read from front to back
// at a service: their table takes no more than a segment of 2 MiB.
const mostFrontRecords = 8192

// frontBytes is how much is asked for in one where shards at a service are read from front to
// back: what it serves at full speed, or where that is less what four readers at least can have
// several of in the memory for what is read ahead.
func frontBytes(s *Settings) uint64 {
	const several = 16
	return uint64(min(s.Storage.ReadBytes, s.MemoryBytes/several/int64(max(s.Places, 4))))
}

func packed(x Index) bool {
	for i := range x.Shards() {
		if x.Shard(i).Codec != nil {
			return true
		}
	}
	return false
}

// New surveys the part of a dataset. Where the order has a sample, it is that of one epoch,
// which stands for all of them.
func New(x Index, part chunkmap.Part, s Settings) (*Survey, error) {
	if s.Order.Shuffle == spec.ShuffleNone {
		// There are no chunks to go by, and a piece has a table.
		s.PieceRecords = max(s.PieceRecords, leastFrontRecords)
		if choose.AtService(s.Storage.Kind) && !packed(x) && s.Order.Sample.Or() == (spec.Subsample{}) {
			s.PieceBytes = max(s.PieceBytes, frontBytes(&s))
			s.PieceRecords = max(s.PieceRecords, mostFrontRecords)
		}
	}
	v := &Survey{Settings: s, index: x, part: part}
	return v.WithPieces(s.PieceBytes, false)
}

// WithPieces is a survey of the same dataset cut into pieces of another size, cutParts says whether parts
// of shards are cut, too. Settings, and what follows from them alone, stay.
func (v *Survey) WithPieces(pieceBytes uint64, cutParts bool) (*Survey, error) {
	s, x := &v.Settings, v.index
	whole := uint64(0)
	if !cutParts { // what fits into a segment of a shard that is made of parts is decoded at once
		whole = uint64(choose.SegmentBytes(s.MemoryBytes))
	}
	table, err := chunkmap.New(x.PieceStarts(pieceBytes, s.PieceRecords, whole), x.Records())
	if err != nil {
		return nil, err
	}
	w := &Survey{Settings: *s, index: x, part: v.part}
	w.Places = &chunkmap.Map{Index: x, Table: table, Part: v.part, Unaligned: choose.AtService(s.Storage.Kind) && s.CacheRoomBytes == 0}
	w.Held = w.held()
	w.TableBytes = table.Bytes() + int64((table.Len()+63)/64)*8
	for i := range x.Shards() {
		if x.Shard(i).Codec != nil {
			w.Compressed = true
			w.TableBytes += int64(table.Len()) * 4
			break
		}
	}
	w.Limits = choose.NewLimits(s.MemoryBytes, 2*w.TableBytes, w.Held.LargePieceBytes(pieceBytes, s.PieceRecords), s.Storage) // twice: see chunkmap.TableBytes
	if w.Held.Packed > 0 && choose.AtService(s.Storage.Kind) {
		w.Held.DecoderBytes += 2 * int64(w.Limits.RawBlockBytes) // which are larger than usual
	}
	return w, nil
}

// held looks at the shards and pieces in use. What lies between records of the
// part is mostly read with them.
func (v *Survey) held() choose.Held {
	var h choose.Held
	for i := range v.index.Shards() {
		if s := v.index.Shard(i); v.recordsOf(s) > 0 {
			h.Shards++
			h.Bytes += s.DecodedBytes
			h.Records += s.Records
			if s.Codec != nil {
				h.Packed++
				bytes := s.DecoderBytes + choose.BesideDecoderBytes
				if s.DecoderBytes == 0 { // by an index that does not know it
					bytes = choose.DecoderBytesOf(s.Codec.Name(), s.DecodedBytes, s.Members)
				}
				h.DecoderBytes = max(h.DecoderBytes, bytes)
			}
		}
	}
	if v.sampled() {
		v.sample(&h)
	}
	for p := range v.Places.Table.Len() {
		if v.Places.Wants(p) {
			h.Pieces++
			h.TableBytes += chunkmap.TableBytes(v.Places.Table.Records(p))
		}
	}
	if h.WholeBytes > 0 && h.Pieces > 0 {
		// Of each piece one range is there whatever the gaps are.
		h.Ranges = max(h.Ranges/float64(h.Pieces), 1)
	}
	return h
}

// sampled says that an epoch has a sample of the records.
func (v *Survey) sampled() bool { return v.Settings.Order.Sample.Or() != (spec.Subsample{}) }

// sample changes what is held to that of an epoch, in which the part's records lie apart.
func (v *Survey) sample(h *choose.Held) {
	h.WholeBytes, h.WholeRecords = h.Bytes, h.Records
	h.Bytes, h.Records = 0, 0
	for i := range v.index.Shards() {
		s := v.index.Shard(i)
		x := choose.Sampled{
			Records: s.Records, Wanted: v.recordsOf(s), DecodedBytes: s.DecodedBytes,
			GapBytes: choose.GapBytes(s.Codec != nil, true, v.Settings.Storage),
		}
		bytes, ranges := x.Held()
		h.Bytes += bytes
		h.Records += x.Wanted
		h.Ranges += ranges
	}
}

// recordsOf is how many records of a shard are of the part.
func (v *Survey) recordsOf(s catalog.Shard) uint64 {
	return v.part.Count(s.First, s.First+s.Records)
}

// Sizes are what a choice goes by. It looks at all shards.
func (v *Survey) Sizes() choose.Sizes {
	s := &v.Settings
	sizes := choose.Sizes{
		MemoryBytes: s.MemoryBytes, PieceBytes: s.PieceBytes, PieceRecords: s.PieceRecords, Decoders: s.Decoders,
		Order: s.Order, Places: s.Places, MaxSpoolBytes: s.MaxSpoolBytes, Storage: s.Storage,
		CacheRoomBytes: s.CacheRoomBytes, LookaheadBytes: s.LookaheadBytes,
		Limits: v.Limits, Held: v.Held, Compressed: v.Compressed,
	}
	sizes.Shards = make([]choose.Shard, v.index.Shards())
	for i := range sizes.Shards {
		x := v.index.Shard(i)
		sizes.Shards[i] = choose.Shard{
			DecodedBytes: x.DecodedBytes, StoredBytes: x.Object.SizeBytes, Records: x.Records, Wanted: v.recordsOf(x),
			EntryPoints: x.EntryPoints, Members: x.Members + x.Points, Compressed: x.Codec != nil, Parts: x.Parts,
		}
	}
	return sizes
}
