package integration

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// release clones the repository's last commit to a directory, and makes a release there. Packages
// are compiled once: with -trimpath they are the same for all directories, so Go's cache has them
// for the second one.
func release(t *testing.T, clone string, env []string, arches ...string) (out, commit string) {
	t.Helper()
	git := need(t, "git")
	// The tree may belong to another user, in which case git refuses to work.
	config := filepath.Join(t.TempDir(), "gitconfig")
	require.NoError(t, os.WriteFile(config, []byte("[safe]\n\tdirectory = *\n"), 0o600))
	r := command(t, []string{"GIT_CONFIG_GLOBAL=" + config}, nil, git, "clone", "--quiet", "--no-hardlinks", "..", clone)
	require.Zero(t, r.code, r.stderr)
	out = filepath.Join(filepath.Dir(clone), "out")
	cmd := exec.Command(filepath.Join(clone, ".ci/release"), append([]string{"v0.0.1-test", out}, arches...)...)
	cmd.Env = append(append(os.Environ(), "GOFLAGS=-tags=lost", "GOAMD64=v3"), env...) // neither flag may have an effect
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", text)
	return out, strings.TrimSpace(string(output(t, git, "-C", clone, "rev-parse", "HEAD")))
}

// A release is static, and has its commit and its licences. This is the only test that builds the
// program like a release, so it also checks everything else about the linked program. For arm64
// everything has to be compiled, and vet has checked it already: that runs nightly.
func TestAReleaseIsTheSameBytesFromEveryDirectory(t *testing.T) {
	serve.Tier(t, serve.CI)
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64}
	if serve.Runs(serve.Night) {
		machines["arm64"] = elf.EM_AARCH64
	}
	first, commit := release(t, filepath.Join(t.TempDir(), "one"), nil, slices.Sorted(maps.Keys(machines))...)
	linker := filepath.Join(t.TempDir(), "linker")
	second, _ := release(t, filepath.Join(t.TempDir(), "a deeper/and other/directory"), []string{"LSIOFS_LINKER_OUTPUT=" + linker}, "amd64")
	sums := regexp.MustCompile(`(?m)^([0-9a-f]{64})  (\S+)$`)
	listed, err := os.ReadFile(filepath.Join(first, "SHA256SUMS"))
	require.NoError(t, err)
	entries := sums.FindAllStringSubmatch(string(listed), -1)
	require.Len(t, entries, 1+2*len(machines), "the licences; a program and a wheel for each machine")
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(first, e[2]))
		require.NoError(t, err)
		require.Equal(t, e[1], fmt.Sprintf("%x", sha256.Sum256(b)), e[2])
		again, err := os.ReadFile(filepath.Join(second, e[2]))
		if !regexp.MustCompile("arm64$|aarch64").MatchString(e[2]) {
			require.NoError(t, err)
			require.True(t, bytes.Equal(b, again), "%s differs from directory to directory", e[2])
		}
		require.NotContains(t, string(b), first, "%s knows where it was made", e[2])
	}
	for arch, machine := range machines {
		f, err := elf.Open(filepath.Join(first, "lsiofs-v0.0.1-test-linux-"+arch))
		require.NoError(t, err)
		defer f.Close()
		require.Equal(t, machine, f.Machine)
		for _, p := range f.Progs {
			require.NotContains(t, []elf.ProgType{elf.PT_INTERP, elf.PT_DYNAMIC}, p.Type, "%s is not static", arch)
		}
	}
	requireWheelWorks(t, filepath.Join(first, "lsiofs-0.0.1.dev0+test-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64.whl"), "0.0.1.dev0+test")
	amd64 := filepath.Join(first, "lsiofs-v0.0.1-test-linux-amd64")
	requireTellsOfItself(t, amd64, commit, filepath.Join(first, "LICENSES.txt"))
	requireLinkerLeavesOutWhatIsNotCalled(t, linker)
	info, err := os.Stat(amd64)
	require.NoError(t, err)
	require.LessOrEqual(t, info.Size(), int64(promisedProgramBytes))

	// Files that are not in the commit are refused.
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(second), "directory/more.go"), nil, 0o600))
	r := command(t, nil, nil, filepath.Join(filepath.Dir(second), "directory/.ci/release"), "v0.0.2", second)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "more.go")
	r = command(t, nil, nil, "../.ci/release", "1.2", second)
	require.Equal(t, 2, r.code)
}

// built is the output of version.
type built struct {
	Version, Commit string
	Modified        bool
	Dependencies    []struct{ Module, Version, Licence string }
}

func builtOf(t *testing.T, program string) built {
	t.Helper()
	var b built
	require.NoError(t, json.Unmarshal(output(t, program, "version", "--deps", "--json"), &b))
	return b
}

func requireTellsOfItself(t *testing.T, program, commit, licences string) {
	t.Helper()
	b := builtOf(t, program)
	require.Equal(t, "v0.0.1-test", b.Version)
	require.Equal(t, commit, b.Commit)
	require.False(t, b.Modified)
	text, err := os.ReadFile(licences)
	require.NoError(t, err)
	for _, d := range b.Dependencies[1:] {
		require.Contains(t, string(text), "\n"+d.Module+"@"+d.Version+": LICEN", "the text of its licence is given away with it")
	}
}

// TestEachModuleThatIsLinkedIsListedWithItsVersionAndLicence compares with what Go's own tool finds
// in the program.
func TestEachModuleThatIsLinkedIsListedWithItsVersionAndLicence(t *testing.T) {
	var listed []string
	for _, d := range builtOf(t, lsiofs).Dependencies[1:] {
		require.NotEqual(t, "unknown", d.Licence, "%s: run go test ./cmd/lsiofs/build -run Licences -update", d.Module)
		listed = append(listed, d.Module+" "+d.Version)
	}
	var linked []string
	for _, m := range regexp.MustCompile(`(?m)^\tdep\t(\S+)\t(\S+)`).FindAllStringSubmatch(string(output(t, "go", "version", "-m", lsiofs)), -1) {
		linked = append(linked, m[1]+" "+m[2])
	}
	require.Greater(t, len(linked), 10)
	require.Equal(t, linked, listed)
	table := string(toolOK(t, "version", "--deps"))
	for _, line := range linked {
		require.Contains(t, table, strings.Fields(line)[0]+" ")
	}
}
