package folders

import (
	"io"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Outline implements storage.Outliner.
func (s *Storage) Outline(o storage.Object) (io.ReaderAt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := errClosed
	var d segment
	if s.table != nil {
		d, err = s.table.find(o)
	}
	if err != nil {
		return nil, &storage.Error{Object: o.Path, SizeBytes: o.SizeBytes, Err: err}
	}
	x := &outline{segment: d, opener: opener{storage: s}}
	x.opener.enter(o.Path)
	return x, nil
}

// outline is an object with zeros in the places of files' contents.
type outline struct {
	segment segment
	opener  opener
	last    int // the file that was looked at last
}

// ReadAt implements io.ReaderAt, for one goroutine at a time.
func (x *outline) ReadAt(p []byte, off int64) (int, error) {
	n := min(int64(len(p)), max(x.segment.sizeBytes-off, 0))
	clear(p[:n])
	if n > 0 {
		x.headers(p[:n], off)
	}
	if n < int64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

// headers writes the headers that lie in a range into it.
func (x *outline) headers(p []byte, off int64) {
	i := x.last
	if f := x.segment.file(i); off < f.offset || off >= f.end {
		if i++; i == x.segment.files || x.segment.file(i).offset > off || x.segment.file(i).end <= off {
			i = x.segment.at(off)
		}
	}
	for ; i < x.segment.files; i++ {
		f := x.segment.file(i)
		if f.offset >= off+int64(len(p)) {
			return
		}
		x.last = i
		o := &x.opener
		o.header = o.storage.framing.AppendHeader(o.header[:0], o.at(f.name), f.size)
		if skipped := off - f.offset; skipped >= int64(len(o.header)) {
			continue
		} else if skipped > 0 {
			copy(p, o.header[skipped:])
		} else {
			copy(p[f.offset-off:], o.header)
		}
	}
}
