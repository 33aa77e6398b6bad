package checkpoint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestWriteFileReplacesFileAndLeavesNoOther(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "c.json")
	require.NoError(t, os.WriteFile(path, []byte("a longer text that was there"), 0o644))
	require.NoError(t, WriteFile(path, []byte("new\n")))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "new\n", string(text))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	require.Equal(t, []string{"c.json"}, namesIn(t, dir))
}

func TestWriteFileDoesNotFollowLinks(t *testing.T) {
	dir := t.TempDir()
	victim, path := filepath.Join(dir, "victim"), filepath.Join(dir, "c.json")
	require.NoError(t, os.WriteFile(victim, []byte("precious"), 0o644))
	require.NoError(t, os.Symlink(victim, path))
	require.NoError(t, WriteFile(path, []byte("new")))
	text, err := os.ReadFile(victim)
	require.NoError(t, err)
	require.Equal(t, "precious", string(text))
	info, err := os.Lstat(path)
	require.NoError(t, err)
	require.True(t, info.Mode().IsRegular())
}

func TestFailedWriteFileLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	long := filepath.Join(dir, strings.Repeat("x", 300)) // longer than any file name
	require.ErrorContains(t, WriteFile(long, []byte("new")), long)
	require.Empty(t, namesIn(t, dir))

	path := filepath.Join(dir, "c.json")
	require.NoError(t, os.Mkdir(path, 0o755))
	require.ErrorContains(t, WriteFile(path, []byte("new")), path+": it is a directory; name a file")
	require.Equal(t, []string{"c.json"}, namesIn(t, dir))

	missing := filepath.Join(dir, "no", "c.json")
	require.ErrorIs(t, WriteFile(missing, nil), os.ErrNotExist)
}

func TestWriteFileAcceptsRelativePath(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, WriteFile("c.json", []byte("new")))
	require.Equal(t, []string{"c.json"}, namesIn(t, "."))
}

// /dev/stdout is a link: replacing it would take away every program's output.
func TestWriteFileDoesNotReplaceLinkToNonFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stdout")
	require.NoError(t, os.Symlink("/dev/null", path))
	require.ErrorContains(t, WriteFile(path, []byte("new")), "not a regular file")
	target, err := os.Readlink(path)
	require.NoError(t, err)
	require.Equal(t, "/dev/null", target)
}
