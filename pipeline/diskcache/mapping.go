package diskcache

import (
	"errors"
	"fmt"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

var (
	_ storage.Mapper  = (*Storage)(nil)
	_ storage.Mapping = (*sealedMapping)(nil)
)

// Map implements storage.Mapper. Only sealed objects are mapped.
func (s *Storage) Map(o storage.Object, done func(storage.Mapping, error)) {
	if !s.begin(1) {
		s.seals.files.Map(storage.Object{}, func(storage.Mapping, error) { done(nil, mapError(o, errClosed)) }) // it is closed, too
		return
	}
	file, sealed := s.seals.of(o)
	if !sealed {
		s.seals.whole(o) // as far as is known
		s.readers.add(refusal{s, o, errNotSealed, done})
		return
	}
	s.seals.files.Map(file, func(m storage.Mapping, err error) {
		defer s.end()
		if err == nil {
			done(&sealedMapping{m, s.seals, o, file}, nil)
			return
		}
		if errors.Is(err, storage.ErrChanged) {
			s.seals.broken(o, file)
			err = errNotSealed
		}
		done(nil, mapError(o, err))
	})
}

// refusal tells that an object is not mapped, on another goroutine than the asker's.
type refusal struct {
	s      *Storage
	object storage.Object
	err    error
	done   func(storage.Mapping, error)
}

func (x refusal) run() {
	x.done(nil, mapError(x.object, x.err))
	x.s.end()
}

func mapError(o storage.Object, err error) error {
	var of *storage.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	return &storage.Error{Object: o.Path, SizeBytes: o.SizeBytes, Err: err}
}

// refusal reports, on another goroutine than the caller's, that an object is not mapped.
func (s *Storage) Evictions() uint64 { return s.seals.files.Evictions() }

// Breaks implements storage.Leaser. There are no leases: every mount that has an object open may
// write to its files.
func (s *Storage) Breaks() uint64 { return s.seals.files.Breaks() }

// Unbroken implements storage.Leaser.
func (s *Storage) Unbroken(breaks uint64) bool { return s.seals.files.Unbroken(breaks) }

// LeaseStats implements storage.Leaser. A copy without a lease is not worth reporting.
func (s *Storage) LeaseStats() storage.LeaseStats { return storage.LeaseStats{} }

// sealedMapping is the mapping of a sealed object's file.
type sealedMapping struct {
	storage.Mapping
	seals  *seals
	object storage.Object
	file   storage.Object // the mapped file
}

// Bytes returns the object's bytes: the file consists of whole pages, so it may be longer.
func (m *sealedMapping) Bytes() []byte { return m.Mapping.Bytes()[:m.object.SizeBytes] }

// Check implements storage.Mapping.
func (m *sealedMapping) Check() error {
	if err := m.Mapping.Check(); err != nil {
		return m.lost(err)
	}
	return nil
}

// OpenForWriting implements storage.Mapping. Mounts have their cache's files open for writing,
// which is not worth reporting: they write the same bytes.
func (m *sealedMapping) OpenForWriting() bool { return false }

// Lost implements storage.Mapping.
func (m *sealedMapping) Lost() error { return m.lost(errors.New("its pages are gone")) }

func (m *sealedMapping) lost(err error) error {
	m.seals.broken(m.object, m.file)
	return &storage.Error{
		Object: m.object.Path, SizeBytes: m.object.SizeBytes,
		Err: fmt.Errorf("%w: the cache's file was changed (%v)", storage.ErrReadAgain, err),
	}
}
