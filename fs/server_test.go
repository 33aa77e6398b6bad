package fs

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMountServerIsFoundAndItsExitDetected(t *testing.T) {
	needFUSE(t)
	dir := newPoint(t)
	server := startServer(t, dir)
	m, mounted, err := mountAt(dir)
	require.NoError(t, err)
	require.True(t, mounted)
	s := FindServer(m)
	require.NotNil(t, s)
	defer s.Close()
	require.Equal(t, server.Process.Pid, s.PID)
	require.False(t, s.Stopped())
	require.NoError(t, Answers(t.Context(), filepath.Join(dir, "README")))
	now, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, s.Ended(now))

	// A stopped server is named, and checking its mount does not hang.
	require.NoError(t, server.Process.Signal(syscall.SIGSTOP))
	require.Eventually(t, s.Stopped, callTimeout, time.Millisecond) // takes a while
	err = answers(t.Context(), dir, time.Millisecond, callTimeout)
	require.ErrorIs(t, err, ErrSilent)
	require.ErrorContains(t, err, "kill -CONT "+strconv.Itoa(s.PID))
	require.NoError(t, server.Process.Signal(syscall.SIGCONT))

	require.Equal(t, "at "+dir, m.Elsewhere())
	out, code := run(t, "/", "umount", dir)
	require.Zero(t, code, out)
	require.True(t, s.Ended(t.Context()))
	require.NoError(t, server.Wait())
	// A mount that another program has made since may have the number of this one's connection.
	if other := FindServer(m); other != nil {
		defer other.Close()
		require.NotEqual(t, s.PID, other.PID)
	}
	require.NotContains(t, m.Elsewhere(), dir)
}

func TestServerIsFoundByItsConnectionNumber(t *testing.T) {
	mountsNothing(t)
	m := MountEntry{Device: "0:39"}
	process := func(t *testing.T, proc, pid, comm, fdinfo string) {
		dir := filepath.Join(proc, pid)
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "fd"), 0o700))
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "fdinfo"), 0o700))
		require.NoError(t, os.Symlink("/dev/null", filepath.Join(dir, "fd", "0")))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "comm"), []byte(comm), 0o600))
		if fdinfo != "" {
			require.NoError(t, os.Symlink("/dev/fuse", filepath.Join(dir, "fd", "12")))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "fdinfo", "12"), []byte(fdinfo), 0o600))
		}
	}
	t.Run("in newer kernels", func(t *testing.T) {
		proc := t.TempDir()
		process(t, proc, "self", "lsiofs", "")
		process(t, proc, "7", "lsiofs", "pos:\t0\nfuse_connection:\t390\n")
		process(t, proc, "8", "cat", "")
		process(t, proc, "9", "renamed", "pos:\t0\nfuse_connection:\t39\n")
		pid, old := serverIn(proc, m)
		require.Equal(t, 9, pid)
		require.False(t, old)
	})
	t.Run("in older kernels it can't be told", func(t *testing.T) {
		proc := t.TempDir()
		process(t, proc, "self", "lsiofs", "")
		process(t, proc, "7", "lsiofs", "pos:\t0\n")
		pid, old := serverIn(proc, m)
		require.Zero(t, pid)
		require.True(t, old)
	})
	t.Run("where there is none", func(t *testing.T) {
		pid, old := serverIn(t.TempDir(), m)
		require.Zero(t, pid)
		require.False(t, old)
	})
}
