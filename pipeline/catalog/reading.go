package catalog

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
	"github.com/lsiofs/lsiofs/pipeline/storage/sequential"
)

// shardReader reads a shard for a pass. It remembers the storage's failure to distinguish it from
// errors of the format. It has three ways to read:
//
//   - as one stream, if the storage has streams and the profile asks for them
//   - from memory if the bytes are resident, bypassing the storage's queues
//   - from the outline, if the object is assembled from files: the bytes around these
//
// It counts how far into the shard reads have come, which is the measure of progress: passes skip
// most of a tar.
type shardReader struct {
	reader   reader
	files    storage.Storage // for resident bytes, and outlines
	object   storage.Object
	failure  error
	portions format.Portions
	reached  int64
	told     func(reached int64) // called after each read
	counter  *atomic.Int64       // of all shards together

	streams  bool // the storage has streams: each non-sequential read is a request
	opened   bool
	resident storage.Resident // nil if there is none
	outline  io.ReaderAt      // likewise
}

var (
	_ format.ResidentReaderAt  = (*shardReader)(nil)
	_ format.PortionedReaderAt = (*shardReader)(nil)
)

// reader is a way to read an object.
type reader interface {
	io.ReaderAt
	Close()
}

// streamsOf returns s if its shards are to be read as streams, nil otherwise.
func streamsOf(s storage.Storage, p profile.Pass) storage.Storage {
	if p.StreamBytes > 0 && s.Caps().OpenSequential != nil {
		return s
	}
	return nil
}

// open returns a reader of one shard. The caller closes it even after an error.
func (p *pass) open(ctx context.Context, c discover.Shard) (*shardReader, error) {
	o, b := c.Object, p.portions
	r := &shardReader{
		files: p.storage, object: o, streams: p.streams != nil, told: func(int64) {}, counter: &p.progress.bytes,
		portions: format.Portions{ReadBytes: int(b.ReadBytes), SkipBytes: b.SkipBytes, HeaderBytes: b.HeaderBytes},
	}
	headed, onlyHead := p.unpacker.(format.Headed)
	switch onlyHead = onlyHead && c.Codec == nil; {
	case p.streams == nil:
		r.reader = storage.NewReader(ctx, p.reads, o, int(b.ReadBytes))
	case onlyHead: // a stream would have more than the head in flight before it is cancelled
		r.portions.ReadBytes = headed.HeadBytes()
		r.reader = storage.NewReader(ctx, p.reads, o, int(b.ReadBytes))
	default:
		r.portions.ReadBytes = int(b.StreamBytes)
		r.reader = sequential.New(ctx, p.streams, o, sequential.Config{SkipBytes: b.SkipBytes, ReadBytes: int(b.ReadBytes)})
	}
	var err error
	if outline := p.storage.Caps().Outline; outline != nil {
		r.outline, err = outline(o)
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

// codec returns the codec that a shard's first bytes show. These stay in memory so that they are
// not read again; if the shard is read in one portion, so do all its bytes.
func (r *shardReader) codec(f format.Format, c discover.Shard) (format.Codec, error) {
	size := min(r.object.SizeBytes, formats.CodecHeadBytes)
	if size == 0 || r.outline != nil || !format.ToldByBytes(f) {
		return c.Codec, nil
	}
	least := size
	if _, headed := f.(format.Headed); !headed && !r.streams && r.object.SizeBytes <= int64(r.portions.ReadBytes) {
		least = r.object.SizeBytes
	}
	head := make([]byte, size)
	// A shard that is read whole is not opened a second time to find out whether it is resident.
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

// advance marks the shard as done up to an offset.
func (r *shardReader) advance(to int64) {
	if to > r.reached {
		r.counter.Add(to - r.reached)
		r.reached = to
		r.told(to)
	}
}

// Portions implements format.PortionedReaderAt.
func (r *shardReader) Portions() format.Portions { return r.portions }

// Holds implements format.ResidentReaderAt. The first call opens the file, because it is never
// called for most small shards. A failure to open it is not reported: the next ordinary read finds
// the same.
func (r *shardReader) Holds(offsetBytes, sizeBytes int64) bool {
	if r.outline != nil {
		return true
	}
	if !r.opened {
		r.opened = true
		if open := r.files.Caps().OpenResident; open != nil {
			r.resident, _ = open(r.object)
		}
	}
	return r.resident != nil && r.resident.Holds(offsetBytes, sizeBytes)
}

// ReadResident implements format.ResidentReaderAt.
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
