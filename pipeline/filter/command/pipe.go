package command

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Pipe is the end of a pipe that a program writes to. It is for one reader; Close may be
// called at any time.
//
// Once the program has ended, reading has a deadline, since somebody who left its group may
// hold the pipe for ever. The deadline is for what nobody has written yet: what is in the
// pipe by then is read, however late its reader comes (its disk was behind), and where
// nobody holds the pipe, so is its end.
type Pipe struct {
	file *os.File
	late bool // the deadline is over
	left int  // then: what may still be read, in bytes
}

// Read gives os.ErrDeadlineExceeded when somebody holds the pipe and has not written by the
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
	// The file's Read would look at its deadline first.
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
		// Of somebody who writes for ever no more than there is now.
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

// again makes a call until no signal interrupts it.
func again(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}

// Close lets go of the pipe: from then on nobody can write to it.
func (p *Pipe) Close() error { return p.file.Close() }
