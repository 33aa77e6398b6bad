package readtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// DiskDir returns a directory that is not on a tmpfs.
func DiskDir(t testing.TB) string {
	t.Helper()
	for _, base := range []string{os.TempDir(), "/var/tmp"} {
		dir, err := os.MkdirTemp(base, "lsiofs-test-*")
		if err != nil {
			continue
		}
		t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
		var st unix.Statfs_t
		if require.NoError(t, unix.Statfs(dir, &st)); st.Type != unix.TMPFS_MAGIC {
			return dir
		}
	}
	t.Skip("no temporary directory on a disk")
	return ""
}

// Alter changes a file without changing its mtime.
func Alter(t *testing.T, d *Dataset, shard int, change func(b []byte)) {
	path := filepath.Join(d.Dir, d.Index.ShardTable[shard].Object.Path)
	info, err := os.Stat(path)
	require.NoError(t, err)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	change(b)
	require.NoError(t, os.WriteFile(path, b, 0o644))
	require.NoError(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
}
