package pipeline

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// makeCompressedLines writes shards of one gzip member each.
func makeCompressedLines(t testing.TB, shards, records int) string {
	dir := t.TempDir()
	for shard := range shards {
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		for i := range records {
			_, err := fmt.Fprintf(w, "\"%097d\"\n", i)
			require.NoError(t, err)
		}
		require.NoError(t, w.Close())
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("s%02d.jsonl.gz", shard)), z.Bytes(), 0o644))
	}
	return dir
}

// A dataset whose records are not read needs no place for a spool. If they are, the error comes from
// the handle, or from Open if that is to start the fetcher.
func TestFetcherStartsWithFirstHandleOfRecords(t *testing.T) {
	s := testSpec(t, makeCompressedLines(t, 4, 100))
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	s.Read, s.SpoolDir, s.Deal.Workers = spec.ReadSpool, filepath.Join(file, "spool"), 1
	_, err := Open(t.Context(), s, Options{StartFetcher: true})
	require.ErrorContains(t, err, "--read spool: ")
	refused := err.Error()

	d := open(t, s)
	set, err := d.Set(t.Context(), 0, nil, s.Deal)
	require.NoError(t, err)
	offsets := set.Open(0, stream.Offsets)
	defer offsets.Close()
	var r stream.Reply
	require.NoError(t, offsets.ReadAt(t.Context(), &r, 0, 8))
	r.Release()
	require.Empty(t, d.Status().Fetch.Strategy, "nothing has been started")
	require.Equal(t, s.MemoryBytes, d.Status().Fetch.BudgetBytes)
	data := set.Open(0, stream.Data)
	defer data.Close()
	require.EqualError(t, data.ReadAt(t.Context(), &r, 0, 8), refused)
	_, err = d.Expect(set.View(), 0)
	require.EqualError(t, err, refused)

	require.NoError(t, os.Remove(file)) // the next handle tries again
	again := set.Open(0, stream.Data)
	defer again.Close()
	require.NoError(t, again.ReadAt(t.Context(), &r, 0, 8))
	r.Release()
	require.Equal(t, "spool", d.Status().Fetch.Strategy)
}

func TestMountReportsWhatItsFirstBytesWaitFor(t *testing.T) {
	s := testSpec(t, makeCompressedLines(t, 32, 100))
	s.Order.Lanes, s.Order.SizeRecords, s.Deal.Workers = 16, 16, 1
	d := open(t, s)
	require.Nil(t, d.Status().Start)
	set, err := d.Set(context.Background(), 0, nil, s.Deal)
	require.NoError(t, err)
	start, err := d.Expect(set.View(), 0)
	require.NoError(t, err)
	require.Equal(t, 16, start.Shards, "a lane, a shard")
	// The first four records of each lane, with a buffer of one.
	require.EqualValues(t, 16*4*100, start.DecodeBytes)
	require.Zero(t, start.Lanes, "it is short anyway")
	require.Equal(t, start, *d.Status().Start)
	require.Contains(t, start.Text(), "less than a second until the first bytes come: 6.3 KiB of 16 compressed shards")
	require.NotContains(t, start.Text(), "--lanes")
	cores := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(cores)
	runtime.GOMAXPROCS(2 * cores) // as a mount does
	again, err := d.Expect(set.View(), 0)
	require.NoError(t, err)
	require.Equal(t, start, again, "threads that wait decode nothing")

	s = testSpec(t, makeCompressedLines(t, 32, 100))
	s.Order.Lanes, s.Order.SizeRecords, s.Deal.Workers = 32, 3200, 1
	d = open(t, s)
	set, err = d.Set(context.Background(), 0, nil, s.Deal)
	require.NoError(t, err)
	start, err = d.current.expect(set.View(), 0, 0)
	require.NoError(t, err)
	require.Greater(t, start.Shards, 16)
	require.True(t, start.Smaller)
}

func TestUncompressedDatasetWaitsForNothing(t *testing.T) {
	s := testSpec(t, makePlainLines(t))
	d := open(t, s)
	set, err := d.Set(context.Background(), 0, nil, s.Deal)
	require.NoError(t, err)
	start, err := d.Expect(set.View(), 0)
	require.NoError(t, err)
	require.Empty(t, start.Text())
	require.Zero(t, start.Seconds)
}

func TestLanesAreSuggestedIfTheyHelp(t *testing.T) {
	s := Start{Lanes: 8, LanesSeconds: 3.04}
	s.Shards, s.DecodeBytes, s.Seconds = 32, 5<<30, 13
	require.Equal(t, "about 13 s until the first bytes come: 5.0 GiB of 32 compressed shards come before them and are decoded first; "+
		"--lanes 8 would make that about 3.0 s, in another order", s.Text())
	s.Lanes, s.Smaller = 0, true
	require.Contains(t, s.Text(), "a smaller --shuffle-size would")
}
