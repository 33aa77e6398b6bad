package hosts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Dir makes a directory below /var/tmp with a name that begins so, for machines that share it, and which
// goes with the test. It takes away those of tests that were killed: of one that lives, its lock is held.
func Dir(t testing.TB, prefix string) string {
	t.Helper()
	left, err := filepath.Glob("/var/tmp/" + prefix + "*")
	require.NoError(t, err)
	for _, dir := range left {
		if lock := locked(dir); lock != nil {
			sweep(dir)
			_ = lock.Close()
		}
	}
	dir, err := os.MkdirTemp("/var/tmp", prefix)
	require.NoError(t, err)
	f, err := os.Create(filepath.Join(dir, "lock"))
	require.NoError(t, err)
	require.NoError(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	t.Cleanup(func() {
		require.NoError(t, os.RemoveAll(dir))
		_ = f.Close() // it was only locked
	})
	return dir
}

// locked takes the lock of a directory, if nobody has it.
func locked(dir string) *os.File {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil // one that begins, or somebody else's
	}
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		_ = f.Close()
		return nil
	}
	return f
}

// sweep takes a directory away, and mounts in it. Its machines have ended with the test: each process asked
// the kernel to be killed with it.
func sweep(dir string) {
	mounts, _ := os.ReadFile("/proc/self/mounts")
	for line := range strings.Lines(string(mounts)) {
		if words := strings.Fields(line); len(words) > 1 && strings.HasPrefix(words[1], dir+"/") {
			_ = exec.Command("umount", "--lazy", "--no-canonicalize", words[1]).Run()
		}
	}
	_ = os.RemoveAll(dir)
}
