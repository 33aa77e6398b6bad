package fileset

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
)

// onBacking returns a directory, and a FUSE file system that shows it.
func onBacking(t *testing.T, o backing.Options) (behind string, b *backing.FileSystem) {
	if _, err := os.Stat("/dev/fuse"); err != nil && os.Getenv("CI") != "true" {
		t.Skipf("no FUSE here: %v", err)
	}
	behind = t.TempDir()
	return behind, backing.Mount(t, behind, o, os.Environ())
}

// readPart reads part of an object.
func readPart(t *testing.T, s *Storage, o storage.Object, off, size int64) ([]byte, error) {
	p := make([]byte, size)
	return p, storage.ReadAt(t.Context(), s, o, p, off)
}

// The link replaces a file, or a directory.
func TestLinkTargetIsCheckedBeforeOpen(t *testing.T) {
	for _, blind := range []bool{false, true} {
		for name, become := range map[string]func(root, pipe string) error{
			"a file": func(root, pipe string) error {
				path := filepath.Join(root, "d/pipe")
				require.NoError(t, os.Remove(path))
				return os.Symlink(pipe, path)
			},
			"a directory": func(root, pipe string) error {
				require.NoError(t, os.Rename(filepath.Join(root, "d"), filepath.Join(root, "d.away")))
				return os.Symlink(filepath.Dir(pipe), filepath.Join(root, "d"))
			},
		} {
			t.Run(name, func(t *testing.T) {
				root, pipe := t.TempDir(), filepath.Join(t.TempDir(), "pipe")
				require.NoError(t, unix.Mkfifo(pipe, 0o600))
				write(t, root, "d/pipe", []byte("content"))
				s := open(t, root, bare{})
				s.blind.Store(blind)
				o := list(t, s)["d"]
				require.NoError(t, become(root, pipe))
				watch, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
				require.NoError(t, err)
				defer unix.Close(watch)
				_, err = unix.InotifyAddWatch(watch, pipe, unix.IN_OPEN)
				require.NoError(t, err)

				_, err = readPart(t, s, o, 0, 3)
				require.ErrorIs(t, err, storage.ErrChanged)
				_, err = unix.Read(watch, make([]byte, 4096))
				require.Equal(t, unix.EAGAIN, err, "the pipe was not opened")
			})
		}
	}
}

func TestLinksToFilesAreFollowedWithAndWithoutOpenat2(t *testing.T) {
	root, elsewhere := t.TempDir(), t.TempDir()
	write(t, elsewhere, "file", []byte("content"))
	write(t, root, "d/b", []byte(" and more"))
	require.NoError(t, os.Symlink(filepath.Join(elsewhere, "file"), filepath.Join(root, "d/a")))
	for _, c := range []struct{ blind, noOpenat2 bool }{{}, {blind: true}, {noOpenat2: true}} {
		s := open(t, root, bare{})
		s.blind.Store(c.blind)
		s.noOpenat2.Store(c.noOpenat2)
		got, err := readPart(t, s, list(t, s)["d"], 0, 16)
		require.NoError(t, err)
		require.Equal(t, "content and more", string(got))
	}
}

func TestForgottenFilesKeepIdentityDespiteNewInodeNumbers(t *testing.T) {
	behind, b := onBacking(t, backing.Options{NewInodes: true})
	write(t, behind, "d/a", []byte("content"))
	s := open(t, b.Dir, bare{})
	o := list(t, s)["d"]
	number := func() uint64 {
		var st unix.Stat_t
		require.NoError(t, unix.Stat(filepath.Join(b.Dir, "d/a"), &st))
		return st.Ino
	}
	before := number()
	require.Eventually(t, func() bool {
		b.Forget("d/a") // the file system gets this request some time later
		return number() != before
	}, 90*time.Second, time.Millisecond)
	got, err := readPart(t, s, o, 0, 7)
	require.NoError(t, err)
	require.Equal(t, "content", string(got))
	require.Equal(t, o, list(t, s)["d"], "an index still holds")
}

// The attributes that the kernel caches show no change for an hour. The dataset is on that file
// system, or has links to files there.
func TestWriteHiddenByAttributeCacheIsErrChanged(t *testing.T) {
	const size = 4 << 20 // far more than the kernel's readahead
	for _, linked := range []bool{false, true} {
		behind, b := onBacking(t, backing.Options{Attributes: time.Hour, ReadOnly: true})
		write(t, behind, "d/a", []byte(strings.Repeat("a", size)))
		root := b.Dir
		if linked {
			root = t.TempDir()
			require.NoError(t, os.Mkdir(filepath.Join(root, "d"), 0o700))
			require.NoError(t, os.Symlink(filepath.Join(b.Dir, "d/a"), filepath.Join(root, "d/a")))
		}
		s := open(t, root, bare{})
		o := list(t, s)["d"]
		got, err := readPart(t, s, o, 0, 4096)
		require.NoError(t, err)
		require.Equal(t, strings.Repeat("a", 4096), string(got))

		write(t, behind, "d/a", []byte(strings.Repeat("b", size)))
		_, err = readPart(t, s, o, 3<<20, 4096)
		require.ErrorIs(t, err, storage.ErrChanged)
	}
}

// ctime shows it. The file that was listed can still be read.
func TestWriteWithRestoredTimestampChangesObject(t *testing.T) {
	root := t.TempDir()
	write(t, root, "d/a", []byte("content"))
	past := time.Now().Add(-time.Hour)
	path := filepath.Join(root, "d/a")
	require.NoError(t, os.Chtimes(path, past, past))
	s := open(t, root, bare{})
	before := list(t, s)["d"]
	require.Equal(t, before, list(t, s)["d"])
	write(t, root, "d/a", []byte("CONTENT"))
	require.NoError(t, os.Chtimes(path, past, past))
	require.NotEqual(t, before, list(t, s)["d"])
}
