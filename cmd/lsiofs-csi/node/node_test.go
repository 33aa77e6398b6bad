package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs-csi/volume"
)

func TestMissingPathsAreCheckedAtTheirFutureLocation(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	allowed, secret := filepath.Join(dir, "allowed"), filepath.Join(dir, "never")
	require.NoError(t, os.MkdirAll(filepath.Join(allowed, "there"), 0o755))
	require.NoError(t, os.Mkdir(secret, 0o755))
	for link, to := range map[string]string{"l": secret, "within": "there", "nowhere": filepath.Join(secret, "new"), "loop": "loop", "l*": secret} {
		require.NoError(t, os.Symlink(to, filepath.Join(allowed, link)))
	}
	p := volume.Policy{Allow: []string{allowed}, Never: volume.Never(secret)}
	for path, good := range map[string]bool{
		"there": true, "own": true, "own/new": true, "there/new": true, "within": true, "within/a/b": true,
		"l": false, "l/new": false, "l/a/b": false, "nowhere": false, "nowhere/a": false, "loop": false, "loop/a": false, "l*/new": false, "within/a*/b": true,
	} {
		at := filepath.Join(allowed, path)
		require.Equal(t, good, resolve([]string{at}, p) == nil, path)
		err := makeDirectories([]string{at}, p)
		require.Equal(t, good, err == nil, "%s: %v", path, err)
		if good {
			info, err := os.Stat(at)
			require.NoError(t, err)
			require.True(t, info.IsDir(), path)
		}
	}
	left, err := os.ReadDir(secret)
	require.NoError(t, err)
	require.Empty(t, left, "nothing is made elsewhere")
}

// A link created after the check is not followed.
func TestCreatingDirectoryFollowsNoLink(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	secret := filepath.Join(dir, "secret")
	require.NoError(t, os.Mkdir(secret, 0o755))
	require.NoError(t, os.Symlink(secret, filepath.Join(dir, "l")))
	require.Error(t, makeBelow(filepath.Join(dir, "l"), "a"))
	require.Error(t, makeBelow(dir, "l/a"))
	require.NoError(t, makeBelow(dir, "own/a/b"))
	left, err := os.ReadDir(secret)
	require.NoError(t, err)
	require.Empty(t, left)
}
