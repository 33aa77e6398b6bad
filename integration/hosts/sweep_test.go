package hosts

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSweepRemovesLeftoversOfKilledTestsOnly(t *testing.T) {
	const prefix = "lsiofs-sweep-test-"
	var alive, dead string
	t.Run("one after the other", func(t *testing.T) {
		alive = Dir(t, prefix)
		dead = filepath.Join("/var/tmp", prefix+"dead")
		require.NoError(t, os.MkdirAll(filepath.Join(dead, "n1", "state"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dead, "lock"), nil, 0o600))
		beginning := filepath.Join("/var/tmp", prefix+"beginning")
		require.NoError(t, os.Mkdir(beginning, 0o755))
		defer os.Remove(beginning)
		other := Dir(t, prefix)
		require.DirExists(t, alive)
		require.DirExists(t, beginning, "it may be one that has no lock yet")
		require.DirExists(t, other)
		require.NoDirExists(t, dead)
	})
	require.NoDirExists(t, alive, "it goes with its test")
}
