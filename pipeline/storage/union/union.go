// Package union combines several storages into one, for datasets that are a mixture of sources: the
// object web/a.tar is a.tar of the storage named web.
//
//	object NAME/PATH ──► storage NAME, object PATH
//
// Reads are passed on to the storages, so each keeps its abilities: files are mapped, services get
// the readers' plans, disk caches keep data. Errors include the source in the names of objects.
package union

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Source is one of the storages, with its name, which contains no slash.
type Source struct {
	Name    string
	Storage storage.Storage
}

// Storage combines several storages. Its methods may be called concurrently.
type Storage struct {
	sources []Source
	byName  map[string]int
}

var (
	_ storage.Storage     = (*Storage)(nil)
	_ storage.Mapper      = (*Storage)(nil)
	_ storage.StatStabler = (*Storage)(nil)
	_ storage.Sequential  = (*Storage)(nil)
	_ storage.Uncached    = (*Storage)(nil)
	_ storage.Planner     = planner{}
	_ storage.Keeper      = keeper{}
)

// Wrap combines several storages, with different names, into one. The result is a storage.Planner
// if one of them is, and a storage.Keeper if all its Planners are. Closing it closes them.
func Wrap(sources []Source) storage.Storage {
	s := newStorage(sources)
	planners, keepers := 0, 0
	for _, x := range sources {
		if _, is := x.Storage.(storage.Planner); is {
			planners++
		}
		if _, is := x.Storage.(storage.Keeper); is {
			keepers++
		}
	}
	switch {
	case planners == 0:
		return s
	case planners == keepers:
		return keeper{planner{s}}
	}
	return planner{s}
}

func newStorage(sources []Source) *Storage {
	s := &Storage{sources: sources, byName: make(map[string]int, len(sources))}
	for i, x := range sources {
		s.byName[x.Name] = i
	}
	return s
}

// of returns the storage of an object, and the object's path there; i is negative if there is none.
func (s *Storage) of(path string) (i int, rest string) {
	name, rest, _ := strings.Cut(path, "/")
	if i, ok := s.byName[name]; ok && rest != "" {
		return i, rest
	}
	return -1, ""
}

// List implements storage.Storage, source by source.
func (s *Storage) List(ctx context.Context, match func(path string, isDir bool) bool, visit func(storage.Object) error) error {
	for _, x := range s.sources {
		prefix := x.Name + "/"
		if !match(x.Name, true) {
			continue
		}
		err := x.Storage.List(ctx,
			func(path string, isDir bool) bool { return match(prefix+path, isDir) },
			func(o storage.Object) error {
				o.Path = prefix + o.Path
				return visit(o)
			})
		if err != nil {
			return fmt.Errorf("source %s: %w", x.Name, err)
		}
	}
	return nil
}

// Stat implements storage.Storage.
func (s *Storage) Stat(ctx context.Context, path string) (storage.Object, error) {
	return s.look(path, func(x storage.Storage, rest string) (storage.Object, error) { return x.Stat(ctx, rest) })
}

// StatStable implements storage.StatStabler; it is Stat if the storage is not a Settler.
func (s *Storage) StatStable(ctx context.Context, path string) (storage.Object, error) {
	return s.look(path, func(x storage.Storage, rest string) (storage.Object, error) {
		if settler, is := x.(storage.StatStabler); is {
			return settler.StatStable(ctx, rest)
		}
		return x.Stat(ctx, rest)
	})
}

func (s *Storage) look(path string, stat func(x storage.Storage, rest string) (storage.Object, error)) (storage.Object, error) {
	i, rest := s.of(path)
	if i < 0 {
		return storage.Object{}, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	o, err := stat(s.sources[i].Storage, rest)
	if err != nil {
		return o, s.named(i, err)
	}
	o.Path = path
	return o, nil
}

// Submit implements storage.Storage. Reads of one source are submitted together.
func (s *Storage) Submit(reads []*storage.Read) {
	for begin := 0; begin < len(reads); {
		i, _ := s.of(reads[begin].Object.Path)
		end := begin + 1
		for end < len(reads) {
			if next, _ := s.of(reads[end].Object.Path); next != i {
				break
			}
			end++
		}
		s.submit(i, reads[begin:end])
		begin = end
	}
}

func (s *Storage) submit(i int, reads []*storage.Read) {
	if i < 0 {
		for _, r := range reads {
			go r.Done(&storage.Error{
				Object: r.Object.Path, OffsetBytes: r.OffsetBytes, SizeBytes: int64(len(r.Buf)),
				Err: fmt.Errorf("it does not belong to a source: %w", storage.ErrChanged),
			})
		}
		return
	}
	below := make([]storage.Read, len(reads))
	all := make([]*storage.Read, len(reads))
	skip := len(s.sources[i].Name) + 1
	for k, r := range reads {
		below[k] = *r
		below[k].Object.Path = r.Object.Path[skip:]
		below[k].Done = func(err error) { r.Done(s.named(i, err)) }
		all[k] = &below[k]
	}
	s.sources[i].Storage.Submit(all)
}

// named adds the source to the object's name in an error of a source.
func (s *Storage) named(i int, err error) error {
	if err == nil || errors.Is(err, storage.ErrUnwanted) {
		return err
	}
	if e, is := err.(*storage.Error); is { //nolint:errorlint // what a storage gives is one
		named := *e
		named.Object = s.sources[i].Name + "/" + e.Object
		return &named
	}
	return fmt.Errorf("source %s: %w", s.sources[i].Name, err)
}

// below returns an object's source, which must exist, and the object as the source knows it.
func (s *Storage) below(o storage.Object) (int, storage.Object) {
	i, rest := s.of(o.Path)
	o.Path = rest
	return i, o
}

// Close closes all sources. It is idempotent.
func (s *Storage) Close() error {
	var errs []error
	for _, x := range s.sources {
		errs = append(errs, x.Storage.Close())
	}
	return errors.Join(errs...)
}

// Uncached implements storage.Uncached: sources that can't bypass the page cache are read as usual.
func (s *Storage) Uncached() (storage.Storage, error) {
	sources := make([]Source, 0, len(s.sources))
	fail := func(err error) (storage.Storage, error) {
		return nil, errors.Join(err, newStorage(sources).Close())
	}
	any := false
	for _, x := range s.sources {
		var past storage.Storage
		if u, is := x.Storage.(storage.Uncached); is {
			var err error
			if past, err = u.Uncached(); err != nil {
				return fail(fmt.Errorf("source %s: %w", x.Name, err))
			}
		}
		any = any || past != nil
		if past == nil {
			past = open{x.Storage}
		}
		sources = append(sources, Source{x.Name, past})
	}
	if !any {
		return nil, nil
	}
	return newStorage(sources), nil
}

// open is a storage that ignores Close.
type open struct{ storage.Storage }

func (open) Close() error { return nil }
