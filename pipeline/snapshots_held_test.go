package pipeline

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/growing/snapshot"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// With --hold, shards may be deleted at any time: a mount that has not indexed them before, on
// another node or with another index directory, reads them through their links.
func TestLinkedShardIsReadWithoutItsOriginalIndex(t *testing.T) {
	dir, runDir := t.TempDir(), filepath.Join(t.TempDir(), "run")
	arrive(t, dir, 1)
	s := growingSpec(t, dir, runDir)
	s.Grow.Hold = true
	d, err := Open(t.Context(), s, Options{})
	require.NoError(t, err)
	run := d.Run()
	require.NoError(t, d.Close())
	require.NoError(t, os.Remove(filepath.Join(dir, "s.1.jsonl")))
	links, err := filepath.Glob(filepath.Join(dir, ".lsiofs", "hold", run, "*"))
	require.NoError(t, err)
	require.Len(t, links, 1)

	s = growingSpec(t, dir, runDir) // its index is in a directory of its own
	s.Grow.Hold, s.Grow.Of, s.Grow.Latest = true, run, false
	d, err = Open(t.Context(), s, Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	set, err := d.Set(t.Context(), 0, nil, d.Spec().Deal)
	require.NoError(t, err)
	lines := 0
	for w := range d.Spec().Deal.Workers {
		lines += strings.Count(string(readFile(t, set, w, stream.Data, 1<<20)), "\n")
	}
	require.Equal(t, 51, lines)
}

// Holding shards does not create an index directory inside the dataset: mounting again continues
// the same run.
func TestLinkingShardsDoesNotChangeRun(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir := t.TempDir()
	arrive(t, dir, 1)
	s := growingSpec(t, dir, "")
	s.IndexDir, s.Grow.Hold = "", true
	d, err := Open(t.Context(), s, Options{})
	require.NoError(t, err)
	run, place := d.Run(), d.Status().Growing.RunDir
	require.NoError(t, d.Close())
	require.DirExists(t, filepath.Join(dir, ".lsiofs", "hold"))
	d, err = Open(t.Context(), s, Options{})
	require.NoError(t, err)
	require.Equal(t, run, d.Run())
	require.Equal(t, place, d.Status().Growing.RunDir)
	require.NoError(t, d.Close())

	// An index directory inside the dataset counts as before.
	require.NoError(t, os.Mkdir(filepath.Join(dir, ".lsiofs", "runs"), 0o755))
	d, err = Open(t.Context(), s, Options{})
	require.NoError(t, err)
	require.NotEqual(t, place, d.Status().Growing.RunDir)
	require.NoError(t, d.Close())

	s.Grow.Run = filepath.Join(t.TempDir(), "not", "there")
	_, err = Open(t.Context(), s, Options{})
	require.ErrorContains(t, err, "create its parent directory")
}

// The error for an epoch that lacks a shard names the next step.
func TestMissingShardErrorNamesNextStep(t *testing.T) {
	dir, runDir := t.TempDir(), filepath.Join(t.TempDir(), "run")
	arrive(t, dir, 1)
	arrive(t, dir, 2)
	d, err := Open(t.Context(), growingSpec(t, dir, runDir), Options{})
	require.NoError(t, err)
	require.NoError(t, d.Close())
	require.NoError(t, os.Remove(filepath.Join(dir, "s.1.jsonl")))
	_, err = Open(t.Context(), growingSpec(t, dir, runDir), Options{})
	require.ErrorContains(t, err, "s.1.jsonl is in the snapshot but not here")
	require.ErrorContains(t, err, "--epoch 1")
	s := growingSpec(t, dir, runDir)
	s.Epoch, s.Grow.Latest = 1, false
	d, err = Open(t.Context(), s, Options{Waiting: func(snapshot.Status) {}})
	require.NoError(t, err)
	require.EqualValues(t, 52, d.Records())
	require.NoError(t, d.Close())
}
