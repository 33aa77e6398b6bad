package fs

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestThreadsAreIdentifiedByTheirProcess(t *testing.T) {
	for range 4 {
		done := make(chan uint32)
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
			done <- processOf(uint32(unix.Gettid()))
		}()
		require.EqualValues(t, os.Getpid(), <-done)
	}
	require.EqualValues(t, 1<<31-1, processOf(1<<31-1), "no such thread")
}
