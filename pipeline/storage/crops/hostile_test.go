package crops

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// A pipe, device or socket in the place of an object is found when objects are listed. If it
// appears later, it is found when the chunk that would be absent is made.
func TestPipeInPlaceOfObjectIsNotAbsentObject(t *testing.T) {
	a := small
	a.Object = a.Chunk
	for kind, do := range map[string]func(string) error{
		"a pipe":   func(p string) error { return unix.Mkfifo(p, 0o600) },
		"a device": func(p string) error { return os.Symlink("/dev/zero", p) },
		"a socket": func(p string) error { return unix.Mknod(p, unix.S_IFSOCK|0o600, 0) },
	} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, a)
			path := filepath.Join(dir, "c/0/0/0")
			require.NoError(t, os.Remove(path))
			m := &made{Storage: Wrap(openLocal(t, dir), Config{Spec: smallCrops, Base: "a.zarr", MemoryBytes: 1 << 20})}
			t.Cleanup(func() { require.NoError(t, m.Storage.Close()) })
			m.list(t)
			require.NoError(t, do(path))
			err := m.List(t.Context(), func(string, bool) bool { return true }, func(storage.Object) error { return nil })
			require.ErrorIs(t, err, storage.ErrNoFile)
			require.ErrorContains(t, err, path)
			require.ErrorContains(t, err, "remove it")

			_, err = m.read(0, m.object.SizeBytes, 0)
			require.ErrorIs(t, err, storage.ErrNoFile)
			require.ErrorContains(t, err, path)
			require.ErrorContains(t, err, "remove it")
		})
	}
}
