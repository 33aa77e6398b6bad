package integration

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheDemoRunsAndLeavesNothing(t *testing.T) {
	needFUSE(t)
	r := tool(t, "demo")
	require.Zero(t, r.code, "%s\n%s", r.stdout, r.stderr)
	all := string(r.stdout) + r.stderr
	for _, word := range []string{"lsiofs mount", "checkpoint", "--resume", "umount"} {
		require.Contains(t, all, word, "each step is shown with the command that a person would type")
	}
	require.Empty(t, serverProcesses())
}

func TestDoctorSaysWhatWorksHere(t *testing.T) {
	needFUSE(t)
	r := tool(t, "doctor")
	require.Zero(t, r.code, "%s\n%s", r.stdout, r.stderr)
	for _, word := range []string{"kernel", "/dev/fuse", "io_uring"} {
		require.Contains(t, string(r.stdout), word)
	}
}

func TestUsageMistakesHaveTheirExitCode(t *testing.T) {
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

func TestCatEndsQuietlyWhenItsReaderHasEnough(t *testing.T) {
	d := big(t)
	script := `"$0" cat "$@" | head -c 100; exit ${PIPESTATUS[0]}`
	r := command(t, nil, nil, "bash", append([]string{"-c", script, lsiofs, d.dir}, d.flags...)...)
	require.Equal(t, exitPipe, r.code, r.stderr)
	require.Len(t, r.stdout, 100)
	require.NotContains(t, r.stderr, "broken pipe")
}

// TestREADMEsCommandsExist looks at every line of a shell block of the README
// that begins with lsiofs: its verb exists, and its help knows the flags.
func TestREADMEsCommandsExist(t *testing.T) {
	b, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```(?:sh|bash|console)?\n(.*?)```").FindAllStringSubmatch(string(b), -1)
	require.NotEmpty(t, blocks)
	commands := 0
	for _, block := range blocks {
		text := strings.ReplaceAll(block[1], "\\\n", " ")
		for line := range strings.Lines(text) {
			for _, part := range regexp.MustCompile(`[|;&]+`).Split(line, -1) {
				part, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimSpace(part), "$ "), " #")
				if words := strings.Fields(part); len(words) > 1 && words[0] == "lsiofs" {
					requireExists(t, words[1:], line)
					commands++
				}
			}
		}
	}
	require.Greater(t, commands, 5)
}

func requireExists(t *testing.T, words []string, line string) {
	t.Helper()
	verb := words[:1]
	if words[0] == "checkpoint" && len(words) > 1 {
		verb = words[:2]
	}
	if strings.HasPrefix(verb[0], "-") {
		verb = nil
	}
	help := tool(t, append(append([]string{}, verb...), "--help")...)
	require.Zero(t, help.code, line)
	text := string(help.stdout) + help.stderr
	if len(verb) > 0 {
		require.Contains(t, text, "lsiofs "+strings.Join(verb, " "), "%s", line)
	}
	for _, word := range words {
		if strings.HasPrefix(word, "--") {
			name, _, _ := strings.Cut(word, "=")
			require.Contains(t, text, name, "%s", line)
		}
	}
}
