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
	caps    []storage.Caps // of the sources
	byName  map[string]int
	hints   *hints // nil if no source takes hints
}

var _ storage.Storage = (*Storage)(nil)

// Wrap combines several storages, with different names, into one. Closing it closes them.
func Wrap(sources []Source) *Storage {
	s := &Storage{sources: sources, caps: make([]storage.Caps, len(sources)), byName: make(map[string]int, len(sources))}
	for i, x := range sources {
		s.byName[x.Name], s.caps[i] = i, x.Storage.Caps()
	}
	s.hints = newHints(s)
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

// statStable implements storage.Caps.
func (s *Storage) statStable(ctx context.Context, path string) (storage.Object, error) {
	return s.look(path, func(x storage.Storage, rest string) (storage.Object, error) { return storage.StatStable(ctx, x, rest) })
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

// Submit implements storage.Storage.
func (s *Storage) Submit(reads []*storage.Read) {
	s.bySource(reads, func(i int) func([]*storage.Read) { return s.sources[i].Storage.Submit })
}

// bySource passes reads on to their sources. Consecutive reads of one source are passed on together.
func (s *Storage) bySource(reads []*storage.Read, submitOf func(i int) func([]*storage.Read)) {
	for begin := 0; begin < len(reads); {
		i, _ := s.of(reads[begin].Object.Path)
		end := begin + 1
		for end < len(reads) {
			if next, _ := s.of(reads[end].Object.Path); next != i {
				break
			}
			end++
		}
		if i < 0 {
			refuse(reads[begin:end])
		} else {
			submitOf(i)(s.translate(i, reads[begin:end]))
		}
		begin = end
	}
}

// refuse fails reads of objects of no source.
func refuse(reads []*storage.Read) {
	for _, r := range reads {
		go r.Done(r.Failure(errNoSource))
	}
}

var errNoSource = fmt.Errorf("it does not belong to a source: %w", storage.ErrChanged)

// translate returns reads of a source as that source knows them.
func (s *Storage) translate(i int, reads []*storage.Read) []*storage.Read {
	below := make([]storage.Read, len(reads))
	all := make([]*storage.Read, len(reads))
	skip := len(s.sources[i].Name) + 1
	for k, r := range reads {
		below[k] = *r
		below[k].Object.Path = r.Object.Path[skip:]
		below[k].Done = func(err error) { r.Done(s.named(i, err)) }
		all[k] = &below[k]
	}
	return all
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
