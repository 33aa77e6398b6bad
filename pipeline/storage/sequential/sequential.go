// Package sequential reads objects from front to back with as few requests as possible. A Reader is
// an io.ReaderAt for a storage with streams: consecutive reads come from one stream.
//
//	read  read   read        skip of more than Config.SkipBytes    read
//	├────┬┄┄┄┄┬─────┬───┬┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┬───────┬──
//	│ stream: short skips are read and dropped │ it is closed      │ a request by itself
package sequential

import (
	"context"
	"fmt"
	"io"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Config is how an object is read.
type Config struct {
	// SkipBytes is the longest skip that is read and dropped. A longer one closes the stream.
	SkipBytes int64
	// ReadBytes bounds a single read without a stream; 0 means no bound.
	ReadBytes int
}

// Reader reads one object. It opens a stream with the first read, and again after a step back.
// After a long skip it makes single requests, and opens a stream once reads are consecutive again.
// It must not be used concurrently. Its reads end with the context passed to New.
type Reader struct {
	ctx    context.Context // for the reads; it outlives the reader
	from   storage.Storage
	open   func(ctx context.Context, o storage.Object, off int64) (io.ReadCloser, error)
	object storage.Object
	config Config

	stream io.ReadCloser   // nil: not open
	plain  *storage.Reader // for reads without a stream; nil until needed
	at     int64           // end of the last read, and position of the stream if one is open
	jumped bool            // there was a long skip, and no stream has been opened since
	near   int             // consecutive single reads since then
}

var _ io.ReaderAt = (*Reader)(nil)

// New returns a reader of an object of a storage that has streams (storage.Caps.OpenSequential). It
// makes no request yet. The caller closes the reader.
func New(ctx context.Context, from storage.Storage, o storage.Object, c Config) *Reader {
	return &Reader{ctx: ctx, from: from, open: from.Caps().OpenSequential, object: o, config: c}
}

// nearReads is how many consecutive single reads it takes before a stream is opened again: if large
// members alternate with small ones, each stream would be closed with up to some MiB of it in
// transit.
const nearReads = 2

// ReadAt fills p. At the object's end it returns what is left, and io.EOF. Errors come from the
// storage, or from the context.
func (r *Reader) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("%s: read at offset %d", r.object.Path, off)
	}
	want := min(int64(len(p)), r.object.SizeBytes-off)
	switch {
	case off >= r.object.SizeBytes:
		return 0, io.EOF
	case want == 0:
		return 0, nil
	}
	n, err := r.read(p[:want], off)
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// read fills p, whose range is within the object.
func (r *Reader) read(p []byte, off int64) (int, error) {
	if off < r.at { // a step back starts over
		r.drop()
		r.jumped = false
	} else if skip := off - r.at; skip > r.config.SkipBytes && (r.stream != nil || r.jumped) {
		r.drop()
		r.jumped, r.near = true, 0
	} else if r.jumped {
		r.near++
	}
	if r.stream == nil && r.jumped && r.near < nearReads {
		return r.single(p, off)
	}
	return r.forward(p, off)
}

// single makes one request, or several.
func (r *Reader) single(p []byte, off int64) (int, error) {
	if r.plain == nil {
		r.plain = storage.NewReader(r.ctx, r.from, r.object, r.config.ReadBytes)
	}
	n, err := r.plain.ReadAt(p, off)
	r.at = off + int64(n)
	return n, err
}

// forward reads from the stream. Skipped bytes are read into p first.
func (r *Reader) forward(p []byte, off int64) (n int, err error) {
	if r.stream == nil {
		if r.stream, err = r.open(r.ctx, r.object, off); err != nil {
			return 0, err
		}
		r.at, r.jumped = off, false
	}
	for r.at < off {
		n, err := r.stream.Read(p[:min(int64(len(p)), off-r.at)])
		r.at += int64(n)
		if err != nil && r.at < off {
			return 0, r.ended(err)
		}
	}
	for n < len(p) {
		m, err := r.stream.Read(p[n:])
		n, r.at = n+m, r.at+int64(m)
		if err != nil && n < len(p) {
			return n, r.ended(err)
		}
	}
	if r.at == r.object.SizeBytes {
		return n, r.end()
	}
	return n, nil
}

// ended returns the error of a stream that has ended too early.
func (r *Reader) ended(err error) error {
	if err == io.EOF {
		err = fmt.Errorf("%s: the stream ended at byte %d of %d: %w", r.object.Path, r.at, r.object.SizeBytes, io.ErrUnexpectedEOF)
	}
	return err
}

// end checks that the stream ends where the object does. A stream that was read to its end leaves
// its connection to the next one.
func (r *Reader) end() error {
	var more [1]byte
	switch n, err := r.stream.Read(more[:]); {
	case n > 0:
		return fmt.Errorf("%s: the stream has more than the object's %d bytes", r.object.Path, r.object.SizeBytes)
	case err != io.EOF:
		return err
	}
	r.drop()
	return nil
}

// drop closes the stream. An error of Close does not concern the bytes that were read.
func (r *Reader) drop() {
	if r.stream != nil {
		_ = r.stream.Close()
		r.stream = nil
	}
}

// Close ends the stream. The reader can't be used afterwards.
func (r *Reader) Close() {
	r.drop()
	if r.plain != nil {
		r.plain.Close()
	}
}
