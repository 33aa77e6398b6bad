package fetch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/fetch/fetchtest"
	"github.com/lsiofs/lsiofs/pipeline/plan"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
)

func TestBytesDoNotDependOnTheStorageProfile(t *testing.T) {
	for name, s := range shapes {
		d := fetchtest.Make(t, s)
		seq := fetchtest.ReservoirOrder(3, d.Index, 3, 90)
		for like, p := range fetchtest.ExtremeProfiles() {
			t.Run(name+"/"+like, func(t *testing.T) {
				storage := &fetchtest.CountedStorage{Storage: fetchtest.OpenStorage(t, d.Dir)}
				f, err := newFetcher(d.Index, storage, Config{MemoryBytes: 8 << 20, ReadTimeout: time.Minute, PieceBytes: 64 << 10, PieceRecords: 32, Storage: p})
				require.NoError(t, err)
				defer func() { require.NoError(t, f.Close()) }()
				readEpochs(t, d, f, seq, 1)
				if s.Codec == "" && s.MaxBytes > 1000 && p.ReadBytes < 8<<10 {
					require.Greater(t, storage.Reads.Load(), 2*int64(f.Stats().PiecesRead), "pieces are cut")
				}
			})
		}
	}
}

func TestForecastsKnowTheStorageProfile(t *testing.T) {
	d := fetchtest.Make(t, fetchtest.Shape{Shards: 3, Records: 200, MaxBytes: 3000, GapBytes: 9000})
	for name, p := range fetchtest.ExtremeProfiles() {
		t.Run(name, func(t *testing.T) {
			_, forecast, read := forecastAndRead(t, d, fetchtest.InOrder(d.Index), Config{MemoryBytes: 64 << 20, ReadTimeout: time.Minute, PieceBytes: 64 << 10, PieceRecords: 32, Storage: p})
			require.Equal(t, read, forecast)
		})
	}
}

// Reads of a piece hold its bytes, each once, are no larger than the storage
// likes, and are cut where it likes.
func TestPiecesAreCutIntoReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		align := int64(1) << rapid.IntRange(0, 12).Draw(t, "align")
		p := profile.Profile{AlignBytes: align, ReadBytes: align * rapid.Int64Range(1, 100).Draw(t, "read")}
		p.ReadBytes = max(p.ReadBytes, (1000+align-1)&^(align-1))
		var l layout
		at := int64(0)
		for range rapid.IntRange(1, 4).Draw(t, "ranges") {
			at += rapid.Int64Range(1, 10_000).Draw(t, "gap")
			size := rapid.Int64Range(0, 100_000).Draw(t, "size")
			l.ranges = append(l.ranges, byteRange{at, size})
			at += size
		}
		var reads []byteRange
		l.reads(p, func(r byteRange) { reads = append(reads, r) })
		for _, r := range l.ranges {
			n, most := 0, (r.size+2*align)/p.ReadBytes+2
			for end := r.off + r.size; r.off < end; n++ {
				require.NotEmpty(t, reads)
				next := reads[0]
				require.Equal(t, r.off, next.off)
				require.Positive(t, next.size)
				require.LessOrEqual(t, next.size, p.ReadBytes)
				if r.off += next.size; r.off < end {
					require.Zero(t, r.off%align)
				}
				require.LessOrEqual(t, r.off, end)
				reads = reads[1:]
			}
			require.LessOrEqual(t, int64(n), most)
		}
		require.Empty(t, reads)
	})
}

func TestWhatIsInFlightFollowsTheStorage(t *testing.T) {
	p := profile.Defaults(profile.KindSSD)
	require.EqualValues(t, 128<<10, newLimits(1<<30, 0, p).rawBlock)
	p.InFlightBytes = 1 << 20
	require.EqualValues(t, 2<<20, newLimits(1<<30, 0, p).inFlight)
	p.InFlightBytes = 1 << 30
	require.EqualValues(t, 64<<20, newLimits(1<<30, 0, p).inFlight)
	p.Ahead.QueuedBytes, p.Ahead.DecodeBytes = 100<<20, 8<<20
	require.EqualValues(t, 100<<20, newLimits(1<<30, 0, p).inFlight)
	require.EqualValues(t, 2<<20, newLimits(1<<30, 0, p).rawBlock, "a 512th of the budget")
	small := newLimits(1<<20, 0, p)
	require.Equal(t, small.cache/4, small.inFlight, "the budget is a bound, too")
}

func TestAPlannerGoesByTheStorageProfile(t *testing.T) {
	require.Equal(t, plan.DefaultConfig(), PlanConfig(profile.Profile{}))
	require.Equal(t, plan.DefaultConfig(), PlanConfig(profile.Defaults(profile.KindSSD)))
	for _, p := range fetchtest.ExtremeProfiles() {
		require.NoError(t, PlanConfig(p).Validate())
		require.Equal(t, p.GapBytes, PlanConfig(p).MergeGapBytes)
	}
}

func TestAStorageProfileThatIsNoneIsRefused(t *testing.T) {
	d := fetchtest.Make(t, fetchtest.Shape{Shards: 1, Records: 1, MaxBytes: 10})
	_, err := newFetcher(d.Index, fetchtest.OpenStorage(t, d.Dir), Config{MemoryBytes: 1 << 20, ReadTimeout: time.Minute, PieceBytes: 1, PieceRecords: 1,
		Storage: profile.Profile{Kind: profile.KindSSD, ReadBytes: 1}})
	require.ErrorContains(t, err, "storage profile: read_bytes (1) must be between")
}
