package formattest

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// Program runs an installed program in dir with stdin and returns its stdout. If there is no such
// program, the test is skipped; in CI it fails.
func Program(t *testing.T, dir string, stdin []byte, name string, args ...string) []byte {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not installed", name)
		}
		t.Skipf("%s is not installed", name)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = dir, bytes.NewReader(stdin), &stdout, &stderr
	require.NoError(t, cmd.Run(), "%s %q: %s", name, args, stderr.String())
	return stdout.Bytes()
}
