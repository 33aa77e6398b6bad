// Package goldentest compares the output of commands with golden files in their tests' testdata.
// With -update a test rewrites the files; review the difference before you commit it.
package goldentest

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Update reports whether files are to be rewritten.
func Update() bool { return *update }

// Equal compares got with a file in the testdata of the package under test.
func Equal(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "run this package's tests with -update")
	require.Equal(t, string(want), got)
}
