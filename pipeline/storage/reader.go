package storage

import (
	"context"
	"fmt"
	"io"
	"sync"
)

// Reader is one object as an io.ReaderAt, for one goroutine at a time. It bounds the
// size of its reads from storage.
type Reader struct {
	ctx     context.Context // for the reads; it outlives the reader
	storage Storage
	object  Object
	most    int // largest read in bytes; 0 means no limit
	// buffer is what the storage fills. It is not the caller's p: after the context has ended, a
	// pending read may still write to its buffer, while p goes back to a decoder's pool.
	buffer []byte
}

var _ io.ReaderAt = (*Reader)(nil)

// NewReader returns a reader of an object whose reads are at most most bytes long; 0 means no
// limit. The reads end with ctx. The caller closes the reader.
func NewReader(ctx context.Context, s Storage, o Object, most int) *Reader {
	return &Reader{ctx: ctx, storage: s, object: o, most: most}
}

// ReadAt fills p. At the object's end it returns what is left, and io.EOF.
func (r *Reader) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("%s: read at offset %d", r.object.Path, off)
	}
	left := r.object.SizeBytes - off
	if left <= 0 {
		return 0, io.EOF
	}
	want := int(min(int64(len(p)), left))
	n := 0
	for n < want {
		m, err := r.read(p[n:want], off+int64(n))
		if err != nil {
			return n, err
		}
		n += m
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// read makes one read of the storage.
func (r *Reader) read(p []byte, off int64) (int, error) {
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

// Close frees the reader's memory. The reader can't be used afterwards.
func (r *Reader) Close() {
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
