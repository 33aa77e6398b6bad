package identity

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/uring/filesystem"
)

// Written reports whether a file is open for writing anywhere, or that this is unknown: the file
// can't be opened, or its file system may have writers that this kernel does not know of. It
// requests a lease (fcntl(2), F_SETLEASE), and releases it at once. Links are followed; it may wait
// for a disk.
func Written(path string) (written, unknown bool) {
	fd, err := OpenRegular(unix.AT_FDCWD, path)
	if err != nil {
		return errors.Is(err, unix.EWOULDBLOCK), true
	}
	defer func() { _ = unix.Close(fd) }()
	if !filesystem.Of(fd).Watched {
		return false, true
	}
	switch _, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK); {
	case errors.Is(err, unix.EAGAIN):
		return true, false
	case err != nil:
		return false, true
	}
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
	return false, false
}
