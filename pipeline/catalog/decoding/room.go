// Package decoding bounds the total memory of decoders that run at the same time, one for each
// shard being read. zstd windows of up to 128 MiB for many shards would exceed what a mount may
// use.
package decoding

import (
	"context"
	"io"
	"runtime/debug"

	"golang.org/x/sync/semaphore"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// Room is the memory that all decoders together may hold. A single decoder may hold more if it runs
// alone. Members decoded ahead share the room, so that the frames of one large shard are decoded on
// all cores. It is safe for concurrent use.
type Room struct {
	room  *semaphore.Weighted
	bytes int64
	ahead *semaphore.Weighted // members
}

var _ format.Room = (*Room)(nil)

// LeastBytes is the smallest room: some shards at a time with windows of ordinary compression
// levels, up to 8 MiB.
const LeastBytes = 32 << 20

// NewRoom returns room of boundBytes, at least LeastBytes, for decoders on that many cores: each
// core may decode one member ahead, and as many more may be decoded and wait for their turn.
func NewRoom(boundBytes int64, cores int) *Room {
	boundBytes = max(boundBytes, LeastBytes)
	return &Room{semaphore.NewWeighted(boundBytes), boundBytes, semaphore.NewWeighted(int64(2 * cores))}
}

// mostAhead is the largest memory of a member that is decoded ahead: one with a window of up to 8
// MiB. Decoders up to this size are reused and leave no garbage.
const mostAhead = 24 << 20

// TryTake implements format.Room.
func (r *Room) TryTake(bytes int64) bool {
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
func (r *Room) Give(bytes int64) {
	r.room.Release(bytes)
	r.ahead.Release(1)
}

// Codec returns c with decoders that wait for room, until ctx ends. A codec whose members are parts
// is returned unchanged, because its decoders are all of one size; so is nil.
func (r *Room) Codec(ctx context.Context, c format.Codec) format.Codec {
	if _, parts := c.(format.PartCodec); parts || c == nil {
		return c
	}
	if m, ok := c.(format.MemberCodec); ok {
		return format.Ahead{MemberCodec: m, InTurn: boundCodec{c, ctx, r}, Room: r}
	}
	return boundCodec{c, ctx, r}
}

type boundCodec struct {
	format.Codec
	ctx  context.Context // of the pass
	room *Room
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
	room *Room
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
	if want := min(d.Decoder.MemoryBytes(), d.room.bytes); want > d.held {
		// All at once, so that no two wait for each other.
		d.room.room.Release(d.held)
		d.held = 0
		if err := d.room.room.Acquire(d.ctx, want); err != nil {
			return at, err
		}
		d.held = want
	}
	return at, nil
}

// Close frees the room. If the decoder was large, it first returns the memory to the operating
// system: the garbage collector alone would keep as much garbage as there is live memory.
func (d *boundDecoder) Close() {
	d.Decoder.Close()
	if d.held >= LeastBytes/2 {
		debug.FreeOSMemory()
	}
	d.room.room.Release(d.held)
	d.held = 0
}
