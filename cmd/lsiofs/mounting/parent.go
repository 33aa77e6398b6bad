package mounting

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// parentWatch detects that the process waiting for a mount's report has ended: the other end of its
// pipe is no longer open anywhere. The zero value watches nothing.
type parentWatch struct {
	end  *os.File // closing it ends the watch
	wait sync.WaitGroup
}

// begin starts to watch pipe. It calls gone from the watch's own goroutine when pipe no longer has
// a reader. pipe has to stay open until stop is called.
func (w *parentWatch) begin(pipe *os.File, gone func()) error {
	stopped, end, err := os.Pipe()
	if err != nil {
		return err
	}
	w.end = end
	w.wait.Go(func() {
		defer stopped.Close()
		if hasNoReader(pipe, stopped) {
			gone()
		}
	})
	return nil
}

// stop ends the watch. gone is not called afterwards. stop may be called again.
func (w *parentWatch) stop() {
	if w.end == nil {
		return
	}
	_ = w.end.Close()
	w.wait.Wait()
	w.end = nil
}

// hasNoReader waits until pipe no longer has a reader, and returns true, or until the other end of
// stopped is closed, and returns false.
func hasNoReader(pipe, stopped *os.File) bool {
	// No events are requested: the kernel reports closed ends anyway.
	ends := []unix.PollFd{{Fd: int32(pipe.Fd())}, {Fd: int32(stopped.Fd())}}
	for {
		_, err := unix.Poll(ends, -1)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || ends[1].Revents != 0:
			return false
		default:
			return ends[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
		}
	}
}
