package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// lockedDir is the variable that makes this program a driver that only locks a state directory (see
// TestMain).
const lockedDir = "LSIOFS_TEST_LOCK"

// holdLock locks a directory and starts a program that inherits the lock's file and runs until its
// input ends. Every child has that file open between fork and exec.
func holdLock(dir string) error {
	lock, err := onlyDriver(dir)
	if err != nil {
		return err
	}
	child := exec.Command("cat")
	child.Stdin, child.ExtraFiles = os.Stdin, []*os.File{lock}
	if err := child.Start(); err != nil {
		return err
	}
	fmt.Println(child.Process.Pid)
	return child.Wait()
}

func TestRunningDriverHoldsLockAndKilledDriverReleasesIt(t *testing.T) {
	dir := t.TempDir()
	first := exec.Command(os.Args[0])
	first.Env = append(os.Environ(), lockedDir+"="+dir)
	input, err := first.StdinPipe()
	require.NoError(t, err)
	output, err := first.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, first.Start())
	t.Cleanup(func() {
		require.NoError(t, input.Close()) // ends its child
		_ = first.Process.Kill()          // it may have been killed
		_ = first.Wait()
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	child := 0
	_, err = fmt.Sscan(line, &child)
	require.NoError(t, err, line)

	_, err = onlyDriver(dir)
	require.EqualError(t, err, fmt.Sprintf("lock --state %s: another driver (process %d) uses it: end that one first, or name another directory", dir, first.Process.Pid))

	require.NoError(t, first.Process.Kill())
	_, err = first.Process.Wait()
	require.NoError(t, err)
	open, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/3", child))
	require.NoError(t, err, "the child lives")
	require.Equal(t, filepath.Join(dir, "lock"), open)
	lock, err := onlyDriver(dir)
	require.NoError(t, err)
	require.NoError(t, lock.Close())
}
