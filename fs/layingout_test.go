package fs

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// While an epoch is being laid out, which here takes most of an hour, status still answers and
// reports what is waited for, even while another program looks at a worker file.
func TestStatusRespondsDuringEpochLayout(t *testing.T) {
	needFUSE(t)
	s := spec.Default()
	s.IndexDir, s.Format.Name, s.Order.Length = t.TempDir(), "lines", 1<<36
	for _, name := range []string{"a", "b"} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "x.txt"), []byte("1\n2\n3\n"), 0o644))
		s.Mix.Sources = append(s.Mix.Sources, spec.Source{Name: name, Weight: 1_000_000, Dataset: dir})
	}
	d, err := pipeline.Open(t.Context(), s, pipeline.Options{Log: discard})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	m, err := New(t.Context(), Config{Dataset: d, Rings: ringed, MountPoint: newPoint(t), Log: discard})
	require.NoError(t, err)
	a := newAgent(t)
	look := exec.Command("stat", filepath.Join(m.MountPoint(), "worker-0.txt"))
	require.NoError(t, look.Start())
	require.Contains(t, a.read(filepath.Join(m.MountPoint(), "status")), "the layout of the epoch of 68,719,476,736 records is being computed")
	require.Contains(t, a.read(filepath.Join(m.MountPoint(), "status.json")), `"laying_out": true`)
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	m.End()
	require.Error(t, look.Wait(), "it has waited until the end")
	require.NoError(t, m.Unmount(ctx))
	require.NoError(t, m.Wait())
}
