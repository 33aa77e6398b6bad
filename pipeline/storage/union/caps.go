package union

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

// Caps implements storage.Storage. Most capabilities are there if one source has them: objects of
// the other sources are then read as if it were not. Those that a caller uses instead of reading
// are there if all sources have them. Nothing is joined: sources list objects that are joined
// already.
func (s *Storage) Caps() storage.Caps {
	c := storage.Caps{}
	if s.any(func(x *storage.Caps) bool { return x.StatStable != nil }) {
		c.StatStable = s.statStable
	}
	if s.any(func(x *storage.Caps) bool { return x.Omitted != nil }) {
		c.Omitted = s.omitted
	}
	if s.any(func(x *storage.Caps) bool { return x.Parts != nil }) {
		c.Parts = s.parts
	}
	if s.all(func(x *storage.Caps) bool { return x.Outline != nil }) {
		c.Outline = s.outline
	}
	if s.any(func(x *storage.Caps) bool { return x.Check != nil }) {
		c.Check = s.check
	}
	if s.all(func(x *storage.Caps) bool { return x.Verifier != nil }) {
		c.Verifier = verifier{s}
	}
	if s.any(func(x *storage.Caps) bool { return x.Mapper != nil }) {
		c.Mapper = mapper{s}
	}
	if s.any(func(x *storage.Caps) bool { return x.OpenResident != nil }) {
		c.OpenResident = s.openResident
	}
	if s.any(func(x *storage.Caps) bool { return x.OpenSequential != nil }) {
		c.OpenSequential = s.openSequential
	}
	if s.any(func(x *storage.Caps) bool { return x.Uncached != nil }) {
		c.Uncached = s.uncached
	}
	if s.any(func(x *storage.Caps) bool { return x.Fill != nil }) {
		c.Fill = s.fill
	}
	if s.hints != nil {
		c.Hints = s.hints
	}
	if s.all(func(x *storage.Caps) bool { return x.Status != nil }) {
		c.Status = s.status
	}
	if s.any(func(x *storage.Caps) bool { return x.AdjustProfile != nil }) {
		c.AdjustProfile = s.adjustProfile
	}
	if s.any(func(x *storage.Caps) bool { return x.HeldBytes != nil }) {
		c.HeldBytes = s.heldBytes
	}
	return c
}

// any reports whether a source has a capability.
func (s *Storage) any(has func(*storage.Caps) bool) bool {
	for i := range s.caps {
		if has(&s.caps[i]) {
			return true
		}
	}
	return false
}

// all reports whether all sources have a capability.
func (s *Storage) all(has func(*storage.Caps) bool) bool {
	return !s.any(func(x *storage.Caps) bool { return !has(x) })
}

func (s *Storage) omitted() (list []storage.Omission) {
	for i, x := range s.sources {
		if s.caps[i].Omitted == nil {
			continue
		}
		for _, o := range s.caps[i].Omitted() {
			if len(list) == storage.MaxOmitted {
				return list
			}
			list = append(list, storage.Omission{Path: x.Name + "/" + o.Path, Reason: o.Reason})
		}
	}
	return list
}

func (s *Storage) parts(path string) (list []string) {
	i, rest := s.of(path)
	if i < 0 || s.caps[i].Parts == nil {
		return nil
	}
	for _, part := range s.caps[i].Parts(rest) {
		list = append(list, s.sources[i].Name+"/"+part)
	}
	return list
}

func (s *Storage) outline(o storage.Object) (io.ReaderAt, error) {
	i, below := s.below(o)
	if i < 0 {
		return nil, &storage.Error{Object: o.Path, SizeBytes: o.SizeBytes, Err: errNoSource}
	}
	r, err := s.caps[i].Outline(below)
	return r, s.named(i, err)
}

func (s *Storage) check(ctx context.Context, o storage.Object) error {
	i, below := s.below(o)
	if i < 0 {
		return &storage.Error{Object: o.Path, SizeBytes: o.SizeBytes, Err: errNoSource}
	}
	if s.caps[i].Check == nil {
		return nil
	}
	return s.named(i, s.caps[i].Check(ctx, below))
}

// verifier is for sources that all have one.
type verifier struct{ *Storage }

func (v verifier) AuditBytes(o storage.Object) int64 {
	i, below := v.below(o)
	if i < 0 {
		return 0
	}
	return v.caps[i].Verifier.AuditBytes(below)
}

func (v verifier) Audit(ctx context.Context, o storage.Object, damage func(reason string), read func(bytes int64)) (decodedBytes int64, err error) {
	i, below := v.below(o)
	if i < 0 {
		return 0, &storage.Error{Object: o.Path, SizeBytes: o.SizeBytes, Err: errNoSource}
	}
	decodedBytes, err = v.caps[i].Verifier.Audit(ctx, below, damage, read)
	return decodedBytes, v.named(i, err)
}

// status adds up the sources.
func (s *Storage) status() (all uring.Status) {
	for i := range s.caps {
		x := s.caps[i].Status()
		all.Engine, all.Reason = cmp.Or(all.Engine, x.Engine), cmp.Or(all.Reason, x.Reason)
		all.InFlight += x.InFlight
		all.InFlightBytes += x.InFlightBytes
		all.Reads += x.Reads
		all.ReadBytes += x.ReadBytes
		all.Errors += x.Errors
		all.Unwanted += x.Unwanted
		all.CachedReads += x.CachedReads
		all.DirectReads += x.DirectReads
		all.RemoteReads += x.RemoteReads
		all.Stuck += x.Stuck
	}
	return all
}

func (s *Storage) adjustProfile(p storage.Profile) storage.Profile {
	for i := range s.caps {
		if adjust := s.caps[i].AdjustProfile; adjust != nil {
			p = adjust(p)
		}
	}
	return p
}

func (s *Storage) heldBytes() (n int64) {
	for i := range s.caps {
		if held := s.caps[i].HeldBytes; held != nil {
			n += held()
		}
	}
	return n
}

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
