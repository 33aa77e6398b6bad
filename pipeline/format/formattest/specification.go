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
