package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// promisedProgramBytes is how large the program may be, without symbols, with all that reads
// buckets and web servers.
const promisedProgramBytes = 20_000_000

// TestTheLinkerLeavesOutWhatIsNotCalled: one function that looks methods up by their
// names, as text/template and html/template do, makes the linker keep all exported
// methods of all types, 3 MB here. The linker tells which functions do.
func TestTheLinkerLeavesOutWhatIsNotCalled(t *testing.T) {
	program := filepath.Join(t.TempDir(), "lsiofs")
	lookups := linkRelease(t, "./cmd/lsiofs", program)
	require.Empty(t, lookups, "these look methods up by their names: is a template linked?")
	info, err := os.Stat(program)
	require.NoError(t, err)
	require.LessOrEqual(t, info.Size(), int64(promisedProgramBytes))
}

// The linker's words are understood: or the test above would see nothing.
func TestALinkedTemplateIsSeen(t *testing.T) {
	source := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(source, []byte(`package main

import (
	"os"
	"text/template"
)

func main() { template.Must(template.New("").Parse("{{.Name}}")).Execute(os.Stdout, nil) }
`), 0o600))
	require.Contains(t, linkRelease(t, source, filepath.Join(t.TempDir(), "program")), "text/template.(*state).evalField")
}

// linkRelease builds a package as a release is built, and returns the functions that
// look methods up by their names, sorted.
func linkRelease(t *testing.T, pkg, program string) (lookups []string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -dumpdep", "-o", program, pkg)
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false -mod=readonly")
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", text[max(0, len(text)-2000):])
	edges := 0
	for line := range strings.Lines(string(text)) { // from -> to
		from, to, ok := strings.Cut(strings.TrimSpace(line), " -> ")
		if !ok {
			continue
		}
		edges++
		for _, function := range []string{from, to} {
			if name, _, found := strings.Cut(function, " <ReflectMethod>"); found {
				lookups = append(lookups, name)
			}
		}
	}
	require.Greater(t, edges, 1000)
	slices.Sort(lookups)
	return slices.Compact(lookups)
}
