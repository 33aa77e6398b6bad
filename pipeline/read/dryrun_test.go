package read

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// dryAndReal returns what a dry run counts for a whole sequence, and what a reader then takes.
func dryAndReal(t *testing.T, d *readtest.Dataset, seq readtest.List, cfg Options) (dry, real Forecast) {
	s := &readtest.CountedStorage{Storage: readtest.OpenStorage(t, d.Dir)}
	f, err := newFetcher(d.Index, s, cfg)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	dry, err = f.DryRun(t.Context(), seq, Subset{Part: cfg.Part}, seq.Len(), f.o.Choice)
	require.NoError(t, err)
	require.Zero(t, s.Reads.Load(), "a dry run reads nothing")
	require.Zero(t, dry.CountedRecords, "nothing was extrapolated")
	r := f.Open(seq)
	defer r.Close()
	var l Loan
	for k := uint64(0); k < seq.Len(); k += uint64(len(l.Records)) {
		l.Release()
		require.NoError(t, r.Read(t.Context(), k, lendRecords, &l))
	}
	l.Release()
	x := f.Stats()
	real = Forecast{Pieces: x.PiecesRead - x.PiecesReread, DecodedBytes: int64(x.DecodedBytes), Fits: x.PiecesReread == 0}
	real.Reads, real.ReadBytes = uint64(s.Reads.Load()), s.Bytes.Load()
	if x.Spool != nil {
		real.Spooled = x.Spool.Decoded
	}
	return dry, real
}

// forecastAndRead returns reads and bytes of dryAndReal.
func forecastAndRead(t *testing.T, d *readtest.Dataset, seq readtest.List, cfg Options) (c Forecast, forecast, read [2]int64) {
	dry, real := dryAndReal(t, d, seq, cfg)
	require.Equal(t, real.Pieces, dry.Pieces)
	return dry, [2]int64{int64(dry.Reads), dry.ReadBytes}, [2]int64{int64(real.Reads), real.ReadBytes}
}

// dryRatios are forecast ÷ real of what is counted, a value for each order.
type dryRatios map[string][]float64

func (r dryRatios) add(dry, real Forecast) {
	for name, x := range map[string][2]float64{
		"reads": {float64(dry.Reads), float64(real.Reads)}, "bytes": {float64(dry.ReadBytes), float64(real.ReadBytes)},
		"decoded bytes": {float64(dry.DecodedBytes), float64(real.DecodedBytes)}, "pieces": {float64(dry.Pieces), float64(real.Pieces)},
		"spooled shards": {float64(dry.Spooled), float64(real.Spooled)},
	} {
		if x != [2]float64{} {
			r[name] = append(r[name], x[0]/x[1])
		}
	}
}

// requireMeans requires that the mean of each is 1, or differs from it by at most a share.
func (r dryRatios) requireMeans(t *testing.T, share float64, seeds []uint64) {
	t.Helper()
	for name, list := range r {
		t.Logf("%s, forecast ÷ real of the orders with seeds %d: %.3f", name, seeds, list)
		mean := 0.0
		for _, x := range list {
			mean += x / float64(len(list))
		}
		require.InDelta(t, 1, mean, share, "%s: forecast ÷ real", name)
	}
}

