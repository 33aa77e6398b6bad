// Package union combines several storages into one, for datasets that are a mixture of sources: the
// object web/a.tar is a.tar of the storage named web.
//
//	object NAME/PATH ──► storage NAME, object PATH
//
// Reads are passed on to the storages, so each keeps its abilities: files are mapped, services get
// the readers' plans, disk caches keep data. Errors include the source in the names of objects.
package union

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
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

// fill implements storage.Caps: reads of sources without it are submitted.
func (s *Storage) fill(reads []*storage.Read) {
	s.bySource(reads, func(i int) func([]*storage.Read) {
		if fill := s.caps[i].Fill; fill != nil {
			return fill
		}
		return s.sources[i].Storage.Submit
	})
}

// streamReadBytes is how much is read at a time from sources that have no streams.
const streamReadBytes = 1 << 20

// openSequential implements storage.Caps, with reads if a source has no streams.
func (s *Storage) openSequential(ctx context.Context, o storage.Object, off int64) (io.ReadCloser, error) {
	i, below := s.below(o)
	if i < 0 {
		return nil, &storage.Error{Object: o.Path, OffsetBytes: off, SizeBytes: o.SizeBytes - off, Err: errNoSource}
	}
	if open := s.caps[i].OpenSequential; open != nil {
		r, err := open(ctx, below, off)
		if err != nil {
			return nil, s.named(i, err)
		}
		return namedStream{r, s, i}, nil
	}
	ctx, end := context.WithCancel(ctx)
	r := storage.NewReader(ctx, s.sources[i].Storage, below, streamReadBytes)
	section := io.NewSectionReader(r, off, max(below.SizeBytes-off, 0))
	return namedStream{reads{bufio.NewReaderSize(section, streamReadBytes), end}, s, i}, nil
}

// reads is a stream that consists of reads.
type reads struct {
	io.Reader
	end context.CancelFunc
}

// Close ends a pending Read.
func (r reads) Close() error {
	r.end()
	return nil
}

// namedStream is a stream whose errors include the source in the object's name.
type namedStream struct {
	io.ReadCloser
	of     *Storage
	source int
}

func (n namedStream) Read(p []byte) (int, error) {
	m, err := n.ReadCloser.Read(p)
	if err == nil || err == io.EOF { //nolint:errorlint // Read's is not wrapped
		return m, err
	}
	return m, n.of.named(n.source, err)
}

// openResident implements storage.Caps.
func (s *Storage) openResident(o storage.Object) (storage.Resident, error) {
	i, below := s.below(o)
	if i < 0 || s.caps[i].OpenResident == nil {
		return nil, nil
	}
	r, err := s.caps[i].OpenResident(below)
	if r == nil || err != nil {
		return nil, s.named(i, err)
	}
	return namedResident{r, s, i}, nil
}

// namedResident is a resident object whose errors include the source in the object's name.
type namedResident struct {
	storage.Resident
	of     *Storage
	source int
}

func (n namedResident) Unchanged() error { return n.of.named(n.source, n.Resident.Unchanged()) }

// uncached implements storage.Caps: sources that can't bypass the page cache are read as usual.
func (s *Storage) uncached() (storage.Storage, error) {
	sources := make([]Source, 0, len(s.sources))
	fail := func(err error) (storage.Storage, error) {
		return nil, errors.Join(err, Wrap(sources).Close())
	}
	any := false
	for i, x := range s.sources {
		var past storage.Storage
		if uncached := s.caps[i].Uncached; uncached != nil {
			var err error
			if past, err = uncached(); err != nil {
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
	return Wrap(sources), nil
}

// open is a storage that ignores Close.
type open struct{ storage.Storage }

func (open) Close() error { return nil }
