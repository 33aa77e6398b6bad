package choose

import (
	"math"

	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
)

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
func GapBytes(compressed, sampled bool, p profile.Profile) int64 {
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
