package choose

import (
	"math"

	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
)

const (
	// decodedGapBytes is up to where bytes of a decoded shard between two records of a piece
	// come along: they are decoded anyhow, and cost memory only.
	decodedGapBytes = 1 << 20
	// sampledGapBytes is that of a sample, where most of what lies between is of other epochs
	// and would fill the memory: some tens of what a range of its own costs.
	sampledGapBytes = 4 << 10
)

// GapBytes is up to where bytes between two records of a piece come along, of a shard that is
// compressed or not, in a dataset that is sampled or not.
func GapBytes(compressed, sampled bool, p profile.Profile) int64 {
	switch {
	case !compressed:
		return p.GapBytes
	case sampled:
		return sampledGapBytes
	}
	return decodedGapBytes
}

// Sampled is what an epoch of a sample has of a shard: so many of its records, each of them
// at random.
type Sampled struct {
	Records, Wanted uint64
	DecodedBytes    int64
	GapBytes        int64 // up to which what lies between comes along
}

// Held is about how many bytes of the shard are brought, and in how many ranges, if it is one
// piece. The records between one that is wanted and the next are distributed geometrically,
//
//	P(j) = p·q^j   with p = Wanted/Records, q = 1-p
//
// and come along where they are no more than the gap.
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

// whole are the bytes and records of the shards that a sample is of, or else of those in use.
func (h *Held) whole() (bytes int64, records uint64) {
	if h.WholeBytes == 0 {
		return h.Bytes, h.Records
	}
	return h.WholeBytes, h.WholeRecords
}

// share is the share of a shard's records that an epoch of a sample has; 1 without one.
func (h *Held) share() float64 {
	if h.WholeRecords == 0 {
		return 1
	}
	return float64(h.Records) / float64(h.WholeRecords)
}

// AllBytes are those of all shards in use, decoded, of which a sample has a share.
func (h *Held) AllBytes() int64 {
	n, _ := h.whole()
	return n
}
