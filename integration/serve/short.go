package serve

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// shortPlace is the parent of short directories.
const shortPlace = "/tmp"

// maxTempBytes is the longest TMPDIR of a program that makes sockets in it. Python's
// multiprocessing, which torch's DataLoaders use to pass tensors on, adds about 40 of the 108
// bytes, and waits forever if the path is too long.
const maxTempBytes = 60

// longTemp is the temporary directory of programs if its path is too long for their sockets, and
// shortTemp a link to it. Otherwise both are empty. They are set before the tests run.
var longTemp, shortTemp string

// shorten makes the link to dir if its path is too long. remove removes the link.
func shorten(dir string) (remove func(), err error) {
	if len(dir) <= maxTempBytes {
		return func() {}, nil
	}
	parent, lock, err := Claim(shortPlace, scratchPrefix)
	if err != nil {
		return nil, err
	}
	remove = func() {
		_ = os.RemoveAll(parent)
		_ = lock.Close() // it was only locked
	}
	link := filepath.Join(parent, "t")
	if err := os.Symlink(dir, link); err != nil {
		remove()
		return nil, err
	}
	longTemp, shortTemp = dir, link
	return remove, nil
}

// ShortDir makes a directory with a short path that other users may enter, and removes it when the
// test ends. It is for sockets, whose paths have at most 108 bytes, and for what other users read
// or write. TMPDIR may be long, and may be closed to others; everything else belongs in t.TempDir.
func ShortDir(t testing.TB) string {
	t.Helper()
	parent, lock, err := Claim(shortPlace, scratchPrefix)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, os.RemoveAll(parent))
		_ = lock.Close() // it was only locked
	})
	require.NoError(t, os.Chmod(parent, 0o711))
	dir := filepath.Join(parent, "d")
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.Chmod(dir, 0o755)) // whatever the umask
	return dir
}
