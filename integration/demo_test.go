package integration

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestDemoRunsAndLeavesNothing(t *testing.T) {
	needFUSE(t)
	requireServersEnd(t) // those of earlier tests
	r := tool(t, "demo")
	require.Zero(t, r.code, "%s\n%s", r.stdout, r.stderr)
	dir := regexp.MustCompile(`(?m)^\$ D=(.*)$`).FindSubmatch(r.stdout)
	require.NotNil(t, dir, "%s", r.stdout)
	require.NoDirExists(t, string(dir[1]))
	require.Empty(t, serverProcesses())
}

// TestDemoCommandsRunInShell pastes the commands that a kept demo shows into bash. They have
// to do what the demo did.
func TestDemoCommandsRunInShell(t *testing.T) {
	needFUSE(t)
	bash := need(t, "bash")
	need(t, "tar")
	bin := t.TempDir()
	require.NoError(t, os.Symlink(lsiofs, filepath.Join(bin, "lsiofs")))

	shown := string(toolOK(t, "demo", "--keep"))
	var commands []string
	for line := range strings.Lines(shown) {
		line = strings.TrimSuffix(line, "\n")
		if command, is := strings.CutPrefix(line, "$ "); is {
			commands = append(commands, command)
		}
	}
	dir, is := strings.CutPrefix(commands[0], "D=")
	require.True(t, is, shown)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.Contains(t, shown, "rm -r "+dir)
	for line := range strings.Lines(strings.ReplaceAll(shown, dir, filepath.Join("/tmp", filepath.Base(dir)))) { // whatever TMPDIR is
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 100, line)
	}

	made := map[string][]byte{}
	for _, name := range []string{"part-0.tar", "part-1.tar", "ckpt.json"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.NoError(t, os.Remove(filepath.Join(dir, name)))
		made[name] = b
	}
	script := "set -e\ntrap 'code=$?; lsiofs umount --lazy $D/mnt 2> /dev/null || true; exit $code' EXIT\n" + strings.Join(commands, "\n")
	r := command(t, nil, nil, bash, "-c", `PATH="$0:$PATH"; eval "$1"`, bin, script)
	require.Zero(t, r.code, "%s\n%s\n%s", script, r.stdout, r.stderr)
	requireServersEnd(t)
	for name, want := range made {
		got, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), name)
	}
	rest := 0
	for _, count := range regexp.MustCompile(`(?m)^  (\d+) records$`).FindAllStringSubmatch(shown, -1) {
		n, err := strconv.Atoi(count[1])
		require.NoError(t, err)
		rest += n
	}
	require.Positive(t, rest, shown)
	require.Equal(t, rest, bytes.Count(r.stdout, []byte(".cls\n")), "what tar lists")
}

func TestDoctorReportsWhatWorksHere(t *testing.T) {
	needFUSE(t)
	r := tool(t, "doctor")
	require.Zero(t, r.code, "%s\n%s", r.stdout, r.stderr)
	for _, word := range []string{"kernel", "/dev/fuse", "io_uring"} {
		require.Contains(t, string(r.stdout), word)
	}
}

func TestUsageErrorsHaveTheirOwnExitCode(t *testing.T) {
	for _, args := range [][]string{{"nothing"}, {"cat"}, {"cat", "x", "--nothing"}, {"cat", "x", "--workers", "0"}, {"cat", "x", "--shuffle", "a"}, {"mount", "x"}} {
		r := tool(t, args...)
		require.Equal(t, exitUsage, r.code, "%q: %s", args, r.stderr)
		require.Empty(t, r.stdout)
		require.NotEmpty(t, r.stderr)
	}
	require.Equal(t, exitDataset, tool(t, "cat", "/nothing/there").code)
	require.Equal(t, exitMount, tool(t, "umount", t.TempDir()).code)
	require.Equal(t, exitCheckpoint, tool(t, "checkpoint", "show", "/nothing/there").code)
}

func TestCatEndsQuietlyWhenReaderStopsEarly(t *testing.T) {
	d := big(t)
	script := `"$0" cat "$@" | head -c 100; exit ${PIPESTATUS[0]}`
	r := command(t, nil, nil, "bash", append([]string{"-c", script, lsiofs, d.dir}, d.flags...)...)
	require.Equal(t, exitPipe, r.code, r.stderr)
	require.Len(t, r.stdout, 100)
	require.NotContains(t, r.stderr, "broken pipe")
}
