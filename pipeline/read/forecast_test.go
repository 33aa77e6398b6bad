package read

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
)

// forecastAndRead gives what was forecast and what was read for all of a sequence.
func forecastAndRead(t *testing.T, d *readtest.Dataset, seq readtest.List, cfg Config) (c Forecast, forecast, read [2]int64) {
	s := &readtest.CountedStorage{Storage: readtest.OpenStorage(t, d.Dir)}
	f, err := newFetcher(d.Index, s, cfg)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	c, err = f.Forecast(t.Context(), seq, seq.Len(), Choice{}, func(n int64) {
		require.Positive(t, n)
		forecast[0]++
		forecast[1] += n
	})
	require.NoError(t, err)
	require.Zero(t, s.Reads.Load(), "a forecast reads nothing")
	r := f.Open(seq)
	defer r.Close()
	var l Loan
	for k := uint64(0); k < seq.Len(); k += uint64(len(l.Records)) {
		l.Release()
		require.NoError(t, r.Read(t.Context(), k, 100, &l))
	}
	l.Release()
	require.EqualValues(t, f.Stats().PiecesRead-f.Stats().PiecesReread, c.Pieces)
	return c, forecast, [2]int64{s.Reads.Load(), s.Bytes.Load()}
}

func TestForecastsOfShardsThatAreNotCompressedAreExact(t *testing.T) {
	countsInTurn(t)
	for name, s := range map[string]readtest.Shape{
		"records side by side": {Shards: 5, Records: 300, MaxBytes: 2000},
		"gaps":                 {Shards: 3, Records: 200, MaxBytes: 300, GapBytes: 3000},
		"gaps that are not read": {
			Shards: 1, Records: 6, MaxBytes: 10_000, GapBytes: 3 << 20,
		},
		"a newline that is not there": {Shards: 4, Records: 50, MaxBytes: 20, NoNewline: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := readtest.Make(t, s)
			for _, seq := range []readtest.List{readtest.InOrder(d.Index), readtest.ReservoirOrder(1, d.Index, 4, 200), readtest.InOrder(d.Index).Deal(1, 3)} {
				c, forecast, read := forecastAndRead(t, d, seq, Config{MemoryBytes: 256 << 20, ReadTimeout: time.Minute, PieceBytes: 20_000, PieceRecords: 16})
				require.Equal(t, read, forecast)
				require.True(t, c.Fits)
				require.False(t, c.Estimated)
			}
		})
	}
}

// requireClose holds a forecast of decoding against what was read. Hardly less
// is ever read. More may be: where a decoder gets ahead of the reader that tells
// it what to keep, which is up to the scheduler, another one follows it from the
// last entry point, so there may be as much as a second pass.
func requireClose(t *testing.T, forecast, read [2]int64, message string, args ...any) {
	t.Helper()
	for i := range forecast {
		require.GreaterOrEqual(t, float64(read[i]), 0.9*float64(forecast[i]), fmt.Sprintf(message, args...))
		require.LessOrEqual(t, read[i], 2*forecast[i], fmt.Sprintf(message, args...))
	}
}

func TestForecastsOfCompressedShardsAreClose(t *testing.T) {
	countsInTurn(t)
	for _, codec := range []string{"gz", "zst"} {
		for _, member := range []int{0, 50, 200, -1} {
			s := readtest.Shape{Codec: codec, Shards: 2, Records: 800, MaxBytes: 1500, Member: member}
			if member < 0 {
				s.Member, s.MemberBytes = 0, 40_000
			}
			d := readtest.Make(t, s)
			c, forecast, read := forecastAndRead(t, d, readtest.InOrder(d.Index), Config{MemoryBytes: 8 << 20, ReadTimeout: time.Minute, PieceBytes: 32 << 10, PieceRecords: 50})
			require.True(t, c.Estimated)
			requireClose(t, forecast, read, "%s, members of %d", codec, member)
		}
	}
}

