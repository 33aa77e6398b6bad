package refs

import (
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Submit implements storage.Storage.
func (s *Storage) Submit(reads []*storage.Read) {
	var below []*storage.Read
	var own []func()
	open := s.inflight.Begin(len(reads))
	for _, r := range reads {
		x, err := source{}, storage.ErrClosed
		if open {
			if err = r.Check(); err == nil {
				x, err = s.find(r.Object)
			}
		}
		done := func(err error) {
			defer s.inflight.End()
			if err == nil {
				err = x.check(r.Buf)
			}
			r.Done(r.Failure(err))
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
