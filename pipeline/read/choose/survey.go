package choose

import (
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Survey is the sizes of a dataset.
type Survey struct {
	Settings   Settings
	Places     *chunkmap.Map
	Held       Held
	Limits     Limits
	Compressed bool // some shard is compressed, wanted or not
	// TableBytes is the memory of what is kept for each piece of the dataset, in memory or not:
	// where it begins, whether it is in memory and was read before, and, if shards are compressed,
	// how often it is wanted.
	TableBytes int64

	index chunkmap.Index
	part  chunkmap.Part
}

// leastFrontRecords is the least PieceRecords for shards that are read from front to back.
const leastFrontRecords = 128

// mostFrontRecords is PieceRecords for shards that are read from front to back at a service: their
// table takes no more than a segment of 2 MiB.
const mostFrontRecords = 8192

// frontBytes returns the size of requests for shards at a service that are read from front to back:
// what the service delivers at full speed or, if that is less, what allows at least four readers to
// have several in the memory for reading ahead.
func frontBytes(s *Settings) uint64 {
	const several = 16
	return uint64(min(s.Storage.ReadBytes, s.MemoryBytes/several/int64(max(s.Places, 4))))
}

func anyCompressed(x chunkmap.Index) bool {
	for i := range x.Shards() {
		if x.Shard(i).Codec != nil {
			return true
		}
	}
	return false
}

// NewSurvey surveys the part of a dataset. If the order has a sample, it is that of one epoch, which
// stands for all of them.
func NewSurvey(x chunkmap.Index, part chunkmap.Part, s Settings) (*Survey, error) {
	if s.Order.Shuffle == spec.ShuffleNone {
		// There are no chunks to follow, and a piece has a table.
		s.PieceRecords = max(s.PieceRecords, leastFrontRecords)
		if AtService(s.Storage.Kind) && !anyCompressed(x) && s.Order.Sample.Or() == (spec.Subsample{}) {
			s.PieceBytes = max(s.PieceBytes, frontBytes(&s))
			s.PieceRecords = max(s.PieceRecords, mostFrontRecords)
		}
	}
	v := &Survey{Settings: s, index: x, part: part}
	return v.WithPieces(s.PieceBytes, false)
}

// WithPieces returns a survey of the same dataset with pieces of another size. cutParts means that
// parts of shards are cut, too. Settings, and what follows from them alone, stay.
func (v *Survey) WithPieces(pieceBytes uint64, cutParts bool) (*Survey, error) {
	s, x := &v.Settings, v.index
	whole := uint64(0)
	if !cutParts { // what fits into a segment is decoded at once, of a shard that consists of parts
		whole = uint64(SegmentBytes(s.MemoryBytes))
	}
	table, err := chunkmap.New(x.PieceStarts(pieceBytes, s.PieceRecords, whole), x.Records())
	if err != nil {
		return nil, err
	}
	w := &Survey{Settings: *s, index: x, part: v.part}
	w.Places = &chunkmap.Map{Index: x, Table: table, Part: v.part, Unaligned: AtService(s.Storage.Kind) && s.CacheRoomBytes == 0}
	w.Held = w.held()
	w.TableBytes = table.Bytes() + int64((table.Len()+63)/64)*8
	for i := range x.Shards() {
		if x.Shard(i).Codec != nil {
			w.Compressed = true
			w.TableBytes += int64(table.Len()) * 4
			break
		}
	}
	w.Limits = NewLimits(s.MemoryBytes, 2*w.TableBytes, w.Held.LargePieceBytes(pieceBytes, s.PieceRecords), s.Storage) // twice: see chunkmap.TableBytes
	if w.Held.Packed > 0 && AtService(s.Storage.Kind) {
		w.Held.DecoderBytes += 2 * int64(w.Limits.RawBlockBytes) // which are larger than usual
	}
	return w, nil
}

// held adds up the shards and pieces in use. What lies between records of the part is mostly read
// with them.
func (v *Survey) held() Held {
	var h Held
	for i := range v.index.Shards() {
		if s := v.index.Shard(i); v.recordsOf(s) > 0 {
			h.Shards++
			h.Bytes += s.DecodedBytes
			h.Records += s.Records
			if s.Codec != nil {
				h.Packed++
				bytes := s.DecoderBytes + BesideDecoderBytes
				if s.DecoderBytes == 0 { // from an index that does not know it
					bytes = DecoderBytesOf(s.Codec.Name(), s.DecodedBytes, s.Members)
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
		// Of each piece at least one range is read, whatever the gaps are.
		h.Ranges = max(h.Ranges/float64(h.Pieces), 1)
	}
	return h
}

// sampled reports whether an epoch has a sample of the records.
func (v *Survey) sampled() bool { return v.Settings.Order.Sample.Or() != (spec.Subsample{}) }

// sample changes h to what an epoch holds, in which the part's records are scattered.
func (v *Survey) sample(h *Held) {
	h.WholeBytes, h.WholeRecords = h.Bytes, h.Records
	h.Bytes, h.Records = 0, 0
	for i := range v.index.Shards() {
		s := v.index.Shard(i)
		x := Sampled{
			Records: s.Records, Wanted: v.recordsOf(s), DecodedBytes: s.DecodedBytes,
			GapBytes: GapBytes(s.Codec != nil, true, v.Settings.Storage),
		}
		bytes, ranges := x.Held()
		h.Bytes += bytes
		h.Records += x.Wanted
		h.Ranges += ranges
	}
}

// recordsOf returns how many records of a shard are in the part.
func (v *Survey) recordsOf(s catalog.Shard) uint64 {
	return v.part.Count(s.First, s.First+s.Records)
}

// Sizes returns what a choice depends on. It visits all shards.
func (v *Survey) Sizes() Sizes {
	sizes := Sizes{Settings: v.Settings, Limits: v.Limits, Held: v.Held, Compressed: v.Compressed}
	sizes.Shards = make([]Shard, v.index.Shards())
	for i := range sizes.Shards {
		x := v.index.Shard(i)
		sizes.Shards[i] = Shard{
			DecodedBytes: x.DecodedBytes, StoredBytes: x.Object.SizeBytes, Records: x.Records, Wanted: v.recordsOf(x),
			EntryPoints: x.EntryPoints, Members: x.Members + x.Points, Compressed: x.Codec != nil, Parts: x.Parts,
		}
	}
	return sizes
}
