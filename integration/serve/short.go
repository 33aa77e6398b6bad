package serve

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// shortPlace is the parent of short directories.
const shortPlace = "/tmp"

// ShortDir makes a directory with a short path that other users may enter, and removes it when the
// test ends. It is for sockets, whose paths have 108 bytes at most, and for what other users read
// or write. TMPDIR may be long, and may be closed to others; all else belongs into t.TempDir.
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
