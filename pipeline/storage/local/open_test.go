package local

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/storagetest"
)

// opened watches a file, and returns a function that reports whether the file has been opened
// since.
func opened(t *testing.T, path string) func() bool {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	_, err = unix.InotifyAddWatch(fd, path, unix.IN_OPEN)
	require.NoError(t, err)
	return func() bool {
		n, err := unix.Read(fd, make([]byte, 4096))
		if err != nil {
			require.Equal(t, unix.EAGAIN, err)
		}
		return n > 0
	}
}

// Opening a pipe would let its writer continue; opening a device can have side effects.
func TestReplacedFileOfOtherTypeIsNotOpened(t *testing.T) {
	elsewhere := t.TempDir()
	pipe := filepath.Join(elsewhere, "pipe")
	require.NoError(t, unix.Mkfifo(pipe, 0o600))
	device := pipe
	if os.Geteuid() == 0 {
		device = filepath.Join(elsewhere, "null")
		require.NoError(t, unix.Mknod(device, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	}
	for name, c := range map[string]struct {
		is     string // the watched file
		become func(path string) error
	}{
		"a link to a pipe":   {pipe, func(path string) error { return os.Symlink(pipe, path) }},
		"a pipe":             {"", func(path string) error { return unix.Mkfifo(path, 0o600) }},
		"a link to a device": {device, func(path string) error { return os.Symlink(device, path) }},
		"a directory":        {"", func(path string) error { return os.Mkdir(path, 0o700) }},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			write(t, root, "a", "content")
			s := openAt(t, root, 512)
			a := stat(t, s, "a")
			path := filepath.Join(root, "a")
			require.NoError(t, os.Remove(path))
			require.NoError(t, c.become(path))
			if c.is == "" {
				c.is = path
			}
			isOpened := opened(t, c.is)
			err := storage.ReadAt(t.Context(), s, a, make([]byte, 3), 0)
			require.ErrorIs(t, err, storage.ErrChanged)
			require.False(t, isOpened(), "it was opened")
			_, err = s.OpenResident(a)
			require.ErrorIs(t, err, storage.ErrChanged)
			_, err = storagetest.Map(s, a)
			require.ErrorIs(t, err, storage.ErrChanged)
			require.False(t, isOpened(), "it was opened")
		})
	}
}
