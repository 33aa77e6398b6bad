package serve

import (
	"errors"
	"fmt"
	"os/exec"
	"time"
)

// lookEvery is how long Until waits between two looks: short compared to what processes take.
const lookEvery = 5 * time.Millisecond

// Launch starts cmd and waits for its end in the background: then exited is closed, and
// cmd.ProcessState describes how it ended. The caller must not call cmd.Wait.
func Launch(cmd *exec.Cmd) (exited <-chan struct{}, err error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // cmd.ProcessState describes how it ended
		close(ended)
	}()
	return ended, nil
}

// ErrExited is the error of Until if the process has ended.
var ErrExited = errors.New("the process that was to bring it about has ended")

// Until waits until a condition holds, for limit at most. exited is closed when the process that is
// to bring it about has ended (Launch, Server.Exited); nil means that there is no such process.
// When the process has ended, Until looks once more and returns ErrExited.
//
// It calls holds on the caller's goroutine, so holds may fail the test.
func Until(limit time.Duration, exited <-chan struct{}, holds func() bool) error {
	end := time.NewTimer(limit)
	defer end.Stop()
	for !holds() {
		select {
		case <-exited:
			if holds() {
				return nil
			}
			return ErrExited
		case <-end.C:
			return fmt.Errorf("not so within %v", limit)
		case <-time.After(lookEvery):
		}
	}
	return nil
}
