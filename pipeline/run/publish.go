package run

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// tempPattern is that of files on their way.
const tempPattern = "tmp-*"

// errTaken says that a name has been published before, by this process or another.
var errTaken = errors.New("it has been published before")

// publish makes a file of a name that there is not, whole or not at all, and durable.
// errTaken means that the name is there: what it holds counts.
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
		// It may have been this link: a server can lose its answer, and the client asks
		// again.
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

// noLinks says that a file system has no hard links.
func noLinks(err error) bool {
	for _, no := range []error{unix.EPERM, unix.ENOTSUP, unix.ENOSYS, unix.EOPNOTSUPP, unix.EMLINK} {
		if errors.Is(err, no) {
			return true
		}
	}
	return false
}

// replace makes a file of a name whose contents are the same whoever writes them.
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
