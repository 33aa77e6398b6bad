package verify

import (
	"context"
	"io"
	"math"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
	"github.com/lsiofs/lsiofs/pipeline/storage/sequential"
)

// reading reads objects front to back, one after the other. It is an io.ReaderAt of the object that
// was opened last, for one goroutine. Skipped bytes are read too.
type reading interface {
	io.ReaderAt
	// open switches to another object. more may be called for the object after it, if any.
	open(o storage.Object, more func() (storage.Object, bool)) error
	// rest reads the object to its end.
	rest() error
	// failed returns the storage's error for the object, or nil.
	failed() error
	close()
}

var (
	_ reading                  = (*forward)(nil)
	_ reading                  = (*streamed)(nil)
	_ format.PortionedReaderAt = (*streamed)(nil)
)

// streamed is a reading from a storage that has streams: each object is one request.
type streamed struct {
	ctx      context.Context
	from     storage.Storage
	pass     profile.Pass
	arrived  func(n int64) // called with the number of bytes read for the first time
	object   storage.Object
	reader   *sequential.Reader // of object; nil before the first
	reached  int64              // bytes of object before this offset were reported to arrived
	failure  error              // sticky
	leftover []byte             // buffer for rest
}

func newStreamed(ctx context.Context, from storage.Storage, p profile.Pass, arrived func(n int64)) *streamed {
	return &streamed{ctx: ctx, from: from, pass: p, arrived: arrived}
}

func (s *streamed) open(o storage.Object, _ func() (storage.Object, bool)) error {
	s.close()
	s.object, s.reached, s.failure = o, 0, nil
	s.reader = sequential.New(s.ctx, s.from, o, sequential.Config{SkipBytes: math.MaxInt64})
	return s.ctx.Err()
}

// ReadAt fills p, or as much as the object has, with io.EOF.
func (s *streamed) ReadAt(p []byte, off int64) (int, error) {
	if s.failure != nil {
		return 0, s.failure
	}
	n, err := s.reader.ReadAt(p, off)
	if end := off + int64(n); n > 0 && end > s.reached {
		s.arrived(end - s.reached)
		s.reached = end
	}
	if err != nil && err != io.EOF && s.ctx.Err() == nil {
		s.failure = err
	}
	return n, err
}

// Portions implements format.PortionedReaderAt: everything is read.
func (s *streamed) Portions() format.Portions {
	return format.Portions{ReadBytes: int(s.pass.StreamBytes), SkipBytes: math.MaxInt64, HeaderBytes: s.pass.HeaderBytes}
}

func (s *streamed) rest() error {
	if s.reached == s.object.SizeBytes {
		return nil
	}
	if s.leftover == nil {
		s.leftover = make([]byte, s.pass.StreamBytes)
	}
	n := min(int64(len(s.leftover)), s.object.SizeBytes)
	_, err := s.ReadAt(s.leftover[:n], s.object.SizeBytes-n)
	return err
}

func (s *streamed) failed() error { return s.failure }

func (s *streamed) close() {
	if s.reader != nil {
		s.reader.Close()
	}
}
