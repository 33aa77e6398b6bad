package storage

import (
	"context"
	"fmt"
	"io"
	"sync"
)

// Reader is one object as an io.ReaderAt, for one goroutine at a time. It makes a request for each
// read (NewReader), or reads from front to back with as few requests as possible (NewStream):
//
//	read  read   read        skip of more than SkipBytes           read
//	├────┬┄┄┄┄┬─────┬───┬┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┬───────┬──
//	│ stream: short skips are read and dropped │ it is closed      │ a request by itself
//
// A stream is opened with the first read, and again after a step back. After a long skip the Reader
// makes single requests, and opens a stream once reads are consecutive again. Reads end with the
// context of NewReader or NewStream.
type Reader struct {
	ctx     context.Context // for the reads; it outlives the reader
	storage Storage
	object  Object
	most    int // largest single read in bytes; 0 means no limit
	// buffer is what the storage fills. It is not the caller's p: after the context has ended, a
	// pending read may still write to its buffer, while p goes back to a decoder's pool.
	buffer []byte

	open      func(ctx context.Context, o Object, off int64) (io.ReadCloser, error) // nil: there are no streams
	skipBytes int64                                                                 // see NewStream
	stream    io.ReadCloser                                                         // nil: not open
	at        int64                                                                 // end of the last read, and position of the stream if one is open
	jumped    bool                                                                  // there was a long skip, and no stream has been opened since
	near      int                                                                   // consecutive single reads since then
}

var _ io.ReaderAt = (*Reader)(nil)

// NewReader returns a reader of an object whose reads are at most most bytes long; 0 means no
// limit. It makes no request yet. The caller closes the reader.
func NewReader(ctx context.Context, s Storage, o Object, most int) *Reader {
	return &Reader{ctx: ctx, storage: s, object: o, most: most}
}

// NewStream returns a reader that reads from streams of the storage (Caps.OpenSequential), if it
// has them. A skip of at most skipBytes is read and dropped; a longer one closes the stream. Reads
// without a stream are as for NewReader.
func NewStream(ctx context.Context, s Storage, o Object, skipBytes int64, most int) *Reader {
	r := NewReader(ctx, s, o, most)
	r.open, r.skipBytes = s.Caps().OpenSequential, skipBytes
	return r
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
	if r.open == nil {
		return r.single(p, off)
	}
	if off < r.at { // a step back starts over
		r.drop()
		r.jumped = false
	} else if skip := off - r.at; skip > r.skipBytes && (r.stream != nil || r.jumped) {
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

// single makes one request, or several if p is longer than the largest read.
func (r *Reader) single(p []byte, off int64) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = r.request(p[n:], off+int64(n))
		n += m
	}
	r.at = off + int64(n)
	return n, err
}

// request makes one read of the storage.
func (r *Reader) request(p []byte, off int64) (int, error) {
	n := len(p)
	if r.most > 0 {
		n = min(n, r.most)
	}
	if cap(r.buffer) < n {
		r.buffer = takeBuffer(n)
	}
	if err := ReadAt(r.ctx, r.storage, r.object, r.buffer[:n], off); err != nil {
		r.buffer = nil // a pending read may still write to it
		return 0, err
	}
	return copy(p, r.buffer[:n]), nil
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

// Close ends the stream, and frees the reader's memory. The reader can't be used afterwards.
func (r *Reader) Close() {
	r.drop()
	if b := r.buffer; cap(b) >= keptBufferBytes {
		buffers.Put(&b)
	}
	r.buffer = nil
}

// keptBufferBytes is large enough to read most files of a dataset of small files in one read.
const keptBufferBytes = 256 << 10

// buffers holds unused buffers of at least keptBufferBytes.
var buffers sync.Pool

func takeBuffer(n int) []byte {
	if b, ok := buffers.Get().(*[]byte); ok && cap(*b) >= n {
		return (*b)[:n]
	}
	return make([]byte, n, max(n, keptBufferBytes))
}
