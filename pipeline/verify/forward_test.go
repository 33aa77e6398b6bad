package verify

import (
	"context"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/uring"
)

func TestForwardReadsAreTheBytesOfTheFile(t *testing.T) {
	dir := t.TempDir()
	engine, err := uring.Open(uring.ModePread)
	require.NoError(t, err)
	files, err := local.Open(dir, engine)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, files.Close())
		require.NoError(t, engine.Close())
	})
	want := make([]byte, 70_001)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range want {
		want[i] = byte(r.Uint32())
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), want, 0o644))
	o, err := files.Stat(context.Background(), "a")
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		part := int64(4096 * rapid.IntRange(1, 6).Draw(t, "pages"))
		depth := rapid.IntRange(1, 5).Draw(t, "depth")
		arrived := int64(0)
		f, err := newForward(context.Background(), files, part, depth, func(n int64) { arrived += n })
		require.NoError(t, err)
		defer f.close()
		require.NoError(t, f.open(o, nil))
		at := int64(0)
		for range rapid.IntRange(1, 30).Draw(t, "reads") {
			if rapid.IntRange(0, 5).Draw(t, "jump") == 0 {
				at = rapid.Int64Range(0, int64(len(want))+100).Draw(t, "to")
			}
			p := make([]byte, rapid.IntRange(0, 30_000).Draw(t, "size"))
			n, err := f.ReadAt(p, at)
			left := max(0, int64(len(want))-at)
			if int64(len(p)) > left {
				require.ErrorIs(t, err, io.EOF)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, int(min(left, int64(len(p)))), n)
			if n > 0 {
				require.Equal(t, want[at:at+int64(n)], p[:n])
			}
			at += int64(n)
		}
		require.LessOrEqual(t, arrived, int64(len(want)))
	})
}
