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

// whileAlive gives contexts that end with ctx and force, and also when the process
// pid has ended, however that came about: both at once, since nobody is left whose
// readers are to finish. A pidfd is what shows that: a pipe's end would be kept open
// by children of the process, and PR_SET_PDEATHSIG goes by threads. The caller
// calls release once, when it has done with the contexts. With pid 0 they are ctx
// and force themselves.
func whileAlive(ctx, force context.Context, pid int) (_, _ context.Context, release func(), err error) {
	if pid == 0 {
		return ctx, force, func() {}, nil
	}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil, nil, nil, exit.Errorf(exit.Mount, "--while-pid (%d): there is no such process, or it has ended already", pid)
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
		_ = o.file.Close() // which ends the wait
		o.wait.Wait()
		cancel()
		cancelForce()
	}, nil
}

// ended waits until the process has ended, or until the file is closed: then it
// gives false.
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
