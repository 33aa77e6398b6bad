// Package encode writes what the codecs decode: gzip, zstd and lz4, each as members that
// decoding can start at.
//
//	Write, EndUnit, Write, EndUnit, …  ──►  member │ member │ …
//
// A member ends at the end of a unit (a record, a game), once it has MemberBytes. So a
// shard that is written has places to enter it, and the memory of its readers is bounded.
package encode

import (
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// MemberBytes is how many decoded bytes a member has at least, but for the last one:
// compression gains nothing by larger ones, since what it looks back at is smaller.
const MemberBytes = 4 << 20

// Writer compresses what is written to it. It is not for concurrent use, and must be
// closed; that does not close the writer below it.
type Writer struct {
	member  member
	out     io.Writer
	inBytes int64 // of the member that is open
	any     bool  // a member has been begun
}

// member is an encoder of all three libraries.
type member interface {
	io.WriteCloser
	Reset(io.Writer)
}

// New makes a Writer of the files that a codec decodes, nil for none. Of the codecs of
// games, a game is gzip, and a tar of games is not compressed as a whole.
func New(codec unpack.Codec, out io.Writer) (*Writer, error) {
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

// EndUnit says that a unit has been written: a member may end here.
func (w *Writer) EndUnit() error {
	if w.member == nil || w.inBytes < MemberBytes {
		return nil
	}
	w.inBytes = 0
	return w.member.Close()
}

// Close ends the last member. Of nothing one empty member is written.
func (w *Writer) Close() error {
	if w.member == nil || w.any && w.inBytes == 0 {
		return nil
	}
	w.inBytes, w.any = 0, true
	return w.member.Close()
}
