package kernelbench

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// clone is the ioctl that attaches another descriptor of /dev/fuse to the same mount.
const clone = 0x8004e500

// cloned returns another descriptor of a mount, with a queue of its own.
func cloned(fd int) (int, error) {
	other, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	number := uint32(fd)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(other), clone, uintptr(unsafe.Pointer(&number))); errno != 0 {
		return -1, errors.Join(fmt.Errorf("clone /dev/fuse: %w", errno), unix.Close(other))
	}
	return other, nil
}

// device answers requests from a descriptor until the file system is unmounted.
func (s *server) device(fd int) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	in := make([]byte, s.pages*pageBytes+64<<10)
	gathered := make([]byte, s.pages*pageBytes)
	out := make([]byte, pageBytes)
	for {
		n, err := unix.Read(fd, in)
		switch {
		case err == unix.EINTR || err == unix.ENOENT || err == unix.EAGAIN:
			continue
		case err == unix.ENODEV:
			return nil
		case err != nil:
			return fmt.Errorf("read /dev/fuse: %w", err)
		}
		op := le.Uint32(in[4:])
		if op == opForget || op == opBatchForget || op == opInterrupt {
			continue
		}
		m, data, errno := s.reply(op, le.Uint64(in[16:]), in[inHeaderBytes:n], out[outHeaderBytes:])
		putHeader(out, m, errno, le.Uint64(in[8:]))
		if data != nil && s.way.Gathers {
			data = gathered[:copy(gathered, data)]
		}
		if data != nil {
			_, err = unix.Writev(fd, [][]byte{out[:outHeaderBytes], data})
		} else {
			_, err = unix.Write(fd, out[:outHeaderBytes+m])
		}
		if err != nil && err != unix.ENOENT { // ENOENT: the client is gone
			return fmt.Errorf("write /dev/fuse: %w", err)
		}
		if op == opInit {
			close(s.greeted)
		}
	}
}
