package run

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// system is what a directory is changed by. Tests fail each of its calls, or end before
// it.
type system interface {
	// create makes a file of a new name in dir that holds text, durable, and closes it.
	create(dir, pattern string, text []byte) (path string, err error)
	rename(from, to string) error // replaces
	link(from, to string) error
	renameNew(from, to string) error // replaces nothing: fs.ErrExist
	remove(path string) error
	syncDir(dir string) error
	names(path string) (int, error) // how many a file has
}

type kernel struct{}

func (kernel) create(dir, pattern string, text []byte) (path string, err error) {
	f, err := os.CreateTemp(dir, pattern) // O_EXCL, 0600
	if err != nil {
		return "", err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Chmod(0o644) // other users of the run read it
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
		err = nil // it can't, there
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
