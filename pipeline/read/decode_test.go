package read

import (
	"bytes"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/choose"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// decodedBytes returns how much decoders have decoded, kept or not.
func decodedBytes(f *Fetcher) int64 { return int64(f.Stats().DecodedBytes) }

// A dataset of shards without entry points, 6 of which are read at a time, each with a reservoir of
// 40 records.
var laneShape = readtest.Shape{Codec: "gz", Shards: 24, Records: 250, MaxBytes: 1000}

const (
	lanes     = 6
	laneSlots = 240
)

func TestReservoirOverShardsWithoutEntryPointsDecodesEachOnce(t *testing.T) {
	d := readtest.Make(t, laneShape)
	g := readtest.ReservoirOrder(5, d.Index, lanes, laneSlots)
	for _, workers := range []int{1, 4} {
		f := newTestFetcher(t, d, 9<<20) // of which six decoders take 4 MB
		var wg sync.WaitGroup
		for w := range workers {
			seq := g.Deal(w, workers)
			r := f.Open(seq)
			wg.Go(func() { readtest.ReadAll(t, d, r, seq, 20); r.Close() })
		}
		wg.Wait()
		require.LessOrEqual(t, decodedBytes(f), d.DecodedBytes()*110/100, "%d workers", workers)
	}
}

// Frames that end in the middle of records are entered like others: for a record at most a frame
// and the piece after its first byte are decoded.
func TestRecordDecodesAtMostItsFrameAndPiece(t *testing.T) {
	countsInTurn(t)
	const frame, piece = 20_000, 16 << 10
	for _, codec := range []string{"gz", "zst", "lz4"} {
		t.Run(codec, func(t *testing.T) {
			d := readtest.Make(t, readtest.Shape{Codec: codec, Shards: 3, Records: 2000, MaxBytes: 1000, MemberBytes: frame})
			f := newTestFetcher(t, d, 1)
			seq := readtest.RandomOrder(5, d.Index)[:200]
			for i := range seq { // one by one, so that nothing is read ahead
				one := seq[i : i+1]
				r := f.Open(one)
				readtest.ReadAll(t, d, r, one, 1)
				r.Close()
			}
			require.LessOrEqual(t, decodedBytes(f), int64(len(seq))*(frame+2*piece))
		})
	}
}

// If memory holds what waits in the shuffle, frames that end anywhere need no spool; otherwise each
// record that waits would be decoded again. In either case little is decoded twice.
func TestReservoirOverUnalignedFramesDecodesLittleTwice(t *testing.T) {
	countsInTurn(t)
	d := readtest.Make(t, readtest.Shape{Codec: "zst", Shards: 8, Records: 2000, MaxBytes: 1000, MemberBytes: 30_000})
	g := readtest.ReservoirOrder(5, d.Index, 3, 900)
	for _, c := range []struct {
		budget int64
		want   spec.Read
	}{{1, spec.ReadSpool}, {1 << 20, spec.ReadSpool}, {3 << 20, spec.ReadScan}, {4 << 20, spec.ReadScan}, {64 << 20, spec.ReadScan}} {
		t.Run(humanize.IBytes(uint64(c.budget)), func(t *testing.T) {
			config := spoolConfig(t, c.budget, spec.Order{Shuffle: spec.ShuffleReservoir, Lanes: 3, SizeRecords: 900})
			config.Read = spec.ReadAuto
			f := newSpoolingFetcher(t, d, config, readtest.OpenStorage(t, d.Dir))
			require.Equal(t, string(c.want), f.Stats().Strategy, f.Stats().Reason)
			require.Equal(t, c.want == spec.ReadSpool, f.Stats().Spool != nil)
			r := f.Open(g)
			readtest.ReadAll(t, d, r, g, 50)
			r.Close()
			t.Logf("decoded %.2f times", float64(decodedBytes(f))/float64(d.DecodedBytes()))
			require.LessOrEqual(t, decodedBytes(f), (1+choose.MostDecodedAgain)*d.DecodedBytes())
		})
	}
}

func TestMidEpochResumeDecodesEachShardOnce(t *testing.T) {
	d := readtest.Make(t, laneShape)
	g := readtest.ReservoirOrder(5, d.Index, lanes, laneSlots)
	f := newTestFetcher(t, d, 9<<20)
	rest := g[len(g)/2:]
	r := f.Open(rest)
	readtest.ReadAll(t, d, r, rest, 20)
	r.Close()
	require.LessOrEqual(t, decodedBytes(f), d.DecodedBytes()*110/100)
}

func TestFittingFullShuffleDecodesEachShardOnceOrTwice(t *testing.T) {
	d := readtest.Make(t, laneShape)
	seq := readtest.RandomOrder(5, d.Index)
	f := newTestFetcher(t, d, 64<<20)
	r := f.Open(seq)
	readtest.ReadAll(t, d, r, seq, 20)
	r.Close()
	require.LessOrEqual(t, decodedBytes(f), 2*d.DecodedBytes())
}

func TestRepeatedDecodingIsReportedOnce(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Codec: "gz", Shards: 1, Records: 1000, MaxBytes: 2000})
	var log said
	f := newFetcherWith(t, d, Options{MemoryBytes: 300 << 10, ReadTimeout: time.Minute, PieceBytes: 16 << 10, PieceRecords: 32, Log: slog.New(slog.NewTextHandler(&log, nil))}, readtest.OpenStorage(t, d.Dir))
	seq := readtest.RandomOrder(5, d.Index)
	r := f.Open(seq)
	defer r.Close()
	k := uint64(0)
	for ; log.warnings() == 0; k++ { // how many records it takes depends on how far ahead is decoded
		readtest.LendOne(t, d, r, seq, k)
	}
	for range 40 {
		readtest.LendOne(t, d, r, seq, k)
		k++
	}
	require.NoError(t, f.Close())
	require.Equal(t, 1, log.warnings())
	require.Contains(t, log.text.String(), "shard-00")
}

