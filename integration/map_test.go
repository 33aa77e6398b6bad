package integration

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The map in pipeline/doc.go has a line for each package that readers of the code meet, and no
// other.
func TestTheMapHasALineForEachPackage(t *testing.T) {
	text, err := os.ReadFile("../pipeline/doc.go")
	require.NoError(t, err)
	_, list, found := strings.Cut(string(text), "// # Packages\n")
	require.True(t, found)
	list, _, found = strings.Cut(list, "// # ")
	require.True(t, found)
	var named []string
	for line := range strings.Lines(list) {
		entry, isEntry := strings.CutPrefix(line, "//\t")
		if !isEntry {
			continue
		}
		name, about, _ := strings.Cut(entry, " ")
		require.NotEmpty(t, strings.TrimSpace(about), "%s: say in a few words what it is for", name)
		require.NotContains(t, named, name)
		named = append(named, name)
	}

	cmd := exec.Command("go", "list", "-buildvcs=false", "./pipeline/...", "./checkpoint/...", "./fs/...", "./uring/...", "./cmd/lsiofs")
	cmd.Dir = ".."
	out, err := cmd.Output()
	require.NoError(t, err)
	var packages []string
	for path := range strings.FieldsSeq(string(out)) {
		packages = append(packages, strings.TrimPrefix(path, module))
	}
	slices.Sort(packages)
	slices.Sort(named)
	require.Equal(t, packages, named)
}
