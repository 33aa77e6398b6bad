package integration

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheDemoRunsAndLeavesNothing(t *testing.T) {
	needFUSE(t)
	requireServersEnd(t) // those of tests before
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
