package local

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

var (
	errEmptyBuffer = errors.New("a read needs a buffer")
	errClosed      = fmt.Errorf("the storage is closed: %w", fs.ErrClosed)
)

// Submit implements storage.Storage.
func (s *Storage) Submit(reads []*storage.Read) {
	accepted := s.accept(reads)
	var jobs []job
	requests := make([]*uring.Request, 0, len(reads))
	for _, r := range reads {
		if err := check(r, accepted); err != nil {
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

// accept counts reads as submitted. It returns false after Close; the reads count anyway until they
// have been completed with an error.
func (s *Storage) accept(reads []*storage.Read) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underWay += len(reads)
	return !s.closed
}

// check returns an error for a read that can't be attempted at all.
func check(r *storage.Read, accepted bool) error {
	size := int64(len(r.Buf))
	switch {
	case !accepted:
		return errClosed
	case size == 0:
		return errEmptyBuffer
	case r.OffsetBytes < 0 || size > r.Object.SizeBytes || r.OffsetBytes > r.Object.SizeBytes-size:
		return fmt.Errorf("the range is not inside of the object, which has %d bytes", r.Object.SizeBytes)
	}
	return nil
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
	if err != nil && err != storage.ErrUnwanted {
		err = &storage.Error{Object: r.Object.Path, OffsetBytes: r.OffsetBytes, SizeBytes: int64(len(r.Buf)), Err: err}
	}
	r.Done(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underWay--
	if s.underWay == 0 {
		s.quiet.Broadcast()
	}
}