// A dry run counts what a reader then takes: exactly if memory holds what waits or if only what
// comes next is read, and within a tenth if pieces are dropped and read again. What decoders of
// compressed shards keep in passing depends on when they run: a real one runs while its reader has
// what it needs, and keeps what there happens to be room for. So with these the mean of several
// orders is within a tenth; a single one may be off by a quarter.
func TestADryRunCountsWhatIsRead(t *testing.T) {
	countsInTurn(t)
	const mib = 1 << 20
	plain := readtest.Shape{Shards: 16, Records: 1000, MaxBytes: 4000}
	checksummed := plain
	checksummed.Checksummed = true
	packed := func(codec string, change func(*readtest.Shape)) readtest.Shape {
		s := plain
		s.Codec = codec
		if change != nil {
			change(&s)
		}
		return s
	}
	for _, c := range []struct {
		name    string
		shape   readtest.Shape
		read    spec.Read
		memory  int64
		within  float64
		records int // 0: all
	}{
		{"gather, much memory", plain, spec.ReadGather, 256 * mib, 0, 0},
		{"gather, little memory", plain, spec.ReadGather, 8 * mib, 0.02, 0},
		{"gather of records with checksums", checksummed, spec.ReadGather, 256 * mib, 0, 0},
		{"scan, much memory", plain, spec.ReadScan, 256 * mib, 0, 0},
		{"scan of records with checksums", checksummed, spec.ReadScan, 256 * mib, 0, 0},
		{"scan, little memory", plain, spec.ReadScan, 12 * mib, 0.1, 4000},
		{"scan of gzip, much memory", packed("gz", nil), spec.ReadScan, 256 * mib, 0.1, 0},
		{"scan of gzip with points, little memory", packed("gz", func(s *readtest.Shape) { s.PointBytes = 512 << 10 }), spec.ReadScan, 12 * mib, 0.1, 500},
		{"scan of zstd frames, little memory", packed("zst", func(s *readtest.Shape) { s.Member = 50 }), spec.ReadScan, 12 * mib, 0.1, 500},
		{"scan of gzip in order, little memory", packed("gz", nil), spec.ReadScan, 8 * mib, 0.1, 8000},
		{"spool of gzip", packed("gz", nil), spec.ReadSpool, 12 * mib, 0.01, 0},
		{"spool of zstd", packed("zst", nil), spec.ReadSpool, 24 * mib, 0.01, 0},
		{"spool of lz4", packed("lz4", nil), spec.ReadSpool, 24 * mib, 0.01, 0},
	} {
		d := readtest.Make(t, c.shape)
		for _, shuffle := range []spec.Shuffle{spec.ShuffleNone, spec.ShuffleReservoir, spec.ShuffleFull} {
			if strings.Contains(c.name, "in order") && shuffle != spec.ShuffleNone {
				continue // each of few members would be decoded thousands of times
			}
			t.Run(fmt.Sprintf("%s, shuffle %s", c.name, shuffle), func(t *testing.T) {
				o := spec.Default().Order
				o.Shuffle, o.SizeRecords, o.Lanes = shuffle, 2048, 8
				cfg := Options{MemoryBytes: c.memory, ReadTimeout: time.Minute, PieceBytes: o.ChunkBytes, PieceRecords: o.ChunkRecords, Order: o, Read: c.read}
				if c.read == spec.ReadSpool {
					cfg.Spool = spoolConfig(t, c.memory, o).Spool
				}
				seeds, within := []uint64{o.Seed}, c.within
				if c.read == spec.ReadScan && c.shape.Codec != "" {
					seeds = []uint64{1, 2, 3, 4, 5}
					if c.shape.Member > 0 && shuffle == spec.ShuffleFull {
						within = 0.2 // short frames are decoded for a record or two: means of forecasts are 7 to 13 % above
					}
				}
				ratios := dryRatios{}
				var dry, real Forecast
				for _, o.Seed = range seeds {
					cfg.Order = o
					seq := readtest.Epoch(t, d.Index, o, 0)
					if c.records > 0 {
						seq = seq[:c.records]
					}
					dry, real = dryAndReal(t, d, seq, cfg)
					ratios.add(dry, real)
				}
				ratios.requireMeans(t, within, seeds)
				if c.within == 0 {
					require.True(t, dry.Fits)
					require.False(t, dry.Estimated)
				}
			})
		}
	}
}

// Forecasts for uncompressed shards are exact while memory holds what waits, whatever lies between
// their records, for all of a sequence and for a worker's part of it.
func TestDryRunsOfShardsThatAreNotCompressedAreExact(t *testing.T) {
	countsInTurn(t)
	for name, s := range map[string]readtest.Shape{
		"records side by side": {Shards: 5, Records: 300, MaxBytes: 2000},
		"gaps":                 {Shards: 3, Records: 200, MaxBytes: 300, GapBytes: 3000},
		"gaps that are not read": {
			Shards: 1, Records: 6, MaxBytes: 10_000, GapBytes: 3 << 20,
		},
		"a newline that is not there": {Shards: 4, Records: 50, MaxBytes: 20, NoNewline: true},
		"large records":               {Shards: 2, Records: 8, MaxBytes: 2 << 20},
	} {
		d := readtest.Make(t, s)
		for _, seq := range []readtest.List{readtest.InOrder(d.Index), readtest.ReservoirOrder(1, d.Index, 4, 200), readtest.InOrder(d.Index).Deal(1, 3)} {
			for _, read := range []spec.Read{spec.ReadScan, spec.ReadGather} {
				t.Run(fmt.Sprintf("%s/%s/%d", name, read, len(seq)), func(t *testing.T) {
					c, forecast, read := forecastAndRead(t, d, seq, Options{MemoryBytes: 256 << 20, ReadTimeout: time.Minute, PieceBytes: 20_000, PieceRecords: 16, Read: read})
					require.Equal(t, read, forecast)
					require.True(t, c.Fits)
					require.False(t, c.Estimated)
				})
			}
		}
	}
}

