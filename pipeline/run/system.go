package run

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// system has the calls that change a directory. Tests make each of them fail, or kill the process
// before it.
type system interface {
	// create writes text durably to a file with a new name in dir.
	create(dir, pattern string, text []byte) (path string, err error)
	rename(from, to string) error // replaces
	link(from, to string) error
	renameNew(from, to string) error // does not replace: fs.ErrExist
	remove(path string) error
	syncDir(dir string) error
	names(path string) (int, error) // number of a file's names
}

type kernel struct{}

func (kernel) create(dir, pattern string, text []byte) (path string, err error) {
	f, err := os.CreateTemp(dir, pattern) // O_EXCL, 0600
	if err != nil {
		return "", err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Chmod(0o644) // readable for other users of the run
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

func (kernel) rename(from, to string) error { return os.Rename(from, to) }
func (kernel) link(from, to string) error   { return os.Link(from, to) }
func (kernel) remove(path string) error     { return os.Remove(path) }

func (kernel) renameNew(from, to string) error {
	if err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE); err != nil {
		return &fs.PathError{Op: "rename", Path: to, Err: err}
	}
	return nil
}

func (kernel) syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err = d.Sync(); errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) {
		err = nil // not supported there
	}
	return errors.Join(err, d.Close())
}

func (kernel) names(path string) (int, error) {
	var s unix.Stat_t
	if err := unix.Lstat(path, &s); err != nil {
		return 0, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return int(s.Nlink), nil
}
