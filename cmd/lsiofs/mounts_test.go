package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const mountinfo = `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
36 22 0:31 / /mnt/a rw,nosuid - fuse.lsiofs lsiofs rw,user_id=0
37 22 0:32 / /mnt/with\040space rw shared:2 master:1 - fuse.lsiofs /data\040set rw
38 36 0:33 / /mnt/a rw - tmpfs tmpfs rw
short line
`

func TestMountsAreRead(t *testing.T) {
	mounts, err := parseMounts(strings.NewReader(mountinfo))
	require.NoError(t, err)
	require.Len(t, mounts, 4)
	m, ok := mountAt(mounts, "/mnt/with space")
	require.True(t, ok)
	require.Equal(t, mountEntry{"/mnt/with space", fuseType, "/data set"}, m)
	m, _ = mountAt(mounts, "/mnt/a")
	require.Equal(t, "tmpfs", m.Type, "the topmost counts")
	_, ok = mountAt(mounts, "/mnt/b")
	require.False(t, ok)

	here, err := readMounts()
	require.NoError(t, err)
	_, ok = mountAt(here, "/proc")
	require.True(t, ok)
}

func TestPointsAreResolvedWithoutLookingAtThem(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	real := filepath.Join(dir, "real")
	require.NoError(t, os.MkdirAll(filepath.Join(real, "mnt"), 0o755))
	require.NoError(t, os.Symlink("real", filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink(filepath.Join(real, "mnt"), filepath.Join(dir, "direct")))
	for _, p := range []string{"real/mnt", "link/mnt", "direct", "real/../link/mnt/"} {
		got, err := resolvePoint(dir + "/" + p)
		require.NoError(t, err)
		require.Equal(t, filepath.Join(real, "mnt"), got, p)
	}
	_, err = resolvePoint(filepath.Join(dir, "missing", "mnt"))
	require.Error(t, err)
}

func TestInside(t *testing.T) {
	for _, c := range []struct {
		path, dir string
		want      bool
	}{
		{"/a", "/a", true}, {"/a/b", "/a", true}, {"/ab", "/a", false}, {"/", "/a", false}, {"/a/..b", "/a", true}, {"/a", "/", true},
	} {
		require.Equal(t, c.want, inside(c.path, c.dir), "%+v", c)
	}
}

func TestMountPointChecks(t *testing.T) {
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	mnt := filepath.Join(dir, "mnt")
	require.NoError(t, os.MkdirAll(filepath.Join(data, "sub"), 0o755))
	require.NoError(t, os.Mkdir(mnt, 0o755))
	require.NoError(t, os.Symlink(filepath.Join(data, "sub"), filepath.Join(dir, "sneaky")))
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))

	_, err := checkMountPoint(mnt, data)
	require.NoError(t, err)
	_, err = checkMountPoint(mnt, filepath.Join(data, "**", "*.tar"))
	require.NoError(t, err)
	_, err = checkMountPoint(filepath.Join(data, "sub"), filepath.Join(data, "*.tar"))
	require.NoError(t, err, "a pattern without ** does not look into directories")
	full := filepath.Join(dir, "full")
	require.NoError(t, os.MkdirAll(filepath.Join(full, "x"), 0o755))
	for path, says := range map[string]string{
		filepath.Join(dir, "none"):   "mkdir -p",
		file:                         "not a directory",
		full:                         "is not empty",
		dir:                          "would hide it",
		data:                         "inside the dataset",
		filepath.Join(data, "sub"):   "inside the dataset",
		filepath.Join(dir, "sneaky"): "inside the dataset",
		"/proc":                      "is a mount already (proc)",
	} {
		_, err := checkMountPoint(path, data)
		require.ErrorContains(t, err, says, path)
		require.Equal(t, exitMount, errorCode(err))
	}
	_, err = checkMountPoint(filepath.Join(data, "sub"), filepath.Join(data, "**", "*.tar"))
	require.ErrorContains(t, err, "inside the dataset", "a pattern's root counts")
}

func TestShellWords(t *testing.T) {
	require.Equal(t, "/mnt/a-1.x", shellQuote("/mnt/a-1.x"))
	require.Equal(t, "'/mnt/a b'", shellQuote("/mnt/a b"))
	require.Equal(t, `'it'\''s'`, shellQuote("it's"))
	require.Equal(t, "''", shellQuote(""))
}

func TestHoldersAreFound(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	f, err := os.Create(filepath.Join(dir, "held"))
	require.NoError(t, err)
	defer f.Close()
	found := holders("/proc", dir, 0)
	require.Len(t, found, 1)
	require.Equal(t, os.Getpid(), found[0].PID)
	require.Equal(t, f.Name(), found[0].Uses)
	require.Empty(t, holders("/proc", dir, os.Getpid()))
	require.Contains(t, holdersText(found), f.Name())
	require.Empty(t, holders("/proc", filepath.Join(dir, "other"), 0))
	require.Contains(t, holdersText(nil), "can't be seen")
}
