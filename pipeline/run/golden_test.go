package run

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// goldenRun is a run directory that was created without this package: two epochs of games.
const goldenRun = "3f0c5a1e9b7d42688f00c1d2e3f4a5b6"

var (
	goldenInfo   = Info{Version: 1, Run: goldenRun, Format: "lc0", Kind: "V6", Newest: "name", Made: "2026-11-21T22:30:00Z"}
	goldenEpochs = []Epoch{
		{
			Version: 1, Run: goldenRun, Epoch: 0, Snapshot: Fingerprint([]byte(oneShard)), Shards: 1, Records: 80, Units: 1, Bytes: 668480,
			NewShards: 1, NewRecords: 80, NewUnits: 1, Window: "all", Taken: "2026-11-21T22:31:00Z", By: "node1/17",
		},
		{
			Version: 1, Run: goldenRun, Epoch: 1, Snapshot: Fingerprint([]byte(twoShards)), Shards: 2, Records: 180, Units: 2, Bytes: 1504080,
			NewShards: 1, NewRecords: 100, NewUnits: 1, Window: "500000units", Taken: "2026-11-21T22:48:47Z", By: "node3/4711",
		},
	}
)

const oneShard = "lsiofs/1 dataset lc0\n80 668480 1 training.9.gz\n"

// Files of other versions and other nodes can be read, and what is written now is identical to the
// byte.
func TestGoldenRunDirectoriesAreReadAndWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	require.NoError(t, os.CopyFS(path, os.DirFS("testdata/golden")))
	// Whatever the permissions in the source tree.
	for _, name := range []string{".", "run.json", "epoch-0", "epoch-1", "snapshots"} {
		file := filepath.Join(path, name)
		about, err := os.Stat(file)
		require.NoError(t, err)
		require.NoError(t, os.Chmod(file, about.Mode().Perm()&0o755))
	}
	d, err := Open(path, Info{Format: "lc0", Kind: "V6", Newest: "name"})
	require.NoError(t, err)
	require.Equal(t, goldenInfo, d.Info())
	written, err := encode(goldenInfo)
	require.NoError(t, err)
	there, err := os.ReadFile("testdata/golden/run.json")
	require.NoError(t, err)
	require.Equal(t, string(there), string(written))
	for n, want := range goldenEpochs {
		e, err := d.Epoch(uint64(n))
		require.NoError(t, err)
		require.Equal(t, want, e)
		written, err := encode(want)
		require.NoError(t, err)
		there, err := os.ReadFile(filepath.Join("testdata/golden", epochName(uint64(n))))
		require.NoError(t, err)
		require.Equal(t, string(there), string(written))
		text, err := d.Snapshot(e.Snapshot)
		require.NoError(t, err)
		require.Equal(t, []string{oneShard, twoShards}[n], string(text))
	}
	took, err := d.Take(epochOf(2), textOf(2))
	require.NoError(t, err, "and it goes on")
	require.Equal(t, goldenRun, took.Run)
}
