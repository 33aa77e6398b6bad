// Package sequential reads objects from front to back with as few requests as possible.
// A Reader is an io.ReaderAt over a storage.Sequential: reads that follow each other come
// from one stream.
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

// Storage is a storage that has streams.
type Storage interface {
	storage.Storage
	storage.Sequential
}

// Config says how an object is read.
type Config struct {
	// SkipBytes is the longest skip that is read and dropped. A longer one ends the
	// stream.
	SkipBytes int64
	// ReadBytes bounds one read that is made without a stream; 0 means no bound.
	ReadBytes int
}

// Reader reads one object. It opens a stream with the first read, and again after a step
// back. After a long skip it reads by single requests, and opens a stream once reads
// follow each other again. It is for one goroutine. Its reads end with the context that
// New was given.
type Reader struct {
	ctx    context.Context // of the reads, which the reader does not outlive
	from   Storage
	object storage.Object
	config Config

	stream io.ReadCloser   // nil: none is open
	plain  *storage.Reader // for reads without a stream; nil until there is one
	at     int64           // behind the last read: where the stream is, if one is open
	jumped bool            // a long skip was made, and no stream has been opened since
	near   int             // single reads since then that followed each other
}

var _ io.ReaderAt = (*Reader)(nil)

// New makes a reader of an object. It asks for nothing yet. The caller closes it.
func New(ctx context.Context, from Storage, o storage.Object, c Config) *Reader {
	return &Reader{ctx: ctx, from: from, object: o, config: c}
}

// nearReads is how many single reads follow each other before a stream is opened again:
// where large members alternate with small ones, each stream would be given up with up
// to some MiB of it on their way.
const nearReads = 2

// ReadAt fills p. At the object's end it gives what there is, and io.EOF. Errors are
// those of the storage, and of the context.
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

// read fills p, whose range lies inside of the object.
func (r *Reader) read(p []byte, off int64) (int, error) {
	if off < r.at { // a step back is a new beginning
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

// single is one request, or some.
func (r *Reader) single(p []byte, off int64) (int, error) {
	if r.plain == nil {
		r.plain = storage.NewReader(r.ctx, r.from, r.object, r.config.ReadBytes)
	}
	n, err := r.plain.ReadAt(p, off)
	r.at = off + int64(n)
	return n, err
}

// forward reads from the stream. What is skipped goes to p first.
func (r *Reader) forward(p []byte, off int64) (n int, err error) {
	if r.stream == nil {
		if r.stream, err = r.from.OpenSequential(r.ctx, r.object, off); err != nil {
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

// ended is the error of a stream that has ended too early.
func (r *Reader) ended(err error) error {
	if err == io.EOF {
		err = fmt.Errorf("%s: the stream ended at byte %d of %d: %w", r.object.Path, r.at, r.object.SizeBytes, io.ErrUnexpectedEOF)
	}
	return err
}

// end sees that the stream ends where the object does. One that was read to its end
// leaves its connection to the next.
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

// drop closes the stream. What Close fails with says nothing of bytes that were read.
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
