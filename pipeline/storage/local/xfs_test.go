package local

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage/storagetest"
	"github.com/lsiofs/lsiofs/uring"
)

// xfsHere returns a directory on a new XFS file system.
func xfsHere(t *testing.T) string {
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	require.NoError(t, os.Truncate(image, 512<<20))
	for _, args := range [][]string{{"mkfs.xfs", "-q", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("%v: %v: %s", args, err, out)
			}
			t.Skipf("no XFS can be mounted here: %v: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

// On XFS a truncation zeroes the rest of the last page some time before anything else shows it.
func TestTruncationZeroesOnXFSAreDetectedAfterCopy(t *testing.T) {
	root := xfsHere(t)
	mapsHere(t, root)
	s := openDirectly(t, root, openEngine(t, uring.ModePread), DirectAuto, 10)
	content := bytes.Repeat([]byte{7}, 2*int(pageBytes))
	path := filepath.Join(root, "a")
	copied := make([]byte, 100)
	for range 200 {
		write(t, root, "a", string(content))
		writer, err := os.OpenFile(path, os.O_RDWR, 0) // so that there is no lease
		require.NoError(t, err)
		m, err := storagetest.Map(s, stat(t, s, "a"))
		require.NoError(t, err)
		_, ok := m.Populate(0, int64(len(content)))
		require.True(t, ok)
		require.False(t, m.Leased())
		var truncated atomic.Bool
		ended := make(chan error)
		go func() {
			err := writer.Truncate(pageBytes + 1000)
			truncated.Store(true)
			ended <- err
		}()
		for last := false; !last; {
			last = truncated.Load()
			copy(copied, m.Bytes()[pageBytes+1000:])
			if err := m.Check(); err == nil {
				require.Equal(t, content[:len(copied)], copied, "these bytes were said to be right")
			}
		}
		require.NoError(t, <-ended)
		require.NoError(t, writer.Close())
		require.NoError(t, m.Close())
	}
}