func TestADryRunOfAPartOfACompressedShardEndsThere(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Codec: "gz", Shards: 1, Records: 2000, MaxBytes: 1500})
	f, err := newFetcher(d.Index, readtest.OpenStorage(t, d.Dir), Options{MemoryBytes: 8 << 20, ReadTimeout: time.Minute, PieceBytes: 64 << 10, PieceRecords: 50})
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	size := float64(d.Index.Shard(0).Object.SizeBytes)
	c, err := f.DryRun(t.Context(), readtest.InOrder(d.Index), Subset{}, 500, Choice{Strategy: spec.ReadScan})
	require.NoError(t, err)
	require.InDelta(t, 0.25, float64(c.ReadBytes)/size, 0.05)
	require.EqualValues(t, 1, c.Compressed)
}

func TestDryRunsSayWhatIsKept(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 1, Records: 200, MaxBytes: 10_000})
	f, err := newFetcher(d.Index, readtest.OpenStorage(t, d.Dir), Options{MemoryBytes: 4 << 20, ReadTimeout: time.Minute, PieceBytes: 1 << 40, PieceRecords: 10})
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	size := func(from, to int) (sum int64) {
		for _, b := range d.Records[from:to] {
			sum += int64(len(b))
		}
		return sum
	}
	how := Choice{Strategy: spec.ReadScan}
	c, err := f.DryRun(t.Context(), readtest.List{0, 10, 1, 11}, Subset{}, 4, how)
	require.NoError(t, err)
	require.Equal(t, size(0, 20)-size(0, 1), c.KeptBytes)
	require.EqualValues(t, 2, c.Pieces)
	require.True(t, c.Fits)

	c, err = f.DryRun(t.Context(), readtest.List{0, 10, 1, 11}, Subset{}, 1, how)
	require.NoError(t, err)
	require.Equal(t, size(0, 10), c.KeptBytes, "the others are not asked for")
}

func TestDryRunsEndWithTheirContext(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 1, Records: 20, MaxBytes: 100})
	f, err := newFetcher(d.Index, readtest.OpenStorage(t, d.Dir), Options{MemoryBytes: 1 << 20, ReadTimeout: time.Minute, PieceBytes: 1000, PieceRecords: 5})
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, read := range []spec.Read{spec.ReadScan, spec.ReadGather} {
		_, err = f.DryRun(ctx, readtest.InOrder(d.Index), Subset{}, 20, Choice{Strategy: read})
		require.ErrorIs(t, err, context.Canceled)
	}
}

// Counts up to some record are continued at the rate of their later part.
func TestCountsAreExtrapolated(t *testing.T) {
	from := counts{records: 1000, pieces: 50, decoded: 1 << 20}
	from.reads.Reads, from.reads.ReadBytes, from.reads.ByLength[20] = 50, 50<<20, 50 // memory was filled
	now := counts{records: 2000, pieces: 60, decoded: 2 << 20}
	now.reads.Reads, now.reads.ReadBytes, now.reads.ByLength[20] = 60, 60<<20, 60
	now.extrapolate(from, 12_000)
	require.EqualValues(t, 160, now.reads.Reads)
	require.EqualValues(t, 160<<20, now.reads.ReadBytes)
	require.EqualValues(t, 160, now.reads.ByLength[20])
	require.EqualValues(t, 160, now.pieces)
	require.EqualValues(t, 12<<20, now.decoded)
}
