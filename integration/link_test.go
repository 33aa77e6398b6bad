package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// promisedProgramBytes is the maximum size of the program without symbols, including everything
// that reads buckets and web servers.
const promisedProgramBytes = 21_000_000

// requireLinkerLeavesOutWhatIsNotCalled checks the linker's output for the release: a single
// function that looks up methods by name, as text/template and html/template do, makes the linker
// keep all exported methods of all types, 3 MB here.
func requireLinkerLeavesOutWhatIsNotCalled(t *testing.T, path string) {
	t.Helper()
	output, err := os.ReadFile(path)
	require.NoError(t, err)
	edges, lookups := methodLookups(string(output))
	require.Greater(t, edges, 1000)
	require.Empty(t, lookups, "these look methods up by their names: is a template linked?")
}

// linkedTemplate is what the linker prints for templateProgram, cut to a few lines.
const linkedTemplate = "testdata/linker/template.txt"

const templateProgram = `package main

import (
	"os"
	"text/template"
)

func main() { template.Must(template.New("").Parse("{{.Name}}")).Execute(os.Stdout, nil) }
`

// templateLookup is a function of templateProgram that looks up methods by name.
const templateLookup = "text/template.(*state).evalField"

// This shows that the linker's output is parsed correctly. Otherwise the check of the release would
// find nothing.
func TestLinkedTemplateIsDetected(t *testing.T) {
	output, err := os.ReadFile(linkedTemplate)
	require.NoError(t, err)
	edges, lookups := methodLookups(string(output))
	require.Greater(t, edges, 10)
	require.Equal(t, []string{templateLookup}, lookups)
}

// TestLinkerStillMarksLinkedTemplate checks that linkedTemplate is what today's linker prints.
// If it fails, change methodLookups and cut the file again.
func TestLinkerStillMarksLinkedTemplate(t *testing.T) {
	serve.Tier(t, serve.Night)
	source := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(source, []byte(templateProgram), 0o600))
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -dumpdep", "-o", filepath.Join(t.TempDir(), "program"), source)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false -mod=readonly")
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", output[max(0, len(output)-2000):])
	edges, lookups := methodLookups(string(output))
	require.Greater(t, edges, 1000)
	require.Contains(t, lookups, templateLookup)
}

// methodLookups returns the number of lines "FROM -> TO" in the linker's output, and the functions
// in them that look up methods by name, sorted.
func methodLookups(output string) (edges int, lookups []string) {
	for line := range strings.Lines(output) {
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
	slices.Sort(lookups)
	return edges, slices.Compact(lookups)
}
