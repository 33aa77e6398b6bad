package catalog

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// objectReader is one object as an io.ReaderAt. It counts how far into the
// object reads have come, which is what progress is measured by: passes skip
// over most of a tar.
type objectReader struct {
	ctx     context.Context // of the pass, which the reader does not outlive
	storage storage.Storage
	object  storage.Object
	reached int64
	counter *atomic.Int64 // of all objects together; may be nil
	most    int           // bytes of one read of the storage; 0: as many as are wanted
	// buffer is what the storage fills. It is not the caller's p: when the
	// context ends, a read that is under way may still write to its buffer,
	// and p goes back to a decoder's pool.
	buffer []byte
}

var _ io.ReaderAt = (*objectReader)(nil)

// ReadAt fills p, or as much as the object has with io.EOF. Calls come from one
// goroutine at a time.
func (r *objectReader) ReadAt(p []byte, off int64) (int, error) {
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

// read is one read of the storage, of no more than r.most.
func (r *objectReader) read(p []byte, off int64) (int, error) {
	n := len(p)
	if r.most > 0 {
		n = min(n, r.most)
	}
	if cap(r.buffer) < n {
		r.buffer = takeBuffer(n)
	}
	if err := storage.ReadAt(r.ctx, r.storage, r.object, r.buffer[:n], off); err != nil {
		r.buffer = nil // it may still be written to
		return 0, err
	}
	copy(p, r.buffer[:n])
	r.advance(off + int64(n))
	return n, nil
}

// close gives the buffer back.
func (r *objectReader) close() {
	if b := r.buffer; cap(b) >= keptBufferBytes {
		buffers.Put(&b)
	}
	r.buffer = nil
}

// keptBufferBytes holds most files of a dataset of small ones, in one read.
const keptBufferBytes = 256 << 10

// buffers are of keptBufferBytes at least, and not in use.
var buffers sync.Pool

func takeBuffer(n int) []byte {
	if b, ok := buffers.Get().(*[]byte); ok && cap(*b) >= n {
		return (*b)[:n]
	}
	return make([]byte, n, max(n, keptBufferBytes))
}

// advance tells that the object is done up to an offset.
func (r *objectReader) advance(to int64) {
	if to > r.reached {
		if r.counter != nil {
			r.counter.Add(to - r.reached)
		}
		r.reached = to
	}
}

// shardReader is an objectReader that remembers the storage's failure, so that
// it is told from what a format says of the bytes, and that reads what memory
// holds without asking the storage's queues. Of an object that is put together
// from files it reads what is around these.
type shardReader struct {
	objectReader
	files   storage.Storage // knows what memory holds, and what is around files
	failure error
	pass    profile.Pass

	opened   bool
	resident storage.Resident // nil where there is none
	outline  io.ReaderAt      // likewise
}

var (
	_ unpack.ResidentReaderAt  = (*shardReader)(nil)
	_ unpack.PortionedReaderAt = (*shardReader)(nil)
)

func newShardReader(ctx context.Context, files, reads storage.Storage, o storage.Object, pass profile.Pass, counter *atomic.Int64) (*shardReader, error) {
	r := &shardReader{files: files, pass: pass, objectReader: objectReader{ctx: ctx, storage: reads, object: o, counter: counter, most: int(pass.ReadBytes)}}
	var err error
	if made, ok := files.(storage.Outliner); ok {
		r.outline, err = made.Outline(o)
	}
	return r, err
}

func (r *shardReader) ReadAt(p []byte, off int64) (int, error) {
	if r.outline != nil {
		return r.outline.ReadAt(p, off)
	}
	n, err := r.objectReader.ReadAt(p, off)
	if err != nil && n < len(p) && off+int64(n) < r.object.SizeBytes {
		r.failure = err
	}
	return n, err
}

// Portions implements unpack.PortionedReaderAt.
func (r *shardReader) Portions() unpack.Portions {
	return unpack.Portions{ReadBytes: int(r.pass.ReadBytes), SkipBytes: r.pass.SkipBytes, HeaderBytes: r.pass.HeaderBytes}
}

// Holds implements unpack.ResidentReaderAt. The file is opened by the first
// call: of most small shards nobody asks. That it can't be is not told: the next
// ordinary read finds the same.
func (r *shardReader) Holds(offsetBytes, sizeBytes int64) bool {
	if r.outline != nil {
		return true
	}
	if !r.opened {
		r.opened = true
		if s, ok := r.files.(storage.ResidentOpener); ok {
			r.resident, _ = s.OpenResident(r.object)
		}
	}
	return r.resident != nil && r.resident.Holds(offsetBytes, sizeBytes)
}

// ReadResident implements unpack.ResidentReaderAt.
func (r *shardReader) ReadResident(p []byte, offsetBytes int64) bool {
	if r.outline != nil {
		_, err := r.outline.ReadAt(p, offsetBytes)
		return err == nil
	}
	return r.resident.ReadAt(p, offsetBytes)
}

func (r *shardReader) close() {
	r.objectReader.close()
	if r.resident != nil {
		_ = r.resident.Close()
	}
}
