package crops

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

var _ storage.Verifier = (*Storage)(nil)

// AuditBytes implements storage.Verifier: it returns the total size of the objects that exist.
func (s *Storage) AuditBytes(o storage.Object) (n int64) {
	s.mu.Lock()
	c := s.cubes[o.Path]
	s.mu.Unlock()
	if c == nil {
		return 0
	}
	for _, f := range c.fields {
		f.Each(func(number int64) bool {
			x, _ := f.Object(number)
			n += x.SizeBytes
			return true
		})
	}
	return n
}

// Audit implements storage.Verifier: it reads and decodes each chunk once, on all cores, including
// chunks that no crop uses.
func (s *Storage) Audit(ctx context.Context, o storage.Object, damage func(reason string), read func(bytes int64)) (decodedBytes int64, err error) {
	s.mu.Lock()
	c := s.cubes[o.Path]
	s.mu.Unlock()
	if c == nil {
		return 0, fmt.Errorf("it was not listed: %w", storage.ErrChanged)
	}
	if _, err := s.Stat(ctx, o.Path); err != nil {
		return 0, err
	}
	a := &audit{Storage: s, damage: damage, read: read}
	g, ctx := errgroup.WithContext(ctx)
	batches := make(chan []auditChunk, runtime.GOMAXPROCS(0))
	g.Go(func() error {
		defer close(batches)
		for _, f := range c.fields {
			if err := a.find(ctx, f, batches); err != nil {
				return err
			}
		}
		return nil
	})
	for range runtime.GOMAXPROCS(0) {
		g.Go(func() error { return a.work(ctx, batches) })
	}
	if err = g.Wait(); err == nil {
		err = a.unread.err()
	}
	return a.decoded, err
}

// audit is one call of Audit.
type audit struct {
	*Storage
	mu      sync.Mutex
	damage  func(reason string)
	read    func(bytes int64)
	decoded int64
	unread  unread
}

// maxUnread is how many unreadable places end an audit.
const maxUnread = 16

// unread are the errors of places that could not be read.
type unread []error

func (u unread) err() error {
	if len(u) == 0 {
		return nil
	}
	texts := make([]string, len(u))
	for i, err := range u {
		texts[i] = err.Error()
	}
	slices.Sort(texts)
	return &unreadError{strings.Join(texts, "; "), u[0]}
}

// unreadError is several errors on one line.
type unreadError struct {
	text  string
	first error
}

func (e *unreadError) Error() string { return e.text }
func (e *unreadError) Unwrap() error { return e.first }

// lost notes a place that could not be read. An error that it returns ends the audit.
func (a *audit) lost(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.unread = append(a.unread, err); len(a.unread) < maxUnread {
		return nil
	}
	return a.unread.err()
}

// auditChunk is a chunk to verify.
type auditChunk struct {
	f      *field
	of     storage.Object
	number int64 // of the chunk
	place  zarr.Place
}

// auditAtOnce is how many chunks are handed to a worker at a time.
const auditAtOnce = 16

// wrong reports damage.
func (a *audit) wrong(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.damage(fmt.Sprintf(format, args...))
}

// find sends the chunks of a field to batches.
func (a *audit) find(ctx context.Context, f *field, batches chan<- []auditChunk) (err error) {
	var batch []auditChunk
	send := func(least int) bool {
		if len(batch) < least || len(batch) == 0 {
			return true
		}
		select {
		case batches <- batch:
		case <-ctx.Done():
			err = ctx.Err()
			return false
		}
		batch = nil
		return true
	}
	f.Each(func(number int64) bool {
		o, _ := f.Object(number)
		if len(f.Array.Levels) == 0 {
			batch = append(batch, auditChunk{f, o, number, zarr.Place{SizeBytes: o.SizeBytes}})
			return send(auditAtOnce)
		}
		places, wrong, failed := a.placesIn(ctx, f, o, number)
		if failed != nil {
			if err = ctx.Err(); err == nil {
				err = a.lost(fmt.Errorf("%s: %w", o.Path, reasonOf(failed)))
			}
			return err == nil
		}
		if wrong != nil {
			a.wrong("%v", wrong)
			return true
		}
		going := true
		f.eachChunk(number, func(chunk int64, _ []int64) {
			p := places[0]
			if places = places[1:]; going && !p.Absent() {
				batch = append(batch, auditChunk{f, o, chunk, p})
				going = send(auditAtOnce)
			}
		})
		return going
	})
	if err == nil {
		send(1)
	}
	return err
}

