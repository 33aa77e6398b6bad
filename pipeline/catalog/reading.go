package catalog

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Described returns the format of a shard, with the file beside it that describes it, if there is one
// (format.Paired). The caller calls closes when it does not need the format any more.
func Described(ctx context.Context, reads storage.Storage, f format.Format, beside storage.Object) (described format.Format, closes func()) {
	pairs, ok := f.(format.Paired)
	if !ok || beside.Path == "" {
		return f, func() {}
	}
	r := storage.NewReader(ctx, reads, beside, 0)
	return pairs.With(beside.Path, r, beside.SizeBytes), r.Close
}

// shardReader reads a shard for a pass. It remembers the storage's failure to distinguish it from
// errors of the format. It has three ways to read:
//
//   - as one stream, if the storage has streams and the profile asks for them
//   - from memory if the bytes are resident, bypassing the storage's queues
//   - from the outline, if the object is assembled from files: the bytes around these
//
// It counts how far into the shard reads have come, which is the measure of progress: passes skip
// most of a tar. Of a shard that is read in ranges, it counts the bytes.
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
	ranges   bool // it is read in no order, each byte about once
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
func streamsOf(s storage.Storage, p storage.Pass) storage.Storage {
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
	_, r.ranges = c.Codec.(format.RangeCodec)
	headed, onlyHead := p.unpacker.(format.Headed)
	switch onlyHead = onlyHead && c.Codec == nil; {
	case p.streams == nil:
		r.reader = storage.NewReader(ctx, p.reads, o, int(b.ReadBytes))
	case onlyHead: // a stream would have more than the head in flight before it is cancelled
		r.portions.ReadBytes = headed.HeadBytes()
		r.reader = storage.NewReader(ctx, p.reads, o, int(b.ReadBytes))
	default:
		r.portions.ReadBytes = int(b.StreamBytes)
		r.reader = storage.NewStream(ctx, p.streams, o, b.SkipBytes, int(b.ReadBytes))
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
	switch {
	case n > 0 && r.ranges:
		r.advance(min(r.reached+int64(n), r.object.SizeBytes))
	case n > 0:
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
	if _, ranges := c.Codec.(format.RangeCodec); ranges {
		return c.Codec, nil
	}
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

// asNamed reads the shard's first bytes, and fails if they are of another format than its name
// implies. The stream is not read twice: these bytes stay in memory until the bytes after them are
// read, and format.SniffBytes of them until the shard is closed. They can be up to 4 MiB more if a
// tar's first members are compressed as games are but are not games.
func (r *shardReader) asNamed(ctx context.Context) error {
	h := &headReader{reader: r.reader, sizeBytes: r.object.SizeBytes, growing: true, leastBytes: format.SniffBytes}
	anothers, err := discover.IsAnothers(r.object, h)
	switch {
	case err != nil:
		return unread(ctx, r.object.Path, err)
	case anothers:
		return fmt.Errorf("%s: its content is of a different format than its name implies: choose the shards' --format", r.object.Path)
	}
	h.growing = false
	r.reader = h
	return nil
}

// headReader has the first bytes of an object in memory, and reads the others from the underlying
// reader.
type headReader struct {
	reader
	sizeBytes  int64
	head       []byte
	leastBytes int64 // the least that the first read requests
	growing    bool  // the head grows with each read
}

func (h *headReader) ReadAt(p []byte, off int64) (int, error) {
	if h.growing {
		if err := h.grow(off + int64(len(p))); err != nil {
			return 0, err
		}
	}
	if off >= int64(len(h.head)) {
		if len(h.head) > format.SniffBytes { // many shards are read at a time
			h.head = slices.Clone(h.head[:format.SniffBytes])
		}
		return h.reader.ReadAt(p, off)
	}
	n := copy(p, h.head[off:])
	if n == len(p) {
		return n, nil
	}
	m, err := h.reader.ReadAt(p[n:], off+int64(n))
	return n + m, err
}

// grow reads until the head has all bytes before offset to.
func (h *headReader) grow(to int64) error {
	have := int64(len(h.head))
	to = min(max(to, h.leastBytes), h.sizeBytes)
	if to <= have {
		return nil
	}
	h.head = append(h.head, make([]byte, to-have)...)
	n, err := h.reader.ReadAt(h.head[have:], have)
	h.head = h.head[:have+int64(n)]
	if err == io.EOF && have+int64(n) == to {
		err = nil
	}
	return err
}

// DecoderRoom is the memory that all decoders together may hold. A single decoder may hold more if
// it runs alone. Members decoded ahead share the room, so that the frames of one large shard are
// decoded on all cores. It is safe for concurrent use.
type DecoderRoom struct {
	room  *semaphore.Weighted
	bytes int64
	ahead *semaphore.Weighted // members
}

var _ format.Room = (*DecoderRoom)(nil)

// LeastDecoderBytes is the smallest room: some shards at a time with windows of ordinary compression
// levels, up to 8 MiB.
const LeastDecoderBytes = 32 << 20

// NewDecoderRoom returns room of boundBytes, at least LeastDecoderBytes, for decoders on that many
// cores: each core may decode one member ahead, and as many more may be decoded and wait for their
// turn.
func NewDecoderRoom(boundBytes int64, cores int) *DecoderRoom {
	boundBytes = max(boundBytes, LeastDecoderBytes)
	return &DecoderRoom{semaphore.NewWeighted(boundBytes), boundBytes, semaphore.NewWeighted(int64(2 * cores))}
}

// mostAhead is the largest memory of a member that is decoded ahead: one with a window of up to 8
// MiB. Decoders up to this size are reused and leave no garbage.
const mostAhead = 24 << 20

// TryTake implements format.Room.
func (r *DecoderRoom) TryTake(bytes int64) bool {
	if bytes > mostAhead || !r.ahead.TryAcquire(1) {
		return false
	}
	if !r.room.TryAcquire(bytes) {
		r.ahead.Release(1)
		return false
	}
	return true
}

// Give implements format.Room.
func (r *DecoderRoom) Give(bytes int64) {
	r.room.Release(bytes)
	r.ahead.Release(1)
}

// Codec returns c with decoders that wait for room, until ctx ends. A codec whose members are parts
// is returned unchanged, because its decoders are all of one size, unless it is a RangeCodec; so is
// nil.
func (r *DecoderRoom) Codec(ctx context.Context, c format.Codec) format.Codec {
	if ranges, ok := c.(format.RangeCodec); ok {
		return boundRanges{ranges, ctx, r}
	}
	if _, parts := c.(format.PartCodec); parts || c == nil {
		return c
	}
	if m, ok := c.(format.MemberCodec); ok {
		return format.Ahead{MemberCodec: m, InTurn: boundCodec{c, ctx, r}, Room: r}
	}
	return boundCodec{c, ctx, r}
}

type boundRanges struct {
	format.RangeCodec
	ctx  context.Context // of the pass
	room *DecoderRoom
}

func (c boundRanges) NewRangeDecoder(raw io.ReaderAt, sizeBytes int64, start format.RangeStart) format.RangeDecoder {
	d := c.RangeCodec.NewRangeDecoder(raw, sizeBytes, start)
	return &boundRange{d, boundDecoder{Decoder: d, ctx: c.ctx, room: c.room}}
}

// boundRange is a decoder that takes more memory the larger the pages are that it comes to. It waits
// for room when it has them.
type boundRange struct {
	format.RangeDecoder
	bound boundDecoder
}

// Unwrap returns the wrapped decoder.
func (d *boundRange) Unwrap() format.Decoder { return d.RangeDecoder }

func (d *boundRange) Next() (int64, error) {
	at, err := d.RangeDecoder.Next()
	if err == nil {
		err = d.bound.take()
	}
	return at, err
}

func (d *boundRange) Read(p []byte) (int, error) {
	n, err := d.RangeDecoder.Read(p)
	if err == nil {
		err = d.bound.take()
	}
	return n, err
}

func (d *boundRange) Close() { d.bound.Close() }

type boundCodec struct {
	format.Codec
	ctx  context.Context // of the pass
	room *DecoderRoom
}

func (c boundCodec) NewDecoder(raw io.Reader, rawOffset int64) (format.Decoder, error) {
	d, err := c.Codec.NewDecoder(raw, rawOffset)
	if err != nil {
		return nil, err
	}
	return &boundDecoder{Decoder: d, ctx: c.ctx, room: c.room}, nil
}

type boundDecoder struct {
	format.Decoder
	ctx  context.Context
	room *DecoderRoom
	held int64
}

// Unwrap returns the wrapped decoder.
func (d *boundDecoder) Unwrap() format.Decoder { return d.Decoder }

// Next waits until there is room for the member, after its head has been read and before its window
// is allocated.
func (d *boundDecoder) Next() (int64, error) {
	at, err := d.Decoder.Next()
	if err != nil {
		return at, err
	}
	return at, d.take()
}

// take waits until there is room for what the decoder holds now.
func (d *boundDecoder) take() error {
	if want := min(d.Decoder.MemoryBytes(), d.room.bytes); want > d.held {
		// All at once, so that no two wait for each other.
		d.room.room.Release(d.held)
		d.held = 0
		if err := d.room.room.Acquire(d.ctx, want); err != nil {
			return err
		}
		d.held = want
	}
	return nil
}

// Close frees the room. If the decoder was large, it first returns the memory to the operating
// system: the garbage collector alone would keep as much garbage as there is live memory.
func (d *boundDecoder) Close() {
	d.Decoder.Close()
	if d.held >= LeastDecoderBytes/2 {
		debug.FreeOSMemory()
	}
	d.room.room.Release(d.held)
	d.held = 0
}
