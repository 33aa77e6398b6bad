package mounting

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
)

// owner is a process that a mount serves and must not outlive.
type owner struct {
	file *os.File // a pidfd
	wait sync.WaitGroup
}

// whileAlive returns contexts that end with ctx and force, and both also when the process pid has
// ended for any reason, because its readers then need no time to finish. It watches a pidfd:
// children of the process would keep a pipe open, and PR_SET_PDEATHSIG depends on threads. The
// caller calls release once when it no longer needs the contexts. If pid is 0, the contexts are ctx
// and force themselves.
func whileAlive(ctx, force context.Context, pid int) (_, _ context.Context, release func(), err error) {
	if pid == 0 {
		return ctx, force, func() {}, nil
	}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil, nil, nil, exit.Errorf(exit.Mount, "--while-pid (%d): no such process, or it has already ended", pid)
	case err != nil:
		return nil, nil, nil, exit.Errorf(exit.Mount, "--while-pid (%d): %w: this container's seccomp profile may forbid pidfd_open", pid, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	force, cancelForce := context.WithCancel(force)
	o := &owner{file: os.NewFile(uintptr(fd), fmt.Sprintf("process %d", pid))}
	o.wait.Go(func() {
		if o.ended() {
			cancel()
			cancelForce()
		}
	})
	return ctx, force, func() {
		_ = o.file.Close() // this ends the wait
		o.wait.Wait()
		cancel()
		cancelForce()
	}, nil
}

// ended waits until the process has ended, and returns true, or until the file is closed, and
// returns false.
func (o *owner) ended() bool {
	conn, err := o.file.SyscallConn()
	if err != nil {
		return false
	}
	return conn.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return err == nil && n == 1
	}) == nil
}
