package catalog

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// asNamed looks at the shard's first bytes, and fails if they are of another format than its
// name says. The stream is not read twice: those bytes stay in memory until what follows them
// is read, and unpack.SniffBytes of them until the shard is closed. They are up to 4 MiB more
// where a tar's first members are compressed as games are, and are none.
func (r *shardReader) asNamed(ctx context.Context) error {
	h := &headReader{reader: r.reader, sizeBytes: r.object.SizeBytes, growing: true, leastBytes: unpack.SniffBytes}
	anothers, err := discover.IsAnothers(r.object, h)
	switch {
	case err != nil:
		return unread(ctx, r.object.Path, err)
	case anothers:
		return fmt.Errorf("%s: its content has another format than its name: choose the shards' --format", r.object.Path)
	}
	h.growing = false
	r.reader = h
	return nil
}

// headReader has the first bytes of an object in memory, and reads what follows.
type headReader struct {
	reader
	sizeBytes  int64
	head       []byte
	leastBytes int64 // that the first read takes
	growing    bool  // what is read is kept, with all before it
}

func (h *headReader) ReadAt(p []byte, off int64) (int, error) {
	if h.growing {
		if err := h.grow(off + int64(len(p))); err != nil {
			return 0, err
		}
	}
	if off >= int64(len(h.head)) {
		if len(h.head) > unpack.SniffBytes { // as many shards are read as have room for their records
			h.head = slices.Clone(h.head[:unpack.SniffBytes])
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

// grow reads on until the head has the bytes before an offset.
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
