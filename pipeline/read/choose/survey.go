package choose

import (
	"math"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
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

const (
	// decodedGapBytes is the largest gap between two records of a piece of a decoded shard that is
	// kept in memory: its bytes are decoded anyway, and cost only memory.
	decodedGapBytes = 1 << 20
	// sampledGapBytes is that of a sample, in which most gaps are records of other epochs and would
	// fill the memory: a few tens of what a separate range costs.
	sampledGapBytes = 4 << 10
)

// GapBytes returns the largest gap between two records of a piece that is read with them, in a
// compressed shard or not, in a sampled dataset or not.
func GapBytes(compressed, sampled bool, p storage.Profile) int64 {
	switch {
	case !compressed:
		return p.GapBytes
	case sampled:
		return sampledGapBytes
	}
	return decodedGapBytes
}

// Sampled is what an epoch of a sample has of a shard: Wanted of its records, at random.
type Sampled struct {
	Records, Wanted uint64
	DecodedBytes    int64
	GapBytes        int64 // the largest gap that is read with the records around it
}

// Held returns about how many bytes of the shard are read, and in how many ranges, if it is one
// piece. The number of records between one that is wanted and the next has a geometric
// distribution,
//
//	P(j) = p·q^j   with p = Wanted/Records, q = 1-p
//
// and they are read too if they are no larger than the gap.
func (s Sampled) Held() (bytes int64, ranges float64) {
	if s.Wanted == 0 || s.Records == 0 {
		return 0, 0
	}
	record := float64(s.DecodedBytes) / float64(s.Records)
	p := float64(s.Wanted) / float64(s.Records)
	q := 1 - p
	j := math.Floor(float64(s.GapBytes) / max(record, 1))
	// The sum of i·p·q^i up to j.
	between := 0.0
	if q > 0 {
		between = q * (1 - (j+1)*math.Pow(q, j) + j*math.Pow(q, j+1)) / p
	}
	each := record * (1 + between)
	return int64(min(float64(s.Wanted)*each, float64(s.DecodedBytes))), 1 + float64(s.Wanted-1)*math.Pow(q, j+1)
}

// whole returns the bytes and records of the sampled shards or, without a sample, of those in use.
func (h *Held) whole() (bytes int64, records uint64) {
	if h.WholeBytes == 0 {
		return h.Bytes, h.Records
	}
	return h.WholeBytes, h.WholeRecords
}

// share returns the share of a shard's records that an epoch of a sample has; 1 without one.
func (h *Held) share() float64 {
	if h.WholeRecords == 0 {
		return 1
	}
	return float64(h.Records) / float64(h.WholeRecords)
}

// AllBytes returns the bytes of all shards in use, decoded, of which a sample has a share.
func (h *Held) AllBytes() int64 {
	n, _ := h.whole()
	return n
}
