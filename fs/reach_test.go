package fs

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

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
