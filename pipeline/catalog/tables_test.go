package catalog

import (
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func table(t testing.TB, name string) []byte {
	data, err := os.ReadFile("../format/" + name)
	require.NoError(t, err)
	return data
}

// The first whole shard of a growing dataset decides how rows are presented, and later runs keep
// to it.
func TestFirstShardDeterminesPresentationOfGrowingTables(t *testing.T) {
	w := newLiveWorld(newWorld(t))
	images := table(t, "parquet/testdata/vectors/train.0.parquet")
	w.write("a.parquet", images[:len(images)/2])
	s := w.mustOpenLiveIndex()
	w.look(s)
	require.Equal(t, "auto", s.Format().Name)
	require.Equal(t, []string{"a.parquet"}, waitingPaths(s), "it is not whole")
	require.NotContains(t, s.Waiting()[0].Reason, "a.parquet", "the path stands before it")
	w.write("b.parquet", images)
	w.look(s)
	require.Equal(t, "parquet tar", s.FormatLine())
	require.Equal(t, []string{"b.parquet"}, pathsOf(s.Shards()))
	w.write("a.parquet", images)
	w.write("c.parquet", table(t, "tables/testdata/text/a.parquet"))
	w.advance(time.Hour)
	w.look(s)
	require.Equal(t, []string{"a.parquet", "b.parquet"}, pathsOf(s.Shards()))
	require.Equal(t, []string{"c.parquet"}, waitingPaths(s), "other columns are another kind")
	requireSame(t, w.static(map[string][]byte{"a.parquet": images, "b.parquet": images}), w.mustSeal(s, s.Shards()))
	line := s.FormatLine()
	require.NoError(t, s.Close())

	require.Zero(t, w.readsOf(func() {
		s = w.mustOpenLiveIndex()
		w.told = nil
		w.look(s)
	}), "the index has the presentation, too")
	require.Equal(t, line, s.FormatLine())
	require.Equal(t, []string{"a.parquet", "b.parquet"}, pathsOf(s.Shards()))
	require.NoError(t, s.Close())

	s = w.mustOpenLiveIndex(func(c *Config) { c.Format.As = spec.AsJSONL })
	w.told = nil
	w.look(s)
	require.Equal(t, "parquet jsonl", s.FormatLine())
	require.NoError(t, s.Close())
	s = w.mustOpenLiveIndex(func(c *Config) { c.Format.Name, c.Format.Rows = "parquet", spec.Rows{Columns: "ids", Pack: "4"} })
	require.Equal(t, "parquet npy columns ids pack 4", s.FormatLine(), "packed tokens have one presentation")
	_, err := w.openLive(func(c *Config) { c.Format.Name = "parquet" })
	require.ErrorContains(t, err, "--as jsonl, tar or npy, or leave --format out")
}

// ofBytes is an object in memory.
type ofBytes struct{ data []byte }

func (o ofBytes) ReadAt(p []byte, off int64) (int, error) {
	n := copy(p, o.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (ofBytes) Close() {}

// The footer is at a table's end and is read first. That is not progress.
func TestProgressOfTablesIsTheirBytesRead(t *testing.T) {
	var progress reporter
	var told []int64
	r := &shardReader{
		reader: ofBytes{make([]byte, 1000)}, object: storage.Object{SizeBytes: 1000}, ranges: true,
		counter: &progress.bytes, told: func(reached int64) { told = append(told, reached) },
	}
	for _, at := range []int64{992, 900, 4, 104, 500, 0} {
		_, err := r.ReadAt(make([]byte, min(200, 1000-at)), at)
		require.NoError(t, err)
	}
	r.advance(1000)
	require.Equal(t, []int64{8, 108, 308, 508, 708, 908, 1000}, told)
	require.Equal(t, int64(1000), progress.bytes.Load())
}

func TestPresentationsThatAShardMayDetermine(t *testing.T) {
	require.Len(t, formats.Resolutions(spec.Format{Name: "parquet"}), 2)
	for _, f := range []spec.Format{{Name: "tar"}, {Name: "parquet", As: spec.AsNPY}} {
		require.Equal(t, []spec.Format{f}, formats.Resolutions(f))
	}
}
