package catalog

import (
	"context"
	"io"
	"runtime/debug"

	"golang.org/x/sync/semaphore"

	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// windows bounds what the decoders of a pass hold together: zstd windows of
// 128 MiB on many cores would be more than a mount may ever take. One decoder
// may hold more than the bound, alone. It is also the room of members that are
// decoded ahead, so that the frames of one large shard take all cores.
type windows struct {
	room  *semaphore.Weighted
	bytes int64
	ahead *semaphore.Weighted // members
}

var _ unpack.Room = (*windows)(nil)

// leastWindows is for some shards at a time with windows of ordinary levels,
// up to 8 MiB, however small the bound is.
const leastWindows = 32 << 20

// newWindows is room for decoders on so many cores: for members that are decoded,
// and as many that wait for their turn.
func newWindows(boundBytes int64, cores int) *windows {
	boundBytes = max(boundBytes, leastWindows)
	return &windows{semaphore.NewWeighted(boundBytes), boundBytes, semaphore.NewWeighted(int64(2 * cores))}
}

// mostAhead is the most that a member takes that is decoded ahead: with windows up
// to 8 MiB, as those of decoders that are used again and leave nothing behind.
const mostAhead = 24 << 20

// TryTake implements unpack.Room.
func (w *windows) TryTake(bytes int64) bool {
	if bytes > mostAhead || !w.ahead.TryAcquire(1) {
		return false
	}
	if !w.room.TryAcquire(bytes) {
		w.ahead.Release(1)
		return false
	}
	return true
}

// Give implements unpack.Room.
func (w *windows) Give(bytes int64) {
	w.room.Release(bytes)
	w.ahead.Release(1)
}

// codec is c with decoders that wait for room. nil stays nil.
func (w *windows) codec(ctx context.Context, c unpack.Codec) unpack.Codec {
	if c == nil {
		return nil
	}
	if m, ok := c.(unpack.MemberCodec); ok {
		return unpack.Ahead{MemberCodec: m, InTurn: boundCodec{c, ctx, w}, Room: w}
	}
	return boundCodec{c, ctx, w}
}

type boundCodec struct {
	unpack.Codec
	ctx     context.Context // of the pass
	windows *windows
}

func (c boundCodec) NewDecoder(raw io.Reader, rawOffset int64) (unpack.Decoder, error) {
	d, err := c.Codec.NewDecoder(raw, rawOffset)
	if err != nil {
		return nil, err
	}
	return &boundDecoder{Decoder: d, ctx: c.ctx, windows: c.windows}, nil
}

type boundDecoder struct {
	unpack.Decoder
	ctx     context.Context
	windows *windows
	held    int64
}

// Next waits until there is room for the member, whose head has been seen by
// then and whose window has not been made.
func (d *boundDecoder) Next() (int64, error) {
	at, err := d.Decoder.Next()
	if err != nil {
		return at, err
	}
	if want := min(d.Decoder.MemoryBytes(), d.windows.bytes); want > d.held {
		// All at once, so that no two wait for each other.
		d.windows.room.Release(d.held)
		d.held = 0
		if err := d.windows.room.Acquire(d.ctx, want); err != nil {
			return at, err
		}
		d.held = want
	}
	return at, nil
}

// Close makes room once the system has the memory back, where it is much: the
// collector by itself would let as much lie as lives.
func (d *boundDecoder) Close() {
	d.Decoder.Close()
	if d.held >= leastWindows/2 {
		debug.FreeOSMemory()
	}
	d.windows.room.Release(d.held)
	d.held = 0
}
