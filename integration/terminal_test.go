package integration

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// terminal makes a terminal of 80 columns and 24 lines. It returns the user's side and the
// program's side.
func terminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { person.Close() })
	fd := int(person.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}))
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	return person, program
}

func TestTopIsDrawnOnATerminalUntilQ(t *testing.T) {
	m := mountDataset(t, plain(t, "tar", 3), usual())
	person, program := terminal(t)
	cmd := exec.Command(lsiofs, "top", m.dir)
	cmd.Env = append(os.Environ(), "TERM=xterm")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	exited := launch(t, cmd)
	program.Close()

	var mu sync.Mutex
	var shown strings.Builder
	seen := func(words string) bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(shown.String(), words)
	}
	var looking sync.WaitGroup
	looking.Go(func() { // until the program has closed its side
		b := make([]byte, 4096)
		for {
			n, err := person.Read(b)
			mu.Lock()
			shown.Write(b[:n])
			mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	until(t, exited, func() bool { return seen("worker-0.tar") }, "the first frame")
	require.True(t, seen("\x1b[?1049h"), "it is drawn beside what the terminal showed before")
	_, err := person.WriteString("q")
	require.NoError(t, err)
	select {
	case <-exited:
		require.Zero(t, cmd.ProcessState.ExitCode())
	case <-time.After(clientLimit):
		require.Fail(t, "q does not end it")
	}
	looking.Wait()
	require.True(t, seen("\x1b[?1049l"), "which comes back")
}
