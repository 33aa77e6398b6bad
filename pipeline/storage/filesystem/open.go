package filesystem

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
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

// Way is a directory on the path from the root of a listing, together with the directories above
// it; nil is the way to the root. It is immutable.
type Way struct {
	device, inode uint64
	above         *Way
}

// Down returns the way into a subdirectory.
func (w *Way) Down(device, inode uint64) *Way { return &Way{device, inode, w} }

// Has reports whether a directory is on the way, so that a link to it leads back.
func (w *Way) Has(device, inode uint64) bool {
	for ; w != nil; w = w.above {
		if w.device == device && w.inode == inode {
			return true
		}
	}
	return false
}

// mostAgain bounds how often directories are entered again through links. If a few directories
// contain links to each other, there are as many paths as orderings of them.
const mostAgain = 1000

// ErrManyLinks means that links give the same directories too many names.
var ErrManyLinks = errors.New("links lead to the same directories by more than 1000 names: remove some of them, or leave them out with --exclude")

// Entered counts the directories that a walk has entered through links. The zero value is empty.
type Entered struct {
	times map[entered]int
	again int
}

type entered struct{ device, inode uint64 }

// Enter counts a directory, and returns ErrManyLinks if it must not be entered.
func (e *Entered) Enter(device, inode uint64) error {
	at := entered{device, inode}
	if e.times[at] > 0 {
		if e.again == mostAgain {
			return ErrManyLinks
		}
		e.again++
	}
	if e.times == nil {
		e.times = map[entered]int{}
	}
	e.times[at]++
	return nil
}

// Leave undoes an Enter.
func (e *Entered) Leave(device, inode uint64) {
	at := entered{device, inode}
	switch n := e.times[at]; {
	case n == 0:
	case n == 1:
		delete(e.times, at)
	default:
		e.times[at] = n - 1
		e.again--
	}
}

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
	if !uring.TraitsOf(fd).Watched {
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

// NeverVariable is an environment variable with directories, one per line. A dataset's links must
// not lead to these, into them, or to a directory above them. It is not a flag, because flags may
// come from users who must not choose them, such as a pod's.
const NeverVariable = "LSIOFS_NEVER_READ"

// Never is a set of directories that a dataset's links must not reach. A nil Never is empty.
type Never struct{ dirs []string }

// NeverOf returns the directories in NeverVariable; nil if there are none.
func NeverOf() (*Never, error) {
	text := os.Getenv(NeverVariable)
	if text == "" {
		return nil, nil
	}
	n := &Never{}
	for dir := range strings.SplitSeq(text, "\n") {
		if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
			return nil, fmt.Errorf("%s (%q) must be absolute paths without links, one a line", NeverVariable, dir)
		}
		n.dirs = append(n.dirs, dir)
		if to, err := filepath.EvalSymlinks(dir); err == nil && to != dir {
			n.dirs = append(n.dirs, to)
		}
	}
	return n, nil
}

// Check returns an error if a path, relative to dirfd, leads to a forbidden directory.
func (n *Never) Check(dirfd int, path string) error {
	if n == nil {
		return nil
	}
	fd, err := n.find(dirfd, path, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

// OpenRegular is the function OpenRegular, but returns an error for forbidden files.
func (n *Never) OpenRegular(dirfd int, path string) (int, error) {
	if n == nil {
		return OpenRegular(dirfd, path)
	}
	return openRegular(dirfd, path, func() (int, error) { return n.find(dirfd, path, 0) })
}

// OpenRegularCached is the function OpenRegularCached, but returns an error for forbidden files.
func (n *Never) OpenRegularCached(dirfd int, path string) (int, error) {
	if n == nil || !haveProc() {
		return OpenRegularCached(dirfd, path)
	}
	return openRegular(dirfd, path, func() (int, error) { return n.find(dirfd, path, resolveCached) })
}

// OpenDirectory opens a directory, following links, unless it is forbidden.
func (n *Never) OpenDirectory(dirfd int, path string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_DIRECTORY
	if n != nil {
		found, err := n.find(dirfd, path, 0)
		if err != nil {
			return -1, err
		}
		defer func() { _ = unix.Close(found) }()
		// Open what was found, whatever the path leads to now.
		dirfd, path = unix.AT_FDCWD, own(found)
	}
	return unix.Openat(dirfd, path, flags, 0)
}

// Open opens a directory by an absolute path, like OpenDirectory.
func (n *Never) Open(path string) (*os.File, error) {
	if n == nil {
		return os.Open(path)
	}
	fd, err := n.OpenDirectory(unix.AT_FDCWD, path)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// find opens what a path leads to with O_PATH, and returns an error if that is forbidden. Magic
// links of /proc are not followed: they lead to other processes' file systems, whose paths mean
// something else.
func (n *Never) find(dirfd int, path string, resolve uint64) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS | resolve}
	fd, err := unix.Openat2(dirfd, path, &how)
	if err != nil {
		return -1, err
	}
	to, err := os.Readlink(own(fd))
	if err == nil {
		err = n.refuse(to)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// own returns the path of a descriptor of this process.
func own(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// refuse returns an error if a path without links is one of the directories, is inside one, or
// contains one.
func (n *Never) refuse(to string) error {
	for _, dir := range n.dirs {
		if liesIn(to, dir) || liesIn(dir, to) {
			return &neverError{to, dir}
		}
	}
	return nil
}

// liesIn reports whether a path is dir or inside it; both are clean and absolute.
func liesIn(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// neverError means that a link leads to a forbidden directory. It is a permission error, so that
// nothing is considered damaged or gone because of it.
type neverError struct{ to, dir string }

func (e *neverError) Error() string {
	return fmt.Sprintf("it leads to %s, which is, holds or is inside %s, and the administrator of this machine keeps datasets from reading that: remove the link, or leave it out with --exclude", e.to, e.dir)
}

func (e *neverError) Unwrap() error { return fs.ErrPermission }
