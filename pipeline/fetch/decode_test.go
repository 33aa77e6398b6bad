package fetch

import (
	"bytes"
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/fetch/strategy"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// decodedBytes is all that decoders have decoded, kept or not.
func decodedBytes(f *Fetcher) int64 { return int64(f.Stats().DecodedBytes) }

func totalBytes(d *dataset) int64 {
	n := int64(0)
	for _, s := range d.index.shards {
		n += s.DecodedBytes
	}
	return n
}

// A dataset of shards without entry points, 6 of them read at a time, each
// with a reservoir of 40 records.
var laneShape = shape{codec: "gz", shards: 24, records: 250, maxBytes: 1000}

const (
	lanes     = 6
	laneSlots = 240
)

func TestAReservoirOverShardsWithoutEntryPointsDecodesEachOnce(t *testing.T) {
	d := makeDataset(t, laneShape)
	g := reservoirOrder(5, d.index, lanes, laneSlots)
	for _, workers := range []int{1, 4} {
		f := newTestFetcher(t, d, 9<<20) // of which six decoders take 4 MB
		var wg sync.WaitGroup
		for w := range workers {
			seq := g.deal(w, workers)
			r := f.Open(seq)
			wg.Go(func() { readAll(t, d, r, seq, 20); r.Close() })
		}
		wg.Wait()
		require.LessOrEqual(t, decodedBytes(f), totalBytes(d)*110/100, "%d workers", workers)
	}
}

// Frames that end in the middle of records are entered as others are: what is
// decoded for a record is at most a frame and the piece behind its first byte.
func TestARecordTakesNoMoreDecodingThanItsFrameAndPiece(t *testing.T) {
	const frame, piece = 20_000, 16 << 10
	for _, codec := range []string{"gz", "zst", "lz4"} {
		t.Run(codec, func(t *testing.T) {
			d := makeDataset(t, shape{codec: codec, shards: 3, records: 2000, maxBytes: 1000, memberBytes: frame})
			f := newTestFetcher(t, d, 1)
			seq := randomOrder(5, d.index)[:200]
			for i := range seq { // one by one, so that nothing is read ahead
				one := seq[i : i+1]
				r := f.Open(one)
				readAll(t, d, r, one, 1)
				r.Close()
			}
			require.LessOrEqual(t, decodedBytes(f), int64(len(seq))*(frame+2*piece))
		})
	}
}

// Where memory holds what waits in the shuffle, frames that end anywhere need no
// spool; where it does not, each record that waits would be decoded again. In
// either case little more is decoded than there is.
func TestAReservoirOverFramesThatEndAnywhereDecodesLittleTwice(t *testing.T) {
	d := makeDataset(t, shape{codec: "zst", shards: 8, records: 2000, maxBytes: 1000, memberBytes: 30_000})
	g := reservoirOrder(5, d.index, 3, 900)
	for _, c := range []struct {
		budget int64
		want   spec.Read
	}{{1, spec.ReadSpool}, {1 << 20, spec.ReadSpool}, {3 << 20, spec.ReadScan}, {4 << 20, spec.ReadScan}, {64 << 20, spec.ReadScan}} {
		t.Run(humanize.IBytes(uint64(c.budget)), func(t *testing.T) {
			config := spoolConfig(t, c.budget, spec.Order{Shuffle: spec.ShuffleReservoir, Lanes: 3, SizeRecords: 900})
			config.Read = spec.ReadAuto
			f := newSpoolingFetcher(t, d, config, openStorage(t, d.dir))
			require.Equal(t, string(c.want), f.Stats().Strategy, f.Stats().Reason)
			require.Equal(t, c.want == spec.ReadSpool, f.Stats().Spool != nil)
			r := f.Open(g)
			readAll(t, d, r, g, 50)
			r.Close()
			t.Logf("decoded %.2f times", float64(decodedBytes(f))/float64(totalBytes(d)))
			require.LessOrEqual(t, decodedBytes(f), (1+strategy.MostDecodedAgain)*totalBytes(d))
		})
	}
}

func TestAResumeInTheMiddleDecodesEachShardOnce(t *testing.T) {
	d := makeDataset(t, laneShape)
	g := reservoirOrder(5, d.index, lanes, laneSlots)
	f := newTestFetcher(t, d, 9<<20)
	rest := g[len(g)/2:]
	r := f.Open(rest)
	readAll(t, d, r, rest, 20)
	r.Close()
	require.LessOrEqual(t, decodedBytes(f), totalBytes(d)*110/100)
}

func TestAFullShuffleThatFitsDecodesEachShardOnceOrTwice(t *testing.T) {
	d := makeDataset(t, laneShape)
	seq := randomOrder(5, d.index)
	f := newTestFetcher(t, d, 64<<20)
	r := f.Open(seq)
	readAll(t, d, r, seq, 20)
	r.Close()
	require.LessOrEqual(t, decodedBytes(f), 2*totalBytes(d))
}

func TestDecodingAgainAndAgainIsSaidOnce(t *testing.T) {
	d := makeDataset(t, shape{codec: "gz", shards: 1, records: 1000, maxBytes: 2000})
	var log bytes.Buffer
	f := newTestFetcher(t, d, 300<<10)
	f.log = slog.New(slog.NewTextHandler(&log, nil))
	r := f.Open(randomOrder(5, d.index))
	defer r.Close()
	var l Loan
	for k := range uint64(40) {
		require.NoError(t, r.Lend(context.Background(), k, 1, &l))
		l.Release()
	}
	require.NoError(t, f.Close())
	require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("level=WARN")))
	require.Contains(t, log.String(), "shard-00")
}

func TestDecodersAreBounded(t *testing.T) {
	d := makeDataset(t, shape{codec: "zst", shards: 40, records: 60, maxBytes: 2000})
	f := newTestFetcher(t, d, 64<<20)
	f.config.Decoders = 3
	seq := reservoirOrder(1, d.index, 20, 100)
	r := f.Open(seq)
	defer r.Close()
	half := seq[:len(seq)/2]
	readAll(t, d, r, half, 10)
	require.LessOrEqual(t, f.Stats().OpenDecoders, int64(3))
	require.Positive(t, f.Stats().OpenDecoders)
}

func TestShardsThatSeveralLanesBeginInAreDecodedOnceWhereMemoryHoldsThem(t *testing.T) {
	d := makeDataset(t, shape{codec: "gz", shards: 3, records: 6000, maxBytes: 200})
	g := reservoirOrder(5, d.index, 8, 80) // most lanes begin in the middle of a shard
	f, err := newFetcher(d.index, openStorage(t, d.dir), Config{
		MemoryBytes: 16 << 20, ReadTimeout: time.Minute, PieceBytes: 16 << 10, PieceRecords: 32, LookaheadRecords: 1,
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	r := f.Open(g)
	readAll(t, d, r, g, 20)
	r.Close()
	require.LessOrEqual(t, decodedBytes(f), totalBytes(d)*110/100)
}
