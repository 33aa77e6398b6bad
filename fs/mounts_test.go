package fs

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
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

func TestUnreachableMountIsNamedWithReason(t *testing.T) {
	dir := t.TempDir()
	gone := filepath.Join(dir, "gone")
	for _, c := range []struct {
		name, point string
		err         error
		want        string
	}{
		{"no directory", gone, os.ErrNotExist, gone + " is not a mount of lsiofs: there is no such directory; name the one that lsiofs mount was given"},
		{"nothing mounted", dir, unix.ENOENT, dir + " is not a mount of lsiofs: nothing is mounted there; name the directory that lsiofs mount was given"},
		{"a killed server", dir, unix.ENOTCONN, "the server of " + dir + " is gone: mount again, which repairs the mount point, or remove it with lsiofs umount " + dir},
		{"another error", dir, &fs.PathError{Op: "open", Path: "x", Err: unix.EIO}, "mount " + dir + ": open x: input/output error"},
		{"no permission, and no mount", dir, unix.EACCES, "mount " + dir + ": permission denied"},
	} {
		require.EqualError(t, Unreachable(c.point, c.err), c.want, c.name)
	}
}

func TestMountOwnerHasNameOrNumber(t *testing.T) {
	require.Equal(t, "root", MountEntry{User: 0}.Owner())
	require.Equal(t, "4123456789", MountEntry{User: 4123456789}.Owner())
}
