package diskcache

import (
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// disk has the system calls that change a cache or inspect it, except those that read pages
// (package uring does). Errors are syscall.Errno values. Tests make them fail.
type disk interface {
	open(dir int, name string, flags int) (fd int, err error) // new files get mode 0600
	close(fd int)
	mkdir(dir int, name string) error // mode 0700
	unlink(dir int, name string) error
	stat(fd int) (unix.Stat_t, error)
	statAt(dir int, name string) (unix.Stat_t, error) // does not follow links
	statfs(fd int) (unix.Statfs_t, error)
	truncate(fd int, size int64) error
	read(fd int, p []byte, off int64) (int, error) // short only at the end of the file
	write(fd int, p []byte, off int64) error       // all of p
	punch(fd int, off, n int64) error
	lock(fd int, how int) error // flock
	// claim locks a range of a file for this open file, or unlocks it. It does not wait for others.
	claim(fd int, off, n int64, locked bool) error
	touch(fd int, at time.Time) error
	names(dir int, visit func(name string) error) error
}

// kernel is the real disk.
type kernel struct{}

var _ disk = kernel{}

// again repeats a call that was interrupted by a signal.
func again(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

func (kernel) open(dir int, name string, flags int) (fd int, err error) {
	err = again(func() error {
		fd, err = unix.Openat(dir, name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
		return err
	})
	return fd, err
}

func (kernel) close(fd int) { _ = unix.Close(fd) }

func (kernel) mkdir(dir int, name string) error { return unix.Mkdirat(dir, name, 0o700) }

func (kernel) unlink(dir int, name string) error { return unix.Unlinkat(dir, name, 0) }

func (kernel) stat(fd int) (st unix.Stat_t, err error) {
	err = again(func() error { return unix.Fstat(fd, &st) })
	return st, err
}

func (kernel) statAt(dir int, name string) (st unix.Stat_t, err error) {
	err = again(func() error { return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) })
	return st, err
}

func (kernel) statfs(fd int) (st unix.Statfs_t, err error) {
	err = again(func() error { return unix.Fstatfs(fd, &st) })
	return st, err
}

func (kernel) truncate(fd int, size int64) error {
	return again(func() error { return unix.Ftruncate(fd, size) })
}

func (kernel) read(fd int, p []byte, off int64) (n int, err error) {
	for n < len(p) {
		got, err := unix.Pread(fd, p[n:], off+int64(n))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return n, err
		case got == 0:
			return n, nil
		default:
			n += got
		}
	}
	return n, nil
}

func (kernel) write(fd int, p []byte, off int64) error {
	for len(p) > 0 {
		n, err := unix.Pwrite(fd, p, off)
		if err != nil && err != unix.EINTR {
			return err
		}
		p, off = p[max(n, 0):], off+int64(max(n, 0))
	}
	return nil
}

func (kernel) punch(fd int, off, n int64) error {
	return again(func() error {
		return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	})
}

func (kernel) lock(fd int, how int) error { return again(func() error { return unix.Flock(fd, how) }) }

func (kernel) claim(fd int, off, n int64, locked bool) error {
	l := unix.Flock_t{Type: unix.F_UNLCK, Whence: io.SeekStart, Start: off, Len: n}
	if locked {
		l.Type = unix.F_WRLCK
	}
	return again(func() error { return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &l) })
}

func (kernel) touch(fd int, at time.Time) error {
	// The times are set on the open file, whatever its path refers to by now.
	when := unix.NsecToTimeval(at.UnixNano())
	return unix.Futimes(fd, []unix.Timeval{when, when})
}

// names calls visit for each name in a directory, in no particular order, and stops at the first
// error. It moves the descriptor's position in the directory.
func (kernel) names(dir int, visit func(string) error) error {
	if _, err := unix.Seek(dir, 0, io.SeekStart); err != nil {
		return err
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := unix.Getdents(dir, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return err
		}
		_, _, names := unix.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			if err := visit(name); err != nil {
				return err
			}
		}
	}
}
