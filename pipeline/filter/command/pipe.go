package command

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Pipe is the read end of a pipe that a program writes to. It is for one reader; Close may be
// called at any time.
//
// Once the program has ended, reads have a deadline, because a process that left its group may hold
// the pipe forever. The deadline only applies to data that is not written yet: data already in the
// pipe can be read however late the reader is (for example because of a slow disk), and so can the
// end of the pipe if no process holds it.
type Pipe struct {
	file *os.File
	late bool // the deadline has passed
	left int  // then: how many bytes may still be read
}

// Read returns os.ErrDeadlineExceeded if another process holds the pipe and has not written by the
// deadline, and os.ErrClosed after Close.
func (p *Pipe) Read(b []byte) (n int, err error) {
	if !p.late {
		n, err = p.file.Read(b)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
	raw, err := p.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	// The file's Read would check its deadline first.
	if closed := raw.Control(func(fd uintptr) { n, err = p.readLate(int(fd), b) }); closed != nil {
		return 0, os.ErrClosed
	}
	return n, err
}

// readLate reads without waiting.
func (p *Pipe) readLate(fd int, b []byte) (n int, err error) {
	if p.left == 0 {
		look := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err = again(func() (int, error) { return unix.Poll(look, 0) }); err != nil {
			return 0, err
		}
		held := look[0].Revents&unix.POLLHUP == 0
		if p.late && held {
			return 0, os.ErrDeadlineExceeded
		}
		// From a process that writes forever, read only what is in the pipe now.
		p.late = true
		if p.left, err = unix.IoctlGetInt(fd, unix.TIOCINQ); err != nil {
			return 0, err
		}
		switch {
		case p.left == 0 && held:
			return 0, os.ErrDeadlineExceeded
		case p.left == 0:
			return 0, io.EOF
		}
	}
	n, err = again(func() (int, error) { return unix.Read(fd, b[:min(len(b), p.left)]) })
	if err != nil {
		return 0, err
	}
	p.left -= n
	return n, nil
}

// again repeats a call until it is not interrupted by a signal.
func again(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}

// Close closes the pipe: from then on no process can write to it.
func (p *Pipe) Close() error { return p.file.Close() }
