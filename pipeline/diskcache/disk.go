package diskcache

import (
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
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

// pause is how long nothing is written after the disk was full.
const pause = 30 * time.Second

// health is what a cache may be used for. Its faults never become a reader's.
type health struct {
	clock Clock
	log   *slog.Logger
	dir   string
	off   atomic.Bool
	full  atomic.Int64 // nothing is written until then, in unix nanoseconds

	mu     sync.Mutex
	reason string
}

func (h *health) init(clock Clock, log *slog.Logger, dir string) {
	h.clock, h.log, h.dir = clock, log, dir
}

// writes reports whether pages may be written now.
func (h *health) writes() bool {
	until := h.full.Load()
	return !h.off.Load() && (until == 0 || h.clock.Now().UnixNano() >= until)
}

// passing are errors that do not concern the cache as a whole: the object that they are about is
// read below this time.
var passing = [...]error{
	errAbsent, errBusy, errNotOur, unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EAGAIN, unix.EFBIG, unix.EEXIST, unix.EINTR, unix.EOPNOTSUPP,
}

// failed notes an error; what names the operation.
func (h *health) failed(what string, err error) {
	for _, p := range passing {
		if errors.Is(err, p) {
			return
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		now := h.clock.Now()
		if now.UnixNano() < h.full.Load() {
			return
		}
		h.full.Store(now.Add(pause).UnixNano())
		h.reason = "cache full by others: " + err.Error()
		h.log.Warn("the cache's disk is full: nothing is added to the cache for 30 s", "dir", h.dir, "what", what, "err", err)
		return
	}
	if h.off.Swap(true) {
		return
	}
	h.reason = what + ": " + err.Error()
	h.log.Error("this mount stops using the cache, and reads everything from where the dataset is; mount again when the disk of the cache works", "dir", h.dir, "what", what, "err", err)
}

func (s *Storage) failed(what string, err error) { s.health.failed(what, err) }

// state returns the state in a word, and the reason.
func (h *health) state() (state, reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.off.Load():
		return "off", h.reason
	case h.clock.Now().UnixNano() < h.full.Load():
		return "full", h.reason
	}
	return "on", ""
}