// An order that jumps about in shards without entry points has them decoded
// again and again, unless memory holds all that decoders pass: so says the
// forecast.
func TestForecastsCountPassesOfDecoders(t *testing.T) {
	countsInTurn(t)
	d := readtest.Make(t, readtest.Shape{Codec: "gz", Shards: 3, Records: 1500, MaxBytes: 1500})
	cfg := Config{MemoryBytes: 16 << 20, ReadTimeout: time.Minute, PieceBytes: 64 << 10, PieceRecords: 5, LookaheadRecords: 100}
	for _, seq := range []readtest.List{readtest.InOrder(d.Index), readtest.RandomOrder(1, d.Index)} {
		c, forecast, read := forecastAndRead(t, d, seq, cfg)
		require.EqualValues(t, 3, c.Compressed)
		require.EqualValues(t, 3, c.Passes)
		requireClose(t, forecast, read, "%d passes", c.Passes)
	}
	cfg.MemoryBytes = 3 << 20
	c, forecast, read := forecastAndRead(t, d, readtest.RandomOrder(1, d.Index)[:lessIfShort(1500, 300)], cfg)
	require.Greater(t, c.Passes, uint64(3))
	dataset := 3 * d.Index.Shard(0).Object.SizeBytes
	require.Greater(t, int64(read[1]), dataset)
	require.Greater(t, int64(forecast[1]), dataset)
}

func TestForecastOfAPartOfACompressedShardEndsThere(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Codec: "gz", Shards: 1, Records: 2000, MaxBytes: 1500})
	f, err := newFetcher(d.Index, readtest.OpenStorage(t, d.Dir), Config{MemoryBytes: 8 << 20, ReadTimeout: time.Minute, PieceBytes: 64 << 10, PieceRecords: 50})
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	size := float64(d.Index.Shard(0).Object.SizeBytes)
	sum := int64(0)
	_, err = f.Forecast(t.Context(), readtest.InOrder(d.Index), 500, Choice{}, func(n int64) { sum += n })
	require.NoError(t, err)
	require.InDelta(t, 0.25, float64(sum)/size, 0.05)
}

func TestForecastsSayWhatIsKept(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 1, Records: 200, MaxBytes: 10_000})
	small := Config{MemoryBytes: 4 << 20, ReadTimeout: time.Minute, PieceBytes: 1 << 40, PieceRecords: 10}
	f, err := newFetcher(d.Index, readtest.OpenStorage(t, d.Dir), small)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	size := func(from, to int) (sum int64) {
		for _, b := range d.Records[from:to] {
			sum += int64(len(b))
		}
		return sum
	}
	nothing := func(int64) {}
	c, err := f.Forecast(t.Context(), readtest.List{0, 10, 1, 11}, 4, Choice{}, nothing)
	require.NoError(t, err)
	require.Equal(t, size(0, 20)-size(0, 1), c.KeptBytes)
	require.EqualValues(t, 2, c.Pieces)
	require.True(t, c.Fits)

	c, err = f.Forecast(t.Context(), readtest.List{0, 10, 1, 11}, 1, Choice{}, nothing)
	require.NoError(t, err)
	require.Equal(t, size(0, 10), c.KeptBytes, "the others are not asked for")

	large := readtest.Make(t, readtest.Shape{Shards: 1, Records: 200, MaxBytes: 60_000})
	g, err := newFetcher(large.Index, readtest.OpenStorage(t, large.Dir), small)
	require.NoError(t, err)
	defer func() { require.NoError(t, g.Close()) }()
	c, err = g.Forecast(t.Context(), readtest.RandomOrder(1, large.Index), 200, Choice{}, nothing)
	require.NoError(t, err)
}

func TestForecastsEndWithTheirContext(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 1, Records: 20, MaxBytes: 100})
	f, err := newFetcher(d.Index, readtest.OpenStorage(t, d.Dir), Config{MemoryBytes: 1 << 20, ReadTimeout: time.Minute, PieceBytes: 1000, PieceRecords: 5})
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = f.Forecast(ctx, readtest.InOrder(d.Index), 20, Choice{}, func(int64) {})
	require.ErrorIs(t, err, context.Canceled)
}
