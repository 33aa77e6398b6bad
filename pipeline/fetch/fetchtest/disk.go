package fetchtest

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// DiskDir is a directory that does not lie in memory.
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
