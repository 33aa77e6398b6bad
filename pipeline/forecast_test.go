package pipeline

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// makePlainLines writes shards of uncompressed lines, the last line of each without a newline.
func makePlainLines(t testing.TB) string {
	dir := t.TempDir()
	for shard := range 4 {
		var b strings.Builder
		for i := range 500 {
			fmt.Fprintf(&b, "[%d, \"%0*d\"]\n", i, 1+(i*37+shard)%4000, 0)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("s%d.jsonl", shard)), []byte(strings.TrimSuffix(b.String(), "\n")), 0o644))
	}
	return dir
}

func forecast(t testing.TB, d *Dataset, w, n uint64) Forecast {
	set, err := d.Set(context.Background(), 0, nil, d.Spec().Deal)
	require.NoError(t, err)
	f, err := d.Forecast(context.Background(), set.View(), w, n)
	require.NoError(t, err)
	return f
}

// What scan is forecast to read for all records is what the engine then reads.
func TestScanReadsMatchForecast(t *testing.T) {
	s := testSpec(t, makePlainLines(t))
	s.Deal.Workers, s.IndexDir = 1, t.TempDir()
	s.Direct = spec.DirectOn // reads what is in the page cache, too, instead of mapping it
	open(t, s)               // makes the index, with reads of its own
	d := open(t, s)
	f := forecast(t, d, 0, 1<<60)
	require.EqualValues(t, 2000, f.Records)
	require.Equal(t, d.Catalog().StreamBytes(), f.RecordBytes)
	scan := f.Storages[0].Scan
	before := d.Status().Engine
	set, err := d.Set(context.Background(), 0, nil, s.Deal)
	require.NoError(t, err)
	require.Len(t, readFile(t, set, 0, stream.Data, 1<<20), int(f.RecordBytes))
	after := d.Status()
	require.Equal(t, after.Engine.Reads-before.Reads, scan.Reads)
	require.EqualValues(t, after.Engine.ReadBytes-before.ReadBytes, scan.ReadBytes)
	require.Equal(t, after.Fetch.PiecesRead, scan.Pieces)
	require.True(t, scan.Fits)
	require.False(t, scan.Estimated)
	require.Zero(t, before.Reads, "a forecast reads nothing")
}

func TestForecastsOfGatherReadEachRecordOnce(t *testing.T) {
	s := testSpec(t, makePlainLines(t))
	s.Order.Shuffle, s.Deal.Workers = spec.ShuffleFull, 1
	d := open(t, s)
	for _, n := range []uint64{0, 1, 100, 2000} {
		f := forecast(t, d, 0, n)
		g := f.Storages[0].Gather
		require.NotNil(t, g)
		require.LessOrEqual(t, g.Reads, n)
		// The four missing newlines are not read.
		require.InDelta(t, f.RecordBytes, g.ReadBytes-g.GapBytes, 4)
		require.LessOrEqual(t, g.GapBytes, int64(n)*g.Config.MergeGapBytes)
		total := uint64(0)
		for _, k := range g.ByLength {
			total += k
		}
		require.Equal(t, g.Reads, total)
	}
	s = testSpec(t, makePlainLines(t))
	s.Order.Shuffle, s.Deal.Workers = spec.ShuffleNone, 1
	inOrder := forecast(t, open(t, s), 0, 2000)
	require.Equal(t, spec.ReadScan, inOrder.Storages[0].Strategy)
	require.LessOrEqual(t, inOrder.Storages[0].Gather.Reads, uint64(3*d.Catalog().Shards()), "whole shards of 1 MB, in reads of at most 1 MiB")
}

// What gather is forecast to read for all records is what the engine then reads.
func TestAllGatherReadsMatchForecast(t *testing.T) {
	s := testSpec(t, makePlainLines(t))
	s.Order.Shuffle, s.Deal.Workers, s.IndexDir = spec.ShuffleFull, 1, t.TempDir()
	s.Read, s.MemoryBytes = spec.ReadGather, 1<<30
	open(t, s)
	d := open(t, s)
	g := forecast(t, d, 0, 1<<60).Storages[0].Gather
	before := d.Status().Engine
	set, err := d.Set(context.Background(), 0, nil, s.Deal)
	require.NoError(t, err)
	// A reader that uses replies reads at two places in turn, so its plans begin at other records.
	seq := workerSequence{set.View(), 0}
	f, err := d.current.fetcher()
	require.NoError(t, err)
	r := f.Open(seq)
	var l read.Loan
	for k := uint64(0); k < seq.Len(); k += uint64(len(l.Records)) {
		l.Release()
		require.NoError(t, r.Read(t.Context(), k, 256, &l))
	}
	l.Release()
	r.Close()
	after := d.Status()
	require.Equal(t, "gather", after.Fetch.Strategy)
	require.Equal(t, g.Reads, after.Engine.Reads-before.Reads)
	require.EqualValues(t, g.ReadBytes, after.Engine.ReadBytes-before.ReadBytes)
	require.Equal(t, g.Reads, after.Fetch.Gather.Reads)
	require.Zero(t, after.Fetch.Gather.DroppedBytes)
}

func TestForecastsOfCompressedShardsHaveNoGather(t *testing.T) {
	d := open(t, testSpec(t, makeLines(t)))
	f := forecast(t, d, 1, 1<<60)
	require.EqualValues(t, testRecords/3, f.Records)
	require.Nil(t, f.Storages[0].Gather)
	require.True(t, f.Storages[0].Scan.Estimated)
	require.Positive(t, f.Storages[0].Scan.Reads)
	require.Positive(t, f.RecordBytes)
}
