package hosts

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// Dir makes a directory below /var/tmp whose name begins with prefix, for machines to share; it is
// removed when the test ends. It also removes those of tests that were killed: the lock of a living
// test's directory is held.
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
