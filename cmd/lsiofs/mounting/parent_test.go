package mounting

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

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
