package mounting

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestADaemonsLogIsNotWrittenWhereALinkLeads: by default it lies with the index,
// perhaps in a directory of the dataset's owner.
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
			_, err := openLog(path, false)
			require.ErrorContains(t, err, "--log-file")
			require.NoError(t, os.Remove(path))
		})
	}
	f, err := openLog(path, false)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())

	f, err = openLog("/dev/null", true)
	require.NoError(t, err, "what was asked for by name may be anything")
	require.NoError(t, f.Close())
	text, err := os.ReadFile(victim)
	require.NoError(t, err)
	require.Equal(t, "precious", string(text))
}
