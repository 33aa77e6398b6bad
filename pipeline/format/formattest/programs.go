package formattest

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
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

// asSpecified is a program that has the functions of the pages that define records, and passes each
// question, a line of JSON, to a function that the test adds.
const asSpecified = `
import json, sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
from formats import *
import formats
exec(sys.argv[2])
for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))))
`

// Specified returns what the pages of the specification of records (pipeline/format/RECORDS.md and
// those that it lists) give for each question. program is Python, which defines answer(question)
// with the functions of the pages. Without Python 3 the test is skipped, and fails in CI.
func Specified[Q, A any](t testing.TB, program string, questions []Q) []A {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil && os.Getenv("CI") == "" {
		t.Skip("python3 is not installed")
	}
	require.NoError(t, err)
	root, err := filepath.Abs(".")
	require.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		require.NotEqual(t, "/", root, "no go.mod above the package")
		root = filepath.Dir(root)
	}
	var in, problems bytes.Buffer
	for _, q := range questions {
		require.NoError(t, json.NewEncoder(&in).Encode(q))
	}
	cmd := exec.Command(python, "-c", asSpecified, filepath.Join(root, "integration", "reference"), program)
	cmd.Stdin, cmd.Stderr = &in, &problems
	out, err := cmd.Output()
	require.NoError(t, err, "%s", &problems)
	answers := make([]A, len(questions))
	d := json.NewDecoder(bytes.NewReader(out))
	for i := range answers {
		require.NoError(t, d.Decode(&answers[i]))
	}
	return answers
}
