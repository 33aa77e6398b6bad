package pipeline

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// With --hold shards may be deleted at any time: a mount that has not indexed them before,
// on another node or with another index directory, reads them by their links.
func TestAHeldShardIsReadWithoutTheIndexItWasTakenWith(t *testing.T) {
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
