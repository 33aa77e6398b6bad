package mounting

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// By default the log is next to the index, perhaps in a directory of the dataset's owner.
func TestADaemonsLogIsNotWrittenWhereALinkLeads(t *testing.T) {
	dir := t.TempDir()
	victim, path := filepath.Join(dir, "victim"), filepath.Join(dir, "mount.log")
	require.NoError(t, os.WriteFile(victim, []byte("precious"), 0o600))
	for name, plant := range map[string]func() error{
		"a symbolic link": func() error { return os.Symlink(victim, path) },
		"a second name":   func() error { return os.Link(victim, path) },
		"a pipe":          func() error { return syscall.Mkfifo(path, 0o600) },
		"a file that others may write to": func() error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o622))
		},
		"a stranger's file": func() error {
			if os.Getuid() != 0 {
				t.Skip("making a stranger's file takes root")
			}
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, 65533, 65533))
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, plant())
			_, err := openOwnLog(path)
			require.ErrorContains(t, err, "--log-file")
			require.NoError(t, os.Remove(path))
		})
	}
	f, err := openOwnLog(path)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())

	f, err = new(Config).openDaemonLog("/dev/null", "", "/mnt")
	require.NoError(t, err, "what was asked for by name may be anything")
	require.NoError(t, f.Close())
	text, err := os.ReadFile(victim)
	require.NoError(t, err)
	require.Equal(t, "precious", string(text))
}

// If there is no cache directory and the index directory can't be created, mounts still work, and
// so do their logs.
func TestDaemonLogsElsewhereIfIndexDirectoryCannotBeCreated(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for name, set := range map[string]func(t *testing.T) (indexDir string){
		"no home directory":          func(t *testing.T) string { t.Setenv("HOME", ""); t.Setenv("XDG_CACHE_HOME", ""); return "" },
		"a relative cache directory": func(t *testing.T) string { t.Setenv("XDG_CACHE_HOME", "cache"); return "" },
		"a file in its place":        func(t *testing.T) string { return filepath.Join(file, "index") },
	} {
		t.Run(name, func(t *testing.T) {
			f, err := new(Config).openDaemonLog("", set(t), "/mnt/train")
			require.NoError(t, err)
			require.NoError(t, f.Close())
			require.Equal(t, filepath.Join(dir, fmt.Sprintf("lsiofs-%d", os.Geteuid())), filepath.Dir(f.Name()))
			require.NoError(t, os.Remove(f.Name()))
		})
	}
	require.NoError(t, os.Chmod(filepath.Join(dir, fmt.Sprintf("lsiofs-%d", os.Geteuid())), 0o755))
	_, err := new(Config).openDaemonLog("", filepath.Join(file, "index"), "/mnt/train")
	require.ErrorContains(t, err, "choose another one with --log-file", "others could get at it")
}
