package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/integration/backing"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

// onBacking returns a directory, and a FUSE file system that shows it.
func onBacking(t *testing.T, o backing.Options, names ...string) (behind string, b *backing.FileSystem) {
	if _, err := os.Stat("/dev/fuse"); err != nil && os.Getenv("CI") != "true" {
		t.Skipf("no FUSE here: %v", err)
	}
	behind = t.TempDir()
	for _, name := range names {
		write(t, behind, name, "content of "+name)
	}
	return behind, backing.Mount(t, behind, o, os.Environ())
}

// Closes a file, makes the kernel forget it, and opens it again, under its new inode number.
func TestForgottenFilesAreReadUnderNewInodeNumbers(t *testing.T) {
	_, b := onBacking(t, backing.Options{NewInodes: true}, "a", "b")
	s := openAt(t, b.Dir, 1)
	a, other := stat(t, s, "a"), stat(t, s, "b")
	number := func() uint64 { return inodeOf(t, filepath.Join(b.Dir, "a")) }
	for range 3 {
		before := number()
		require.Equal(t, "content of a", read(t, s, a))
		require.Equal(t, "content of b", read(t, s, other), "which closes a")
		require.Eventually(t, func() bool {
			b.Forget("a") // the file system gets this request some time later
			return number() != before
		}, 90*time.Second, time.Millisecond, "it has another number")
		require.Equal(t, "content of a", read(t, s, a))
		require.Equal(t, a, stat(t, s, "a"), "and is the same object, for an index too")
	}
}

// The attributes that the kernel caches show no change for an hour.
func TestWriteHiddenByAttributeCacheIsErrChanged(t *testing.T) {
	const size = 4 << 20 // far more than the kernel's readahead
	modes := []uring.Mode{uring.ModeUring, uring.ModePread}
	if testing.Short() {
		modes = modes[:1]
	}
	for _, mode := range modes {
		for _, direct := range []Direct{DirectAuto, DirectOn} {
			t.Run(string(mode)+" "+string(direct), func(t *testing.T) {
				behind, b := onBacking(t, backing.Options{Attributes: time.Hour, ReadOnly: true})
				write(t, behind, "a", strings.Repeat("a", size))
				write(t, behind, "gone", strings.Repeat("g", size))
				s := openDirectly(t, b.Dir, openEngine(t, mode), direct, 512)
				for name, o := range listAll(t, s) {
					require.Equal(t, strings.Repeat(name[:1], 4096), string(readAt(t, s, o, 0)))
				}
				listed := listAll(t, s)

				write(t, behind, "a", strings.Repeat("b", size))
				require.NoError(t, os.Remove(filepath.Join(behind, "gone")))
				for off := int64(1 << 20); off < size; off += 1 << 20 { // through the open file, and through new ones
					err := storage.ReadAt(t.Context(), s, listed["a"], make([]byte, 4096), off)
					require.ErrorIs(t, err, storage.ErrChanged)
					err = storage.ReadAt(t.Context(), s, listed["gone"], make([]byte, 4096), off)
					require.ErrorIs(t, err, storage.ErrChanged)
				}
			})
		}
	}
}

func readAt(t *testing.T, s storage.Storage, o storage.Object, off int64) []byte {
	p := make([]byte, 4096)
	require.NoError(t, storage.ReadAt(t.Context(), s, o, p, off))
	return p
}

func inodeOf(t *testing.T, path string) uint64 {
	var st unix.Stat_t
	require.NoError(t, unix.Stat(path, &st))
	return st.Ino
}
