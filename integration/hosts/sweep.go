package hosts

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// Dir makes a directory below /var/tmp with a name that begins so, for machines that share it, and which
// goes with the test. It takes away those of tests that were killed: of one that lives, its lock is held.
func Dir(t testing.TB, prefix string) string {
	t.Helper()
	serve.SweepAbandoned("/var/tmp/" + prefix + "*")
	dir, lock, err := serve.Claim("/var/tmp", prefix)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, os.RemoveAll(dir))
		_ = lock.Close() // it was only locked
	})
	return dir
}
