package fs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/lsiofs/lsiofs/checkpoint"
)

// draft is a document that is being written through one handle of the control file. Writes may come
// in any order. It is pure, and not for concurrent use.
type draft struct {
	// appends is set if the client opened the file for appending: offsets are ignored, and what it
	// writes is the document.
	appends bool
	// impossible returns why no document can begin like this, or nil.
	impossible func(doc []byte) error

	buf     []byte
	written []span // disjoint, ascending, not touching
	// judged is the length of the prefix that impossible has accepted.
	judged int
	// refused is why nothing more is accepted until the draft is truncated.
	refused error
	// dirty is set if something was written since the last commit or refusal.
	dirty bool
	// emptied is set if the file was truncated to nothing, or created again, and nothing was
	// written since: if the writer leaves it so, it is not a document.
	emptied   bool
	committed []byte // trimmed, nil before the first commit
}

// span is the bytes [from, to).
type span struct{ from, to int }

// errEmpty means that a writer has truncated the file, and written nothing.
var errEmpty = fmt.Errorf("%w: nothing was written, such as from an empty file; the position is unchanged", checkpoint.ErrIncomplete)

// errHole means that a part of a document, possibly its beginning, was not written.
var errHole = fmt.Errorf("%w: parts of it were not written", checkpoint.ErrIncomplete)

// judgeAlways is the size up to which every write is judged. Beyond it, a quarter must have been
// added, so that small writes of a large document cost no more than a few readings of it. The
// commit judges all of it anyway.
const judgeAlways = 64 << 10

// end is where a write of n bytes at off will end.
func (d *draft) end(off int64, n int) int64 {
	if d.appends {
		off = int64(len(d.buf))
	}
	return off + int64(n)
}

// write stores data at off, or returns why it can't become a document: then the draft stays
// refused. end(off, len(data)) is at most checkpoint.MaxBytes.
func (d *draft) write(data []byte, off int64) error {
	if d.refused != nil {
		return d.refused
	}
	if d.appends {
		off = int64(len(d.buf))
	}
	if len(data) == 0 {
		return nil
	}
	at := span{int(off), int(off) + len(data)}
	if at.to > len(d.buf) {
		d.buf = append(d.buf, make([]byte, at.to-len(d.buf))...)
	}
	copy(d.buf[at.from:at.to], data)
	d.dirty, d.emptied = true, false
	d.written = join(d.written, at)
	d.judged = min(d.judged, at.from)
	begun := d.begun()
	if begun <= d.judged || (begun > judgeAlways && begun-d.judged < begun/4) {
		return nil
	}
	d.judged = begun
	if err := d.impossible(d.buf[:begun]); err != nil {
		d.refuse(err)
		return err
	}
	return nil
}

// begun is the length of what has been written from the beginning without a gap.
func (d *draft) begun() int {
	if len(d.written) == 0 || d.written[0].from != 0 {
		return 0
	}
	return d.written[0].to
}

// truncate cuts the draft to size bytes; a shorter one stays as it is. An empty draft is no longer
// refused.
func (d *draft) truncate(size int64) {
	if size == 0 {
		d.buf, d.written, d.judged, d.refused, d.dirty, d.emptied = nil, nil, 0, nil, false, true
	}
	if size >= int64(len(d.buf)) {
		return
	}
	d.buf = d.buf[:size]
	d.judged = min(d.judged, int(size))
	kept := d.written[:0]
	for _, s := range d.written {
		if s.to = min(s.to, int(size)); s.from < s.to {
			kept = append(kept, s)
		}
	}
	d.written = kept
}

// ready returns the document to commit, or nil if nothing was written since the last commit, spaces
// and newlines aside, and the file was not emptied either.
func (d *draft) ready() ([]byte, error) {
	switch {
	case d.refused != nil:
		return nil, d.refused
	case d.emptied:
		return nil, errEmpty
	case !d.dirty:
		return nil, nil
	case d.begun() != len(d.buf):
		return nil, errHole
	case d.committed != nil && bytes.Equal(bytes.TrimSpace(d.buf), d.committed):
		d.dirty = false
		return nil, nil
	}
	return d.buf, nil
}

// settle records the result for the document that ready returned. An incomplete one may still be
// completed, by another process that has the handle too.
func (d *draft) settle(err error) {
	switch {
	case err == nil:
		d.dirty = false
		d.committed = append([]byte{}, bytes.TrimSpace(d.buf)...)
	case errors.Is(err, checkpoint.ErrIncomplete):
	default:
		var refusal *checkpoint.Refusal
		if errors.As(err, &refusal) || errors.Is(err, checkpoint.ErrTooLarge) {
			d.refuse(err)
		}
	}
}

func (d *draft) refuse(err error) {
	d.refused, d.buf, d.written, d.judged = err, nil, nil, 0
}

// join adds at to spans.
func join(spans []span, at span) []span {
	i, _ := slices.BinarySearchFunc(spans, at.from, func(s span, from int) int { return cmp.Compare(s.to, from) })
	j := i
	for j < len(spans) && spans[j].from <= at.to {
		at.from, at.to = min(at.from, spans[j].from), max(at.to, spans[j].to)
		j++
	}
	return slices.Replace(spans, i, j, at)
}
