package choose

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// brought visits the records of a shard, and returns how many bytes a sample reads, in how many
// ranges.
func brought(rng *rand.Rand, records, n, recordBytes int, gapBytes int64) (wanted uint64, bytes int64, ranges int) {
	last := -1
	for r := range records {
		if rng.IntN(n) != 0 {
			continue
		}
		wanted++
		bytes += int64(recordBytes)
		switch between := int64(r-last-1) * int64(recordBytes); {
		case last < 0 || between > gapBytes:
			ranges++
		default:
			bytes += between
		}
		last = r
	}
	return wanted, bytes, ranges
}

func TestSubsampleReadsAreEstimatedWithinFivePercent(t *testing.T) {
	const records = 200_000
	rng := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{2, 8, 39} {
		for _, recordBytes := range []int{100, 1200, 8356, 200_000} {
			for _, gapBytes := range []int64{0, 4 << 10, 128 << 10, 1 << 20} {
				t.Run(fmt.Sprintf("1/%d of %d bytes, gaps of %d", n, recordBytes, gapBytes), func(t *testing.T) {
					wanted, bytes, ranges := brought(rng, records, n, recordBytes, gapBytes)
					got, places := Sampled{Records: records, Wanted: wanted, DecodedBytes: records * int64(recordBytes), GapBytes: gapBytes}.Held()
					require.InEpsilon(t, bytes, got, 0.05)
					require.InDelta(t, ranges, places, float64(ranges)/20+30)
				})
			}
		}
	}
}

func TestShardWithoutSampledRecordsReadsNothing(t *testing.T) {
	for _, s := range []Sampled{{}, {Records: 9, DecodedBytes: 99}} {
		bytes, ranges := s.Held()
		require.Zero(t, bytes)
		require.Zero(t, ranges)
	}
	bytes, ranges := Sampled{Records: 9, Wanted: 9, DecodedBytes: 99}.Held()
	require.EqualValues(t, 99, bytes, "all of it")
	require.EqualValues(t, 1, ranges)
}

// With a sample, memory that holds its share is enough to scan; a cache has to hold all of the
// chunks.
func TestSubsampleIsScannedInItsShareOfMemory(t *testing.T) {
	o := spec.Order{Shuffle: spec.ShuffleReservoir, Lanes: 4, SizeRecords: 400_000}
	whole := atBucket(2000, 256<<20, 0, o)
	c, err := whole.Choose(spec.ReadAuto)
	require.NoError(t, err)
	require.Equal(t, spec.ReadGather, c.Strategy)

	sampled := whole
	h := &sampled.Held
	h.WholeBytes, h.WholeRecords = h.Bytes, h.Records
	h.Bytes, h.Records, h.Ranges = h.Bytes/50, h.Records/50, 2
	c, err = sampled.Choose(spec.ReadAuto)
	require.NoError(t, err)
	require.Equal(t, spec.ReadScan, c.Strategy)
	require.EqualValues(t, whole.keptWhole(), sampled.keptWhole())
	n := sampled.Needs()
	require.Equal(t, h.Bytes, n.Bytes)
	require.EqualValues(t, 2*h.Pieces, n.Requests, "each range is a request")
	require.Equal(t, whole.pieceBytes(), sampled.pieceBytes(), "which says how far apart places are in shards")
}

func TestOnlySubsampleSkipsRecordsDecodedInBetween(t *testing.T) {
	p := storage.DefaultProfile(storage.KindObject)
	require.EqualValues(t, 1<<20, GapBytes(true, false, p))
	require.EqualValues(t, 4<<10, GapBytes(true, true, p))
	require.Equal(t, p.GapBytes, GapBytes(false, true, p))
	require.Equal(t, p.GapBytes, GapBytes(false, false, p))
}
