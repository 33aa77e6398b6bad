// Package hardlink implements a storage in a directory whose files can still be read after they were
// deleted or replaced: for each file that is held, it makes a hard link inside the dataset.
//
//	DATASET/a.tar                            what was listed
//	DATASET/.lsiofs/hold/<run>/<64 hex>      the same file, by another name
//
// A read tries the path first. If that is gone, or is another file now, it reads the link, if the
// link has the size, modification time and inode that were listed. A file that is written to in
// place is not protected: the link is the same file.
//
// Making a link changes a file's change time (ctime), so versions here have none.
package hardlink

import (
	"context"
	"errors"
	"io/fs"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
)

// Storage is a local storage that falls back to links.
type Storage struct {
	*local.Storage
	links *Links
}

var _ storage.Storage = (*Storage)(nil)

// Wrap returns a storage over s, from which nothing may have been read yet. Its Close closes s.
func Wrap(s *local.Storage, l *Links) *Storage {
	s.AlsoUnder(func(o storage.Object) []string { return l.of(o.Path) })
	return &Storage{s, l}
}

// Caps implements storage.Storage. All ways to read a file fall back to its links.
func (s *Storage) Caps() storage.Caps {
	c := s.Storage.Caps()
	c.StatStable, c.Uncached = s.StatStable, s.Uncached
	return c
}

// Uncached implements storage.Caps.
func (s *Storage) Uncached() (storage.Storage, error) {
	u, err := s.Storage.OpenUncached()
	if err != nil {
		return nil, err
	}
	return Wrap(u, s.links), nil
}

// List implements storage.Storage.
func (s *Storage) List(ctx context.Context, match func(path string, isDir bool) bool, visit func(storage.Object) error) error {
	return s.Storage.List(ctx, match, func(o storage.Object) error { return visit(lasting(o)) })
}

// Stat implements storage.Storage. If a file is gone it describes the newest link.
func (s *Storage) Stat(ctx context.Context, path string) (storage.Object, error) {
	return s.describe(ctx, path, s.Storage.Stat)
}

// StatStable implements storage.Caps; see Stat.
func (s *Storage) StatStable(ctx context.Context, path string) (storage.Object, error) {
	return s.describe(ctx, path, s.Storage.StatStable)
}

func (s *Storage) describe(ctx context.Context, path string, ask func(context.Context, string) (storage.Object, error)) (storage.Object, error) {
	o, err := ask(ctx, path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return lasting(o), err
	}
	for _, name := range s.links.below(path) {
		if linked, failed := ask(ctx, name); failed == nil {
			linked.Path = path
			return lasting(linked), nil
		}
	}
	return o, err
}

// lasting returns an object without the fields that a link to it changes.
func lasting(o storage.Object) storage.Object {
	o.Version.ChangeTimeNanos = 0
	return o
}
