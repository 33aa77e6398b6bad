package run

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// tempPattern is the name pattern of temporary files.
const tempPattern = "tmp-*"

// errTaken means that a name has already been published, by this process or another.
var errTaken = errors.New("it has been published before")

// publish creates a file with a new name atomically and durably. errTaken means that the name
// exists already: then its contents count.
func (d *Directory) publish(name string, text []byte) error {
	temp, err := d.sys.create(d.path, tempPattern, text)
	if err != nil {
		return err
	}
	to := filepath.Join(d.path, name)
	err = d.sys.link(temp, to)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrExist):
		// This link itself may have succeeded: a server's reply can get lost, and the client then
		// repeats the request.
		if n, failed := d.sys.names(temp); failed != nil || n != 2 {
			return errors.Join(errTaken, d.sys.remove(temp))
		}
	case noLinks(err):
		return d.publishByRename(temp, to)
	default:
		return errors.Join(err, d.sys.remove(temp))
	}
	return errors.Join(d.sys.remove(temp), d.sys.syncDir(d.path))
}

func (d *Directory) publishByRename(temp, to string) error {
	err := d.sys.renameNew(temp, to)
	switch {
	case err == nil:
		return d.sys.syncDir(d.path)
	case errors.Is(err, fs.ErrExist):
		return errors.Join(errTaken, d.sys.remove(temp))
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		err = fmt.Errorf("%s: its file system has neither hard links nor renames that replace nothing, so that two nodes could take one epoch: name a directory elsewhere with --run", d.path)
	}
	return errors.Join(err, d.sys.remove(temp))
}

// noLinks reports whether err means that the file system has no hard links.
func noLinks(err error) bool {
	for _, no := range []error{unix.EPERM, unix.ENOTSUP, unix.ENOSYS, unix.EOPNOTSUPP, unix.EMLINK} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// replace writes a file whose contents are the same for every writer.
func (d *Directory) replace(dir, name string, text []byte) error {
	temp, err := d.sys.create(d.path, tempPattern, text)
	if err != nil {
		return err
	}
	if err := d.sys.rename(temp, filepath.Join(dir, name)); err != nil {
		return errors.Join(err, d.sys.remove(temp))
	}
	return d.sys.syncDir(dir)
}
