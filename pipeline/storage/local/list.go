package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// listBatch is how many names are read from a directory at a time, so that one
// with millions of files is never held whole.
const listBatch = 1024

// List calls visit for the regular files below the root. Sockets, devices and
// pipes are passed over, and so is what vanishes meanwhile; a directory that
// can't be read and a symbolic link to nothing are errors, because files may
// be missing from the list.
func (s *Storage) List(ctx context.Context, match func(path string, isDir bool) bool, visit func(storage.Object) error) error {
	var listedBytes int64
	w := walk{ctx: ctx, root: s.root, match: match, pending: []string{""}, visit: func(o storage.Object) error {
		listedBytes += o.SizeBytes
		return visit(o)
	}}
	for len(w.pending) > 0 {
		dir := w.pending[len(w.pending)-1]
		w.pending = w.pending[:len(w.pending)-1]
		if err := w.directory(dir); err != nil {
			return err
		}
	}
	s.exceedsMemory.Store(listedBytes > cacheableBytes())
	return nil
}

// walk is one pass of List. Directories that are still to be read are listed,
// not recursed into.
type walk struct {
	ctx     context.Context // of the one call that this is
	root    string
	match   func(path string, isDir bool) bool
	visit   func(storage.Object) error
	pending []string
}

func (w *walk) directory(dir string) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(w.root, dir))
	if err != nil {
		if dir != "" && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("list dataset: %w", err)
	}
	defer func() { _ = f.Close() }()
	for {
		entries, err := f.ReadDir(listBatch)
		for _, entry := range entries {
			if err := w.entry(dir, entry); err != nil {
				return err
			}
		}
		if err == io.EOF || dir != "" && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list dataset: %w", err)
		}
		if err := w.ctx.Err(); err != nil {
			return err
		}
	}
}

func (w *walk) entry(dir string, entry fs.DirEntry) error {
	path := entry.Name()
	if path[0] == '.' {
		return nil
	}
	if dir != "" {
		path = dir + "/" + path
	}
	switch kind := entry.Type(); {
	case kind.IsDir():
		if w.match(path, true) {
			w.pending = append(w.pending, path)
		}
		return nil
	case !kind.IsRegular() && kind&fs.ModeSymlink == 0:
		return nil
	case !w.match(path, false):
		return nil
	}
	full := filepath.Join(w.root, path)
	info, err := os.Stat(full)
	if err != nil {
		_, lstatErr := os.Lstat(full)
		switch {
		case errors.Is(lstatErr, fs.ErrNotExist):
			return nil
		case entry.Type()&fs.ModeSymlink != 0:
			return fmt.Errorf("list dataset: follow symbolic link: %w: mend the link or remove it", err)
		}
		return fmt.Errorf("list dataset: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	return w.visit(describe(path, info.Sys().(*syscall.Stat_t)))
}
