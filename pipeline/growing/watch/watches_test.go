package watch

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A process in its own user namespace has its own limits.
func TestFilesBeyondWatchLimitArePolled(t *testing.T) {
	if os.Getenv("LSIOFS_FEW_WATCHES") == "" {
		self, err := os.Executable()
		require.NoError(t, err)
		cmd := exec.Command(self, "-test.run", "^TestFilesBeyondWatchLimitArePolled$", "-test.v")
		cmd.Env = append(os.Environ(), "LSIOFS_FEW_WATCHES=3")
		id := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		groups := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: id, GidMappings: groups}
		out, err := cmd.CombinedOutput()
		if err != nil && cmd.ProcessState == nil && os.Getenv("CI") == "" {
			t.Skipf("no user namespaces here: %v", err)
		}
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS")
		return
	}
	require.NoError(t, os.WriteFile("/proc/sys/user/max_inotify_watches", []byte("3"), 0))
	s := newStill(t, t.TempDir())
	require.Equal(t, "inotify", s.Status().Watch)
	for _, path := range []string{"a/1.tar", "b/2.tar", "c/3.tar", "d/4.tar", "d/e/5.tar"} {
		s.write(path, "x")
	}
	s.after(time.Second)
	require.Len(t, s.after(time.Second), 5)
	require.Equal(t, "poll", s.Status().Watch)
	require.Contains(t, s.Status().Why, "max_user_watches")
	for _, path := range []string{"a/6.tar", "b/7.tar", "c/8.tar", "d/9.tar", "d/e/10.tar"} {
		s.write(path, "x")
	}
	s.after(DefaultPoll)
	require.Len(t, s.after(DefaultPoll), 10)
	require.NoError(t, s.step(context.Background(), s.now, true))

	require.NoError(t, os.WriteFile("/proc/sys/user/max_inotify_instances", []byte("0"), 0))
	other := newStill(t, t.TempDir())
	require.Equal(t, "poll", other.Status().Watch)
}
