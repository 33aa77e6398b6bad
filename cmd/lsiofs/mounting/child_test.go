package mounting

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

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
