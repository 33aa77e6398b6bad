package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// WriteFile writes a document to path atomically: a temporary file in path's directory, fsync,
// rename, fsync of the directory. The mode is 0600. A symbolic link at path is replaced, not
// followed; but if path, after following links, is a directory, device or pipe (/dev/stdout is a
// link to one), WriteFile returns an error. If it fails before the rename, path is unchanged and
// the temporary file is removed.
func WriteFile(path string, doc []byte) error {
	dir := filepath.Dir(path)
	// Stat follows links; a dangling link is replaced.
	if there, err := os.Stat(path); err == nil && !there.Mode().IsRegular() {
		if there.IsDir() {
			return fmt.Errorf("save %s: it is a directory; name a file", path)
		}
		return fmt.Errorf("save %s: it is not a regular file; name another file", path)
	}
	// CreateTemp opens with O_EXCL and 0600, under an unpredictable name.
	temp, err := os.CreateTemp(dir, ".lsiofs-checkpoint-*")
	if err != nil {
		if cause := (*os.PathError)(nil); errors.As(err, &cause) { // its path is the temporary file
			err = fmt.Errorf("directory %s: %w", dir, cause.Err)
		}
		return fmt.Errorf("save %s: %w", path, err)
	}
	err = fill(temp, doc)
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(temp.Name()))
		return fmt.Errorf("save %s: %w", path, err)
	}
	if err := syncDir(dir); err != nil {
		return fmt.Errorf("%s is saved, but may not survive a power failure: %w", path, err)
	}
	return nil
}

// fill writes doc, makes it durable and closes the file.
func fill(f *os.File, doc []byte) error {
	_, err := f.Write(doc)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncDir makes a rename durable, if the file system supports that.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, d.Close())
}
