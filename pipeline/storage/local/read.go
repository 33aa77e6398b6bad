package local

import (
	"errors"
	"fmt"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

// Submit implements storage.Storage.
func (s *Storage) Submit(reads []*storage.Read) {
	open := s.inflight.Begin(len(reads))
	var jobs []job
	requests := make([]*uring.Request, 0, len(reads))
	for _, r := range reads {
		err := r.Check()
		if !open {
			err = storage.ErrClosed
		}
		if err != nil {
			jobs = append(jobs, job{read: r, err: err})
			continue
		}
		f, ready, first := s.files.use(r)
		switch {
		case ready:
			requests = append(requests, s.request(f, r))
		case first:
			jobs = append(jobs, job{file: f})
		}
	}
	if len(requests) > 0 {
		s.engine.Submit(requests)
	}
	s.start(jobs)
}

// reading is a read of an open file that was submitted to the engine. It is reused, so that reading
// allocates nothing.
type reading struct {
	request uring.Request
	storage *Storage
	file    *file
	read    *storage.Read
}

// request returns the engine's request for a read of an open file.
func (s *Storage) request(f *file, r *storage.Read) *uring.Request {
	x, _ := s.readings.Get().(*reading)
	if x == nil {
		x = new(reading)
		x.request.Done = x.done
	}
	x.storage, x.file, x.read = s, f, r
	x.request.File, x.request.OffsetBytes, x.request.Buf, x.request.Wanted = f.opened, r.OffsetBytes, r.Buf, r.Wanted
	return &x.request
}

// done is called by the engine, which does not use the request afterwards.
func (x *reading) done(n int, err error) {
	s, f, r := x.storage, x.file, x.read
	x.storage, x.file, x.read, x.request.File, x.request.Buf, x.request.Wanted = nil, nil, nil, nil, nil, nil
	s.readings.Put(x)
	s.completed(f, r, n, err)
}

// completed is called by the engine, which has verified the file.
func (s *Storage) completed(f *file, r *storage.Read, n int, err error) {
	if err == uring.ErrUnwanted {
		err = storage.ErrUnwanted
	}
	if err == nil && n < len(r.Buf) {
		err = fmt.Errorf("the file ended after %d bytes: %w", n, storage.ErrChanged)
	}
	s.files.release(f, errors.Is(err, storage.ErrChanged))
	s.done(r, err)
}

// done reports the result to a read's submitter.
func (s *Storage) done(r *storage.Read, err error) {
	r.Done(r.Failure(err))
	s.inflight.End()
}
