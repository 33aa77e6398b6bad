package refs

import (
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Submit implements storage.Storage.
func (s *Storage) Submit(reads []*storage.Read) {
	var below []*storage.Read
	var own []func()
	for _, r := range reads {
		counted := s.begin()
		x, err := source{}, errClosed
		if counted {
			if err = check(r); err == nil {
				x, err = s.find(r.Object)
			}
		}
		done := func(err error) {
			if counted {
				defer s.underWay.Done()
			}
			if err == nil {
				err = x.check(r.Buf)
			}
			r.Done(of(r, err))
		}
		if err != nil || x.own {
			own = append(own, func() { done(copyInline(r, x, err)) })
			continue
		}
		below = append(below, &storage.Read{Object: x.of, OffsetBytes: x.offset + r.OffsetBytes, Epoch: r.Epoch, Buf: r.Buf, Wanted: r.Wanted, Done: done})
	}
	if len(own) > 0 {
		go func() {
			for _, one := range own {
				one()
			}
		}()
	}
	if len(below) > 0 {
		s.under.Submit(below)
	}
}

// begin reports whether the storage is open, and if so counts a read, which Close waits for.
func (s *Storage) begin() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !s.closed {
		s.underWay.Add(1)
	}
	return !s.closed
}

// copyInline completes a read of inline bytes, or one that has failed.
func copyInline(r *storage.Read, x source, err error) error {
	if err != nil {
		return err
	}
	if r.Wanted != nil && !r.Wanted() {
		return storage.ErrUnwanted
	}
	copy(r.Buf, x.inline[r.OffsetBytes:])
	return nil
}

// of adds the location of a read to an error.
func of(r *storage.Read, err error) error {
	if err == nil || err == storage.ErrUnwanted {
		return err
	}
	return &storage.Error{Object: r.Object.Path, OffsetBytes: r.OffsetBytes, SizeBytes: int64(len(r.Buf)), Err: err}
}