// said collects what was logged.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) warnings() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Count(s.text.Bytes(), []byte("level=WARN"))
}

func TestDecodersAreBounded(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Codec: "zst", Shards: 40, Records: 60, MaxBytes: 2000})
	f := newFetcherWith(t, d, Options{MemoryBytes: 64 << 20, ReadTimeout: time.Minute, PieceBytes: 16 << 10, PieceRecords: 32, Decoders: 3}, readtest.OpenStorage(t, d.Dir))
	seq := readtest.ReservoirOrder(1, d.Index, 20, 100)
	r := f.Open(seq)
	defer r.Close()
	half := seq[:len(seq)/2]
	readtest.ReadAll(t, d, r, half, 10)
	// Working decoders may exceed the limit: each closes one when it pauses.
	require.Eventually(t, func() bool { return f.Stats().LoadsInFlight == 0 && f.Stats().OpenDecoders <= 3 }, time.Minute, time.Millisecond)
	require.Positive(t, f.Stats().OpenDecoders)
}

func TestShardsSharedByLanesAreDecodedOnceIfMemoryHoldsThem(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Codec: "gz", Shards: 3, Records: 6000, MaxBytes: 200})
	g := readtest.ReservoirOrder(5, d.Index, 8, 80) // most lanes begin in the middle of a shard
	f, err := newFetcher(d.Index, readtest.OpenStorage(t, d.Dir), Options{
		MemoryBytes: 16 << 20, ReadTimeout: time.Minute, PieceBytes: 16 << 10, PieceRecords: 32, LookaheadRecords: 1,
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	r := f.Open(g)
	readtest.ReadAll(t, d, r, g, 20)
	r.Close()
	require.LessOrEqual(t, decodedBytes(f), d.DecodedBytes()*110/100)
}
