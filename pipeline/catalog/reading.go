package catalog

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
	"github.com/lsiofs/lsiofs/pipeline/storage/sequential"
	"github.com/lsiofs/lsiofs/pipeline/unpack"
	"github.com/lsiofs/lsiofs/pipeline/unpack/formats"
)

// shardReader reads a shard for a pass. It remembers the storage's failure, so that
// it is told from what a format says of the bytes. It has three ways to read:
//
//   - as one stream, where the storage has streams and the profile asks for them
//   - what memory holds, without asking the storage's queues
//   - of an object that is put together from files, what is around these
//
// It counts how far into the shard reads have come, which is what progress is measured
// by: passes skip over most of a tar.
type shardReader struct {
	reader   reader
	files    storage.Storage // knows what memory holds, and what is around files
	object   storage.Object
	failure  error
	portions unpack.Portions
	reached  int64
	told     func(reached int64) // after each read
	counter  *atomic.Int64       // of all shards together

	streams  bool // the storage has streams: each read from elsewhere is a request
	opened   bool
	resident storage.Resident // nil where there is none
	outline  io.ReaderAt      // likewise
}

var (
	_ unpack.ResidentReaderAt  = (*shardReader)(nil)
	_ unpack.PortionedReaderAt = (*shardReader)(nil)
)

// reader is a way to read an object.
type reader interface {
	io.ReaderAt
	Close()
}

// streamsOf gives a storage whose shards are to be read as streams, nil otherwise.
func streamsOf(s storage.Storage, p profile.Pass) sequential.Storage {
	if streams, ok := s.(sequential.Storage); ok && p.StreamBytes > 0 {
		return streams
	}
	return nil
}

// open makes a reader of one shard, which is closed by the caller even after an error.
func (p *pass) open(ctx context.Context, c discover.Shard) (*shardReader, error) {
	o, b := c.Object, p.portions
	r := &shardReader{
		files: p.storage, object: o, streams: p.streams != nil, told: func(int64) {}, counter: &p.progress.bytes,
		portions: unpack.Portions{ReadBytes: int(b.ReadBytes), SkipBytes: b.SkipBytes, HeaderBytes: b.HeaderBytes},
	}
	headed, onlyHead := p.unpacker.(unpack.Headed)
	switch onlyHead = onlyHead && c.Codec == nil; {
	case p.streams == nil:
		r.reader = storage.NewReader(ctx, p.reads, o, int(b.ReadBytes))
	case onlyHead: // more than that would be on its way before the stream is given up
		r.portions.ReadBytes = headed.HeadBytes()
		r.reader = storage.NewReader(ctx, p.reads, o, int(b.ReadBytes))
	default:
		r.portions.ReadBytes = int(b.StreamBytes)
		r.reader = sequential.New(ctx, p.streams, o, sequential.Config{SkipBytes: b.SkipBytes, ReadBytes: int(b.ReadBytes)})
	}
	var err error
	if made, ok := p.storage.(storage.Outliner); ok {
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

// codec is the codec that a shard's first bytes show. They stay in memory, so that they are not
// read again: of a shard that is read in one portion, all of them.
func (r *shardReader) codec(f unpack.Format, c discover.Shard) (unpack.Codec, error) {
	size := min(r.object.SizeBytes, formats.CodecHeadBytes)
	if size == 0 || r.outline != nil || !unpack.ToldByBytes(f) {
		return c.Codec, nil
	}
	least := size
	if _, headed := f.(unpack.Headed); !headed && !r.streams && r.object.SizeBytes <= int64(r.portions.ReadBytes) {
		least = r.object.SizeBytes
	}
	head := make([]byte, size)
	// A shard that is read whole is not opened a second time to see whether it is resident.
	if least < r.object.SizeBytes && !r.streams && r.Holds(0, size) && r.ReadResident(head, 0) {
		return formats.CodecOf(f, c.Object.Path, head), nil
	}
	h := &headReader{reader: r.reader, sizeBytes: r.object.SizeBytes, growing: true, leastBytes: least}
	defer func() { h.growing = false }()
	r.reader = h
	if _, err := r.ReadAt(head, 0); err != nil && err != io.EOF {
		return nil, err
	}
	return formats.CodecOf(f, c.Object.Path, head), nil
}

// advance tells that the shard is done up to an offset.
func (r *shardReader) advance(to int64) {
	if to > r.reached {
		r.counter.Add(to - r.reached)
		r.reached = to
		r.told(to)
	}
}

// Portions implements unpack.PortionedReaderAt.
func (r *shardReader) Portions() unpack.Portions { return r.portions }

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
