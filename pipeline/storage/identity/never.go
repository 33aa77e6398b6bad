package identity

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

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