// reasonOf returns an error without the location in front of it.
func reasonOf(err error) error {
	if located, ok := err.(*storage.Error); ok {
		return located.Err
	}
	return err
}

// work verifies chunks until there are no more.
func (a *audit) work(ctx context.Context, batches <-chan []auditChunk) error {
	m := newBuffers()
	defer m.close()
	for batch := range batches {
		for _, b := range batch {
			if err := ctx.Err(); err != nil {
				return err
			}
			wrong := b.f.checkSize(b.place.SizeBytes)
			if wrong == nil {
				var lost, err error
				if lost, wrong, err = a.look(ctx, m, &b); err != nil {
					return b.named(err)
				}
				if lost != nil && ctx.Err() != nil {
					return ctx.Err()
				}
				if lost != nil {
					if err := a.lost(b.named(reasonOf(lost))); err != nil {
						return err
					}
					continue
				}
			}
			a.looked(&b, wrong)
		}
	}
	return nil
}

// look reads and decodes a chunk. lost is why it can't be read, wrong why it can't be decoded, and
// err ends the audit. A chunk that is stored uncompressed is read in pieces.
func (a *audit) look(ctx context.Context, m *buffers, b *auditChunk) (lost, wrong, err error) {
	size, raw := b.place.SizeBytes, b.f.Array.Chain.Raw()
	piece, needs := size, b.f.usual
	if raw {
		piece = min(size, rawPieceBytes)
	} else if err := a.fits(b.f, size, 0); err != nil {
		return nil, nil, err
	}
	needs.stored = piece
	taken := max(needs.sum()-a.each(), 0)
	if taken > 0 {
		a.room.take(taken)
	}
	m.fit(needs, a.each(), taken)
	defer func() {
		if m.left(a.each(), taken); taken > 0 {
			a.room.give(taken)
		}
	}()
	if int64(cap(m.read)) < piece {
		m.read = make([]byte, piece)
	}
	var stored []byte
	for at := int64(0); at < size; at += piece {
		stored = m.read[:min(piece, size-at)]
		if err := storage.ReadAt(ctx, a.under, b.of, stored, b.place.OffsetBytes+at); err != nil {
			m.read = nil
			return err, nil, nil
		}
	}
	if raw {
		return nil, nil, nil
	}
	decoded, err := m.unkept.room(b.f.chunkBytes)
	if err == nil {
		err = a.fitsBlocks(b.f, stored)
	}
	if err != nil {
		return nil, nil, err
	}
	return nil, m.decoder.Decode(decoded, stored, b.f.Array.Chain), nil
}

// named adds the location of the chunk to an error.
func (b *auditChunk) named(err error) error {
	place := make([]int64, len(b.f.Array.Shape))
	b.f.chunks.Place(place, b.number)
	return fmt.Errorf("%s: chunk %v at [%d, %d): %w", b.of.Path, numbersOf(place), b.place.OffsetBytes, b.place.OffsetBytes+b.place.SizeBytes, err)
}

// looked counts a chunk that was read, and reports damage.
func (a *audit) looked(b *auditChunk, wrong error) {
	if wrong != nil {
		a.wrong("%v", b.named(wrong))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.read(b.place.SizeBytes)
	a.decoded += b.f.chunkBytes
}
