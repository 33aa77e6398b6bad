package mounting

import (
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// parentWatch looks for the end of the process that waits for word of a mount: nobody has
// the other end of its pipe open any more. The zero value watches nothing.
type parentWatch struct {
	end  *os.File // whose closing ends the watch
	wait sync.WaitGroup
}

// begin calls gone, from a goroutine of the watch's own, when nobody reads from pipe any
// more. pipe stays open until stop is called.
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

// stop ends the watch: gone is not called after it. It may be called again.
func (w *parentWatch) stop() {
	if w.end == nil {
		return
	}
	_ = w.end.Close()
	w.wait.Wait()
	w.end = nil
}

// hasNoReader waits until nobody reads from pipe any more, or until the other end of
// stopped is closed: then it gives false.
func hasNoReader(pipe, stopped *os.File) bool {
	// No event is asked for: the kernel reports closed ends all the same.
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
