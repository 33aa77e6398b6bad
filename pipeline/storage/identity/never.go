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

// NeverVariable is a variable of the environment: directories, one a line, that no link of a dataset
// may lead into, or to one above. It is no flag, because flags may come from somebody who must not
// choose them, such as a pod.
const NeverVariable = "LSIOFS_NEVER_READ"

// Never are directories that a dataset's links must not reach. The nil one has none.
type Never struct{ dirs []string }

// NeverOf returns the directories that NeverVariable names; nil where it names none.
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

// Check returns an error if a path, relative to dirfd, leads to where it must not.
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

// OpenRegular is the function OpenRegular, but for files that must not be reached.
func (n *Never) OpenRegular(dirfd int, path string) (int, error) {
	if n == nil {
		return OpenRegular(dirfd, path)
	}
	return openRegular(dirfd, path, func() (int, error) { return n.find(dirfd, path, 0) })
}

// OpenRegularCached is the function OpenRegularCached, but for files that must not be reached.
func (n *Never) OpenRegularCached(dirfd int, path string) (int, error) {
	if n == nil || !haveProc() {
		return OpenRegularCached(dirfd, path)
	}
	return openRegular(dirfd, path, func() (int, error) { return n.find(dirfd, path, resolveCached) })
}

// OpenDirectory opens a directory, with its links, unless it must not be reached.
func (n *Never) OpenDirectory(dirfd int, path string) (int, error) {
	const flags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_DIRECTORY
	if n != nil {
		found, err := n.find(dirfd, path, 0)
		if err != nil {
			return -1, err
		}
		defer func() { _ = unix.Close(found) }()
		// What was found, whatever the path leads to now.
		dirfd, path = unix.AT_FDCWD, own(found)
	}
	return unix.Openat(dirfd, path, flags, 0)
}

// Open opens a directory by an absolute path, as OpenDirectory does.
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

// find finds what a path leads to (O_PATH), and returns an error if that must not be reached. Links of
// /proc are not followed: they lead to other processes' file systems, whose paths mean something else.
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

// own is the path of a descriptor of this process.
func own(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// refuse refuses a path without links that is one of the directories, lies in one, or holds one.
func (n *Never) refuse(to string) error {
	for _, dir := range n.dirs {
		if liesIn(to, dir) || liesIn(dir, to) {
			return &neverError{to, dir}
		}
	}
	return nil
}

// liesIn reports whether a path is dir or lies in it; both are clean and absolute.
func liesIn(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// neverError is that a link leads to where it must not. It is no permission, so nothing is taken
// for damaged or gone because of it.
type neverError struct{ to, dir string }

func (e *neverError) Error() string {
	return fmt.Sprintf("it leads to %s, which is, holds or is inside %s, and the administrator of this machine keeps datasets from reading that: remove the link, or leave it out with --exclude", e.to, e.dir)
}

func (e *neverError) Unwrap() error { return fs.ErrPermission }
