package limit

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tail keeps the last line that it has read. A stream of zeros is a single line.
func TestOnlyProcessOverItsLimitDies(t *testing.T) {
	tail, err := exec.LookPath("tail")
	if err != nil || os.Getuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("CI=true, and nothing may be missing: root and tail")
		}
		t.Skip("it takes root and tail")
	}
	found := New(LeastBytes)
	t.Logf("this machine: %s", found)
	for _, m := range []Memory{found, {bytes: LeastBytes, kind: "RLIMIT_DATA"}} {
		t.Run(m.String(), func(t *testing.T) {
			cmd := exec.Command(tail, "/dev/zero")
			require.NoError(t, cmd.Start())
			watchdog := time.AfterFunc(10*time.Minute, func() { _ = cmd.Process.Kill() })
			require.NoError(t, m.Apply("test", cmd.Process.Pid))
			require.Error(t, cmd.Wait())
			require.True(t, watchdog.Stop(), "the limit ended it")
			require.NoError(t, m.Remove("test"))
			require.NoError(t, m.Remove("test"))
			if m.group != "" {
				left, err := filepath.Glob(filepath.Join(m.group, prefix+"*test*"))
				require.NoError(t, err)
				require.Empty(t, left)
			}
		})
	}
}

func TestNothingIsDoneWithoutLimit(t *testing.T) {
	m := New(0)
	require.NoError(t, m.Apply("test", os.Getpid()))
	require.NoError(t, m.Remove("test"))
	require.Equal(t, "nothing", m.String())
}
