package crops

import (
	"fmt"
	"io"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Outline implements storage.Caps: an index pass only needs the header, so no chunk is decoded
// for it.
func (s *Storage) Outline(o storage.Object) (io.ReaderAt, error) {
	s.mu.Lock()
	c := s.cubes[o.Path]
	s.mu.Unlock()
	if c == nil {
		return nil, fmt.Errorf("%s was not listed: %w", o.Path, storage.ErrChanged)
	}
	if err := storage.Compare(o, c.Object); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Path, err)
	}
	return outline{c.header, o.SizeBytes}, nil
}

// outline is a header followed by zeros.
type outline struct {
	header    []byte
	sizeBytes int64
}

func (x outline) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read at offset %d", off)
	}
	n := int(max(0, min(int64(len(p)), x.sizeBytes-off)))
	clear(p[:n])
	if off < int64(len(x.header)) {
		copy(p[:n], x.header[off:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
