package identity

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// OpenFlags are the flags for opening files. If a path turns out not to be a file, they keep the
// open from blocking, and a terminal from becoming the process's controlling terminal.
const OpenFlags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY

// OpenRegular opens a regular file; path is relative to dirfd, and links are followed. It opens
// nothing else, because opening has effects: a pipe's writer continues, a watchdog starts counting.
// So it finds the path first (O_PATH), checks it, and opens exactly the inode that it found.
//
// Errors are unix.Errno, or wrap storage.ErrChanged if there is no file or it is not a regular one.
// It may wait for a disk or a server.
func OpenRegular(dirfd int, path string) (int, error) {
	return openRegular(dirfd, path, func() (int, error) { return unix.Openat(dirfd, path, unix.O_PATH|unix.O_CLOEXEC, 0) })
}

// resolveCached is RESOLVE_CACHED; the library has no name for it.
const resolveCached = 0x20

// OpenRegularCached is OpenRegular if that does not block (Linux 5.12). Otherwise it returns
// unix.EAGAIN, or another error of openat2 if that is not permitted.
func OpenRegularCached(dirfd int, path string) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: resolveCached}
	if !haveProc() {
		return -1, unix.EAGAIN
	}
	return openRegular(dirfd, path, func() (int, error) { return unix.Openat2(dirfd, path, &how) })
}

func openRegular(dirfd int, path string, find func() (int, error)) (int, error) {
	found := -1
	err := again(func() (err error) {
		found, err = find()
		return err
	})
	if err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP {
		return -1, errGone
	}
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(found) }()
	var st unix.Stat_t
	if err := again(func() error { return unix.Fstat(found, &st) }); err != nil {
		return -1, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return -1, errNoFile
	}
	fd := -1
	err = again(func() (err error) {
		if haveProc() {
			fd, err = unix.Open(own(found), OpenFlags, 0)
			return err
		}
		// Without /proc an inode that was found can't be opened: the path may meanwhile have become
		// something else, which is then opened. Readers check the open file again.
		fd, err = unix.Openat(dirfd, path, OpenFlags, 0)
		return err
	})
	if err == unix.ENOENT || err == unix.ESTALE {
		return -1, errGone
	}
	return fd, err
}

var (
	errGone   = fmt.Errorf("the file is gone: %w", storage.ErrChanged)
	errNoFile = fmt.Errorf("not a regular file any more: %w", storage.ErrChanged)
)

// haveProc reports whether /proc is mounted here, as it is almost everywhere.
var haveProc = sync.OnceValue(func() bool {
	var st unix.Statfs_t
	return again(func() error { return unix.Statfs("/proc/self/fd", &st) }) == nil && st.Type == unix.PROC_SUPER_MAGIC
})

// NoDescriptor reports whether an error means that the process or the system has no free
// descriptor.
func NoDescriptor(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)
}
