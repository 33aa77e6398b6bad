package mounting

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
)

// throughPipe returns a flag with a descriptor that delivers text. WholeArgs closes the descriptor.
func throughPipe(t *testing.T, text string) string {
	t.Helper()
	r, w, err := os.Pipe()
	require.NoError(t, err)
	fd, err := syscall.Dup(int(r.Fd())) // r is closed when it is garbage collected
	require.NoError(t, err)
	require.NoError(t, r.Close())
	go func() { _, _ = w.WriteString(text); _ = w.Close() }()
	return argsFlag + strconv.Itoa(fd)
}

func TestArgumentsFromDescriptorReplaceVisibleOnes(t *testing.T) {
	plain := []string{"mount", "data", "mnt", argsFlag + "77"}
	args, err := WholeArgs(plain)
	require.NoError(t, err)
	require.Equal(t, plain, args, "the flag counts right after the verb only")

	want := []string{"mount", "https://u:p@host/a?sig=1", "", "not UTF-8: \xff\n", strings.Repeat("x", 1<<17)}
	args, err = WholeArgs([]string{"mount", throughPipe(t, strings.Join(want[1:], "\x00")+"\x00"), "https://host/a"})
	require.NoError(t, err)
	require.Equal(t, want, args)

	args, err = WholeArgs([]string{"version", throughPipe(t, "")})
	require.NoError(t, err)
	require.Equal(t, []string{"version"}, args)
}

func TestTruncatedArgumentsAreRefused(t *testing.T) {
	for flag, message := range map[string]string{
		argsFlag + "x":               "must be the number of an open file",
		argsFlag + "12345":           "can't be read",
		throughPipe(t, "data\x00mn"): "does not end with a zero byte",
		throughPipe(t, strings.Repeat("x\x00", maxArgsBytes)): "more than 8388608 bytes",
	} {
		given := []string{"mount", flag, "--ready-fd=3"}
		args, err := WholeArgs(given)
		require.ErrorContains(t, err, message)
		require.Equal(t, exit.Usage, exit.CodeOf(err))
		require.Equal(t, given, args, "the parent is found by them")
	}
}

func TestVisibleArgumentsHaveNoSecretsInURLs(t *testing.T) {
	shown, secret := shownArgs([]string{
		"https://name:word@host/{0..9}.tar?X-Amz-Signature=a&b=c", "--mix=web=1:https://host/a.tar?sig=a", "--exclude", "part-?.tar", "s3://bucket/a", "--log-file=/log", "/mnt",
	})
	require.True(t, secret)
	require.Equal(t, []string{"https://host/{0..9}.tar", "--mix=web=1:https://host/a.tar", "--exclude", "part-?.tar", "s3://bucket/a", "--log-file=/log", "/mnt"}, shown)
	_, secret = shownArgs([]string{"s3://bucket/train/*.tar", "/mnt", "part-?.tar", "--endpoint=http://127.0.0.1:9000"})
	require.False(t, secret)
}

// piped returns a reporter to a parent, and the parent's end of its pipe.
func piped(t *testing.T) (r *pipeReporter, parent *os.File, gone chan struct{}) {
	t.Helper()
	parent, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = parent.Close() })
	r, gone = &pipeReporter{file: w, encoder: json.NewEncoder(w)}, make(chan struct{})
	require.NoError(t, r.untilReady(func() { close(gone) }))
	return r, parent, gone
}

func TestParentExitBeforeMountIsReadyIsDetected(t *testing.T) {
	r, parent, gone := piped(t)
	r.Warn("nobody reads this yet")
	require.NoError(t, parent.Close())
	<-gone
	r.Ended(nil)
}

func TestParentExitBeforeReadinessReportIsDetected(t *testing.T) {
	r, parent, gone := piped(t)
	r.watch.stop() // as if it had checked a moment earlier
	require.NoError(t, parent.Close())
	r.Mounted(Info{Mount: "/m"})
	<-gone
	r.Ended(nil)
}

func TestParentMayExitAfterReadinessReport(t *testing.T) {
	r, parent, gone := piped(t)
	r.Mounted(Info{Mount: "/m"})
	require.NoError(t, parent.Close())
	r.Ended(nil)
	select {
	case <-gone:
		t.Fatal("the parent had been told")
	default:
	}
}
