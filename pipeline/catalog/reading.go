package catalog

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// shardReader reads a shard for a pass. It remembers the storage's failure, so that
// it is told from what a format says of the bytes, and reads what memory
// holds without asking the storage's queues. Of an object that is put together
// from files it reads what is around these. It counts how far into the shard reads
// have come, which is what progress is measured by: passes skip over most of a tar.
type shardReader struct {
	reader  *storage.Reader
	files   storage.Storage // knows what memory holds, and what is around files
	object  storage.Object
	failure error
	pass    profile.Pass
	reached int64
	counter *atomic.Int64 // of all shards together

	opened   bool
	resident storage.Resident // nil where there is none
	outline  io.ReaderAt      // likewise
}

var (
	_ unpack.ResidentReaderAt  = (*shardReader)(nil)
	_ unpack.PortionedReaderAt = (*shardReader)(nil)
)

func newShardReader(ctx context.Context, files, reads storage.Storage, o storage.Object, pass profile.Pass, counter *atomic.Int64) (*shardReader, error) {
	r := &shardReader{reader: storage.NewReader(ctx, reads, o, int(pass.ReadBytes)), files: files, object: o, pass: pass, counter: counter}
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
	n, err := r.reader.ReadAt(p, off)
	if n > 0 {
		r.advance(off + int64(n))
	}
	if err != nil && n < len(p) && off+int64(n) < r.object.SizeBytes {
		r.failure = err
	}
	return n, err
}

// advance tells that the shard is done up to an offset.
func (r *shardReader) advance(to int64) {
	if to > r.reached {
		r.counter.Add(to - r.reached)
		r.reached = to
	}
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
	r.reader.Close()
	if r.resident != nil {
		_ = r.resident.Close()
	}
}
