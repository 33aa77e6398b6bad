package union

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

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
