package catalog

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/format"
)

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
		return fmt.Errorf("%s: its content has another format than its name: choose the shards' --format", r.object.Path)
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
