package union

import (
	"fmt"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// mapper maps objects of the sources that have a Mapper.
type mapper struct{ *Storage }

func (s mapper) of(i int) storage.Mapper {
	if i < 0 {
		return nil
	}
	return s.caps[i].Mapper
}

// Map implements storage.Mapper. Objects of a source that does not map give ErrNotMapped.
func (s mapper) Map(o storage.Object, done func(storage.Mapping, error)) {
	i, rest := s.below(o)
	m := s.of(i)
	if m == nil {
		err := &storage.Error{Object: o.Path, SizeBytes: o.SizeBytes, Err: fmt.Errorf("its source maps nothing: %w", storage.ErrNotMapped)}
		go done(nil, err)
		return
	}
	m.Map(rest, func(x storage.Mapping, err error) {
		if err != nil || x == nil {
			done(x, s.named(i, err))
			return
		}
		done(named{x, s.Storage, i}, nil)
	})
}

// named is a mapping whose errors include the source in the object's name.
type named struct {
	storage.Mapping
	of     *Storage
	source int
}

func (n named) Check() error { return n.of.named(n.source, n.Mapping.Check()) }
func (n named) Lost() error  { return n.of.named(n.source, n.Mapping.Lost()) }

// Evictions implements storage.Mapper: it stays the same while no source has lost pages.
func (s mapper) Evictions() (n uint64) {
	for i := range s.sources {
		if m := s.of(i); m != nil {
			n += m.Evictions()
		}
	}
	return n
}

// Breaks implements storage.Leaser, for all sources together.
func (s mapper) Breaks() (n uint64) {
	for i := range s.sources {
		if m := s.of(i); m != nil {
			n += m.Breaks()
		}
	}
	return n
}

// Unbroken implements storage.Leaser. Each source's number only grows: if the sum is unchanged, so
// is each number.
func (s mapper) Unbroken(breaks uint64) bool {
	now := make([]uint64, len(s.sources))
	sum := uint64(0)
	for i := range s.sources {
		if m := s.of(i); m != nil {
			now[i] = m.Breaks()
			sum += now[i]
		}
	}
	if sum != breaks {
		return false
	}
	for i := range s.sources {
		if m := s.of(i); m != nil && !m.Unbroken(now[i]) {
			return false
		}
	}
	return true
}

// LeaseStats implements storage.Leaser.
func (s mapper) LeaseStats() (all storage.LeaseStats) {
	for i := range s.sources {
		m := s.of(i)
		if m == nil {
			continue
		}
		x := m.LeaseStats()
		all.Held += x.Held
		all.Broken += x.Broken
		for reason, n := range x.Refused {
			if all.Refused == nil {
				all.Refused = map[string]int{}
			}
			all.Refused[reason] += n
		}
	}
	return all
}
