package fs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const mountinfo = `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
36 22 0:31 / /mnt/a rw,nosuid - fuse.lsiofs lsiofs rw,user_id=0
37 22 0:32 / /mnt/with\040space rw shared:2 master:1 - fuse.lsiofs /data\040set rw,user_id=1000,group_id=100
38 36 0:33 / /mnt/a rw - tmpfs tmpfs rw
short line
`

func TestMountTableIsParsed(t *testing.T) {
	mounts, err := parseMounts(strings.NewReader(mountinfo))
	require.NoError(t, err)
	require.Len(t, mounts, 4)
	m, ok := TopMount(mounts, "/mnt/with space")
	require.True(t, ok)
	require.Equal(t, MountEntry{37, "0:32", "/mnt/with space", FileSystemType, "/data set", 1000}, m)
	m, _ = TopMount(mounts, "/mnt/a")
	require.Equal(t, "tmpfs", m.Type, "the topmost counts")
	require.Equal(t, -1, m.User, "no file system of a user")
	_, ok = TopMount(mounts, "/mnt/b")
	require.False(t, ok)

	here, err := Mounts()
	require.NoError(t, err)
	_, ok = TopMount(here, "/proc")
	require.True(t, ok)
}

func TestMountPointsAreResolvedWithoutAccessingThem(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	real := filepath.Join(dir, "real")
	require.NoError(t, os.MkdirAll(filepath.Join(real, "mnt"), 0o755))
	require.NoError(t, os.Symlink("real", filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink(filepath.Join(real, "mnt"), filepath.Join(dir, "direct")))
	for _, p := range []string{"real/mnt", "link/mnt", "direct", "real/../link/mnt/"} {
		got, err := ResolvePoint(dir + "/" + p)
		require.NoError(t, err)
		require.Equal(t, filepath.Join(real, "mnt"), got, p)
	}
	_, err = ResolvePoint(filepath.Join(dir, "missing", "mnt"))
	require.Error(t, err)
}
