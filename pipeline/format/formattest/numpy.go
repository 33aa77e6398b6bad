package formattest

import (
	"os"
	"os/exec"
	"testing"
)

// NumPy runs a Python program with NumPy, in a directory ("": this one), and returns its output. If
// there is no NumPy, the test is skipped; in CI it fails.
func NumPy(t *testing.T, dir, program string, stdin []byte) string {
	t.Helper()
	for _, name := range []string{os.Getenv("LSIOFS_PYTHON"), "python3", "/usr/bin/python3"} {
		path, err := exec.LookPath(name)
		if err != nil || exec.Command(path, "-c", "import numpy").Run() != nil {
			continue
		}
		return string(Program(t, dir, stdin, path, "-W", "ignore", "-c", program))
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("no Python with numpy")
	}
	t.Skip("no Python with numpy: integration/check installs it")
	return ""
}
