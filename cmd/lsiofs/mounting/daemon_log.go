package mounting

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
)

// logPath is the log's file, or, where none was asked for, one beside the indexes that
// is named after the mount point.
func (o *Config) logPath(asked, indexDir string) (string, error) {
	if asked != "" {
		return filepath.Abs(asked)
	}
	dir, _, err := catalog.DirectoryFor(indexDir, o.Dataset)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("log directory: %w (choose a file with --log-file)", err)
	}
	point, err := filepath.Abs(o.Point)
	if err != nil {
		return "", err
	}
	h := fnv.New32a()
	io.WriteString(h, point)
	return filepath.Join(dir, fmt.Sprintf("mount-%s-%08x.log", filepath.Base(point), h.Sum32())), nil
}

// openLog opens a log to be appended to. One that nobody has asked for by its name
// may lie in a directory of others, who could have put a link, a pipe or a file that
// they read there: it has to be believable as an index is.
func openLog(path string, asked bool) (*os.File, error) {
	flags := os.O_CREATE | os.O_APPEND | os.O_WRONLY
	if asked {
		return os.OpenFile(path, flags, 0o600)
	}
	f, err := os.OpenFile(path, flags|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("log: %w (choose a file with --log-file)", err)
	}
	if err := believableLog(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("log %s: %w: remove it, or choose a file with --log-file", path, err)
	}
	return f, nil
}

// believableLog says why others may have made a log, or get at it.
func believableLog(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Sys().(*syscall.Stat_t).Nlink > 1 {
		return errors.New("it has another name as well")
	}
	trusted, err := index.TrustIn(filepath.Dir(f.Name()))
	if err != nil {
		return err
	}
	return trusted.Believable(info)
}
