package ledger

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// filterIn is the environment variable that makes this program a filter of a directory, for
// TestMain.
const filterIn = "LSIOFS_TEST_FILTER_IN"

func TestMain(m *testing.M) {
	if dir := os.Getenv(filterIn); dir != "" {
		if err := filterThatIsStarting(dir); err != nil {
			fmt.Print(err)
		}
		os.Exit(1) // it is killed before
	}
	os.Exit(m.Run())
}

// filterThatIsStarting opens the ledger of a directory and starts a program that has the lock's
// file open until its input ends, as each child has it between fork and exec.
func filterThatIsStarting(dir string) error {
	l, err := Open(dir)
	if err != nil {
		return err
	}
	child := exec.Command("cat")
	child.Stdin, child.ExtraFiles = os.Stdin, []*os.File{l.lock.file}
	if err := child.Start(); err != nil {
		return err
	}
	fmt.Println(child.Process.Pid)
	return child.Wait()
}

// startFilter starts another process that has a directory's ledger open, and returns it with the
// number of a program that it has started. That program ends with the test.
func startFilter(t *testing.T, dir string) (filter *exec.Cmd, child int) {
	t.Helper()
	filter = exec.Command(os.Args[0])
	filter.Env = append(os.Environ(), filterIn+"="+dir)
	input, err := filter.StdinPipe()
	require.NoError(t, err)
	output, err := filter.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, filter.Start())
	t.Cleanup(func() {
		require.NoError(t, input.Close())
		_ = filter.Process.Kill() // it may already have been killed
		_ = filter.Wait()
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	_, err = fmt.Sscan(line, &child)
	require.NoError(t, err, line)
	return filter, child
}

// A filter that is killed between the fork and the exec of a program leaves a child that has the
// lock's file open.
func TestKilledFilterReleasesLockDespiteChild(t *testing.T) {
	dir := t.TempDir()
	filter, child := startFilter(t, dir)
	require.NoError(t, filter.Process.Kill())
	_, err := filter.Process.Wait()
	require.NoError(t, err)
	open, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/3", child))
	require.NoError(t, err, "the child lives")
	require.Equal(t, filepath.Join(dir, lockName), open)
	require.NoError(t, opened(t, dir).Close())
}

func TestRunningFilterIsNamedInLockError(t *testing.T) {
	dir := t.TempDir()
	filter, _ := startFilter(t, dir)
	for range 2 { // the first failure has opened and closed the lock's file
		_, err := Open(dir)
		require.EqualError(t, err, fmt.Sprintf("%s: another lsiofs filter is writing there (process %d): wait for it, or end it", dir, filter.Process.Pid))
	}
}

// A process that tries to open its ledger a second time keeps its lock: neither the failure nor the
// descriptors it closes let another process in.
func TestSecondLedgerInProcessKeepsLockOfFirst(t *testing.T) {
	dir := t.TempDir()
	l := opened(t, dir)
	_, err := Open(dir)
	require.ErrorIs(t, err, errHeld)
	other := exec.Command(os.Args[0])
	other.Env = append(os.Environ(), filterIn+"="+dir)
	said, err := other.Output()
	require.Error(t, err)
	require.Equal(t, fmt.Sprintf("%s: another lsiofs filter is writing there (process %d): wait for it, or end it", dir, os.Getpid()), string(said))
	require.NoError(t, l.Close())
	startFilter(t, dir)
}
