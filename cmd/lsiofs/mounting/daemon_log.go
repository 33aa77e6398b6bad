package mounting

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
)

// openDaemonLog opens the log of a mount at point: the requested file, or one named after the mount
// point next to the indexes or, if that is not possible, in a temporary directory.
func (o *Config) openDaemonLog(asked, indexDir, point string) (*os.File, error) {
	if asked != "" {
		path, err := filepath.Abs(asked)
		if err != nil {
			return nil, err
		}
		if err := outside(point, "--log-file", path); err != nil {
			return nil, err
		}
		f, err := os.OpenFile(existing(path), logFlags, 0o600)
		if err != nil {
			err = fmt.Errorf("log file: %w: choose another one with --log-file", err)
		}
		return f, err
	}
	name := logName(point)
	dir, _, err := catalog.DirectoryFor(indexDir, o.Dataset)
	if err == nil {
		var f *os.File
		if f, err = openOwnLog(filepath.Join(dir, name)); err == nil || errors.Is(err, errDoubtful) {
			return f, err
		}
	}
	if dir, ownErr := ownTemporary(); ownErr == nil {
		if f, ownErr := openOwnLog(filepath.Join(dir, name)); ownErr == nil || errors.Is(ownErr, errDoubtful) {
			return f, ownErr
		}
	}
	return nil, fmt.Errorf("log file: %w: choose another one with --log-file", err)
}

// logName returns the file name of the log of a mount at point.
func logName(point string) string {
	h := fnv.New32a()
	io.WriteString(h, point)
	return fmt.Sprintf("mount-%s-%08x.log", filepath.Base(point), h.Sum32())
}

// ownTemporary returns a directory for temporary files that only this user can access.
func ownTemporary() (string, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("lsiofs-%d", os.Geteuid()))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 || info.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
		return "", fmt.Errorf("%s must be a directory that only this user can access", dir)
	}
	return dir, nil
}

// logFlags open a log for appending.
const logFlags = os.O_CREATE | os.O_APPEND | os.O_WRONLY

// errDoubtful is wrapped if other users may have created the log or can access it.
var errDoubtful = errors.New("it can't be trusted")

// openOwnLog opens a log whose path the user did not choose. It may be in a directory of other
// users, who could have put a link, a pipe or a readable file there. So it has to meet the same
// conditions as an index.
func openOwnLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, logFlags|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENXIO) { // a link, a pipe
		err = fmt.Errorf("log %s: %w: %w: remove it, or choose a file with --log-file", path, errDoubtful, err)
	}
	if err != nil {
		return nil, err
	}
	if err := believableLog(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("log %s: %w: %w: remove it, or choose a file with --log-file", path, errDoubtful, err)
	}
	return f, nil
}

// believableLog returns an error if other users may have created the log or can access it.
func believableLog(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Sys().(*syscall.Stat_t).Nlink > 1 {
		return errors.New("it has more than one hard link")
	}
	trusted, err := index.TrustIn(filepath.Dir(f.Name()))
	if err != nil {
		return err
	}
	return trusted.Believable(info)
}

// ReopenLog makes a daemon write to a new file at its log's path, after a log rotator has moved the
// old file away. If that fails, the old file stays in use.
func ReopenLog(path string, log *slog.Logger) {
	if info, err := os.Stderr.Stat(); err == nil && !info.Mode().IsRegular() {
		return // such as /dev/null
	}
	f, err := openOwnLog(path)
	for _, fd := range []int{1, 2} {
		if err == nil {
			err = unix.Dup3(int(f.Fd()), fd, 0)
		}
	}
	if err != nil {
		log.Warn("SIGHUP: the log continues in the old file", "error", err)
		return
	}
	_ = f.Close()
	log.Info("SIGHUP: the log was reopened", "file", path)
}
