package fileset

import (
	"io"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Outline implements storage.Caps.
func (s *Storage) Outline(o storage.Object) (io.ReaderAt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := storage.ErrClosed
	t := s.table
	var d segment
	if t != nil {
		d, err = t.find(o)
	}
	if err != nil {
		return nil, &storage.Error{Object: o.Path, SizeBytes: o.SizeBytes, Err: err}
	}
	x := &outline{table: t, segment: d, opener: opener{storage: s}}
	x.opener.enter(o.Path)
	return x, nil
}

// outline is an object with zeros in place of files' contents.
type outline struct {
	table   *table
	segment segment
	opener  opener
	last    int // the file that was used last
}

// ReadAt implements io.ReaderAt. It must not be called concurrently.
func (x *outline) ReadAt(p []byte, off int64) (int, error) {
	n := min(int64(len(p)), max(x.segment.sizeBytes-off, 0))
	clear(p[:n])
	if n > 0 {
		if err := x.headers(p[:n], off); err != nil {
			return 0, err
		}
	}
	if n < int64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

// headers writes the headers within a range into p.
func (x *outline) headers(p []byte, off int64) error {
	first, _, err := x.table.locate(&x.segment, off, 0, x.last)
	for i := first; err == nil && i < x.segment.files; i++ {
		o := &x.opener
		var f file
		if f, err = o.lookUp(x.table, &x.segment, i); err != nil {
			break
		}
		if i == first && (f.offset > off || f.end <= off) {
			err = x.table.damaged()
		}
		if err != nil || f.offset >= off+int64(len(p)) {
			break
		}
		x.last = i
		o.header = o.storage.framing.AppendHeader(o.header[:0], o.path[:len(o.path)-1], f.size)
		if skipped := off - f.offset; skipped >= int64(len(o.header)) {
			continue
		} else if skipped > 0 {
			copy(p, o.header[skipped:])
		} else {
			copy(p[f.offset-off:], o.header)
		}
	}
	return err
}
