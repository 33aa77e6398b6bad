// Package encode compresses with gzip, zstd and lz4, in members at which decoding can start.
//
//	Write, EndUnit, Write, EndUnit, …  ──►  member │ member │ …
//
// A member ends at the end of a unit (a record, a game), once it has MemberBytes. So the shards
// that it writes can be entered at many places, and the memory of their readers is bounded.
package encode

import (
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// MemberBytes is the smallest decoded size of a member, except for the last one: larger members
// would not improve compression, whose window is smaller.
const MemberBytes = 4 << 20

// Writer compresses what is written to it. It is not safe for concurrent use, and must be closed;
// that does not close the underlying writer.
type Writer struct {
	member  member
	out     io.Writer
	inBytes int64 // of the current member
	any     bool  // a member has been begun
}

// member is the common interface of the three libraries' encoders.
type member interface {
	io.WriteCloser
	Reset(io.Writer)
}

// New returns a Writer of files that codec decodes; nil means no compression. For the codecs of
// games, a game is gzip, and a tar of games is not compressed as a whole.
func New(codec format.Codec, out io.Writer) (*Writer, error) {
	w := &Writer{out: out}
	if codec == nil {
		return w, nil
	}
	var err error
	switch codec.Name() {
	case "gzip", "lc0 game":
		w.member, err = gzip.NewWriterLevel(out, gzip.BestSpeed)
	case "zstd":
		w.member, err = zstd.NewWriter(out, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	case "lz4":
		w.member = lz4.NewWriter(out)
	case "lc0 tar":
	default:
		err = fmt.Errorf("nothing writes %s", codec.Name())
	}
	return w, err
}

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	if w.member == nil {
		return w.out.Write(p)
	}
	if w.inBytes == 0 && len(p) > 0 {
		if w.any {
			w.member.Reset(w.out)
		}
		w.any = true
	}
	n, err := w.member.Write(p)
	w.inBytes += int64(n)
	return n, err
}

// EndUnit reports that a unit has been written: a member may end here.
func (w *Writer) EndUnit() error {
	if w.member == nil || w.inBytes < MemberBytes {
		return nil
	}
	w.inBytes = 0
	return w.member.Close()
}

// Close ends the last member. If nothing was written, it writes one empty member.
func (w *Writer) Close() error {
	if w.member == nil || w.any && w.inBytes == 0 {
		return nil
	}
	w.inBytes, w.any = 0, true
	return w.member.Close()
}
