package fs

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCeilingReadsLikeAnyStream(t *testing.T) {
	needFUSE(t)
	const size = 3<<20 + 17
	dir := newPoint(t)
	m, err := NewCeiling(t.Context(), CeilingConfig{Rings: ringed, MountPoint: dir, StreamBytes: size, Log: discard})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		require.NoError(t, m.Unmount(ctx))
	})
	a := newAgent(t)
	got := a.read(filepath.Join(dir, "epoch-3", "worker-1-of-4"+CeilingExtension))
	require.Len(t, got, size)
	for i := range got {
		if got[i] != byte(i*7) {
			t.Fatalf("byte %d is %d", i, got[i])
		}
	}
	out, code := run(t, dir, "cmp", "-i", "1000001:1", "worker-0.bin", "epoch-0/worker-0-of-1.bin")
	require.Equal(t, 1, code, "other places have other bytes: %s", out)
	out, code = run(t, dir, "cmp", "-n", "2000000", "-i", "1000001:65", "worker-0.bin", "epoch-0/worker-0-of-1.bin")
	require.Zero(t, code, "bytes at a place don't depend on how it is read: %s", out)
}
