package filesystem

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestForbiddenPathIsRefusedByAnyRoute(t *testing.T) {
	data, never := t.TempDir(), filepath.Join(t.TempDir(), "never")
	for _, dir := range []string{filepath.Join(never, "in"), never + "-not", filepath.Join(data, "d")} {
		require.NoError(t, os.MkdirAll(dir, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte("x"), 0o600))
	}
	links := map[string]string{
		"is": never, "in": never + "/in", "file": never + "/in/f", "holds": filepath.Dir(never), "all": "/",
		"magic": "/proc/self/root" + data, "beside": never + "-not", "near": "d", "near-file": "d/f",
	}
	for name, to := range links {
		require.NoError(t, os.Symlink(to, filepath.Join(data, name)))
	}
	require.NoError(t, os.Symlink("in", filepath.Join(data, "twice")))
	t.Setenv(NeverVariable, never)
	n, err := NeverOf()
	require.NoError(t, err)
	for _, name := range []string{"is", "in", "file", "holds", "all", "twice", "in/f"} {
		err := n.Check(unix.AT_FDCWD, filepath.Join(data, name))
		require.ErrorIs(t, err, fs.ErrPermission, name)
		require.ErrorContains(t, err, never, name)
	}
	require.ErrorIs(t, n.Check(unix.AT_FDCWD, filepath.Join(data, "magic")), unix.ELOOP, "a link of /proc")
	for _, name := range []string{"beside", "near", "near-file", "d", "d/f"} {
		require.NoError(t, n.Check(unix.AT_FDCWD, filepath.Join(data, name)), name)
	}

	open := map[string]func(path string) (int, error){
		"file": func(path string) (int, error) { return n.OpenRegular(unix.AT_FDCWD, path) },
		"is":   func(path string) (int, error) { return n.OpenDirectory(unix.AT_FDCWD, path) },
		"in/f": func(path string) (fd int, err error) {
			for { // the kernel may have dropped the path from its cache, or not find it there while others rename
				if fd, err = n.OpenRegularCached(unix.AT_FDCWD, path); err != unix.EAGAIN {
					break
				}
				_, _ = os.Stat(path)
			}
			return fd, err
		},
	}
	for name, open := range open {
		_, err := open(filepath.Join(data, name))
		require.ErrorIs(t, err, fs.ErrPermission, name)
	}
	for name, open := range map[string]func(path string) (int, error){"near-file": open["file"], "near": open["is"]} {
		fd, err := open(filepath.Join(data, name))
		require.NoError(t, err, name)
		require.NoError(t, unix.Close(fd))
	}
}

func TestForbiddenPathsMustBeAbsolute(t *testing.T) {
	t.Setenv(NeverVariable, "")
	n, err := NeverOf()
	require.NoError(t, err)
	require.NoError(t, n.Check(unix.AT_FDCWD, "/"))
	for _, wrong := range []string{"a", "/a\n", "/a/../b", "/a\nb"} {
		t.Setenv(NeverVariable, wrong)
		_, err := NeverOf()
		require.ErrorContains(t, err, NeverVariable, wrong)
	}
}

func TestDirectoryReentryIsBounded(t *testing.T) {
	var e Entered
	for i := range uint64(5000) { // other directories do not count
		require.NoError(t, e.Enter(1, i))
		require.NoError(t, e.Enter(2, i), "another device")
		if i%2 == 0 {
			e.Leave(2, i)
			require.NoError(t, e.Enter(2, i))
		}
	}
	for i := range uint64(mostAgain) {
		require.NoError(t, e.Enter(1, i%3))
	}
	require.ErrorIs(t, e.Enter(1, 0), ErrManyLinks)
	require.NoError(t, e.Enter(3, 0), "it is new")
	e.Leave(1, 0)
	require.NoError(t, e.Enter(1, 1))
	require.ErrorIs(t, e.Enter(1, 1), ErrManyLinks)
}

func TestFileIsBeingWrittenWhileOpenForWriting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	f, err := os.Create(path)
	require.NoError(t, err)
	written, unknown := Written(path)
	require.True(t, written != unknown, "it is, or it can't be told here")
	require.NoError(t, f.Close())
	again, _ := Written(path)
	require.False(t, again)
	_, unknown = Written(path + " is not there")
	require.True(t, unknown)
}
