package diskcache

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/uring/filesystem"
)

// Survey describes the place where a cache is or is going to be: all of a Place except what it is
// for. It creates nothing. A directory that Open would refuse is an error.
func Survey(dir string) (Place, error) {
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return Place{}, fmt.Errorf("cache directory %s: %w", dir, err)
	}
	var st unix.Statfs_t
	at := absolute
	for {
		err := again(func() error { return unix.Statfs(at, &st) })
		if err == nil {
			break
		}
		if err != unix.ENOENT || at == filepath.Dir(at) {
			return Place{}, fmt.Errorf("cache directory: %w", &fs.PathError{Op: "statfs", Path: at, Err: err})
		}
		at = filepath.Dir(at)
	}
	p := Place{
		TotalBytes: int64(st.Blocks) * st.Bsize,
		FreeBytes:  int64(st.Bavail) * st.Bsize,
		Ephemeral:  ephemeral(int64(st.Type)),
	}
	if f, err := os.Open(at); err == nil {
		p.Network = filesystem.Of(int(f.Fd())).Remote
		_ = f.Close()
	}
	if at != absolute {
		return p, nil
	}
	if _, err := (kernel{}).statAt(unix.AT_FDCWD, filepath.Join(absolute, tagName)); errors.Is(err, fs.ErrNotExist) {
		return p, nil // it is empty, or will be refused when it is opened
	}
	c, err := openDirectory(kernel{}, absolute, slog.New(slog.DiscardHandler))
	if err != nil {
		return Place{}, err
	}
	defer c.close()
	err = c.files(func(f file) error {
		p.CacheBytes += f.blocks
		return nil
	})
	if err != nil {
		return Place{}, fmt.Errorf("cache directory %s: %w", absolute, err)
	}
	return p, nil
}

// ephemeral reports whether a file system is a machine's memory, or a container's own storage.
func ephemeral(kind int64) bool {
	return kind == unix.TMPFS_MAGIC || kind == unix.RAMFS_MAGIC || kind == unix.OVERLAYFS_SUPER_MAGIC
}
