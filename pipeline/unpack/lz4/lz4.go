// Package lz4 decodes whole-shard LZ4 compression, frame by frame, as the LZ4
// Frame Format 1.6.4 says (github.com/lz4/lz4, doc/lz4_Frame_format.md).
//
//	shard: frame  frame  …, with skippable frames anywhere between
//	frame: 184D2204 flags block-size [u64le content size] [u32le dictionary] header checksum,
//	       blocks: u32le size (highest bit: stored), bytes [u32le xxh32 of them]
//	       u32le 0 [u32le xxh32 of the decoded bytes]
//	skippable frame: 184D2A5x, u32le size, bytes
//
// The decoder is shown one frame at a time: its end is found by walking the
// sizes of blocks as bytes pass through. Frames of the legacy format, which have
// neither an end nor checksums, and frames that need a dictionary count as
// damaged, since they can't be decoded.
package lz4

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/pierrec/lz4/v4"

	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// Codec is lz4's unpack.Codec.
type Codec struct{}

var _ unpack.MemberCodec = Codec{}

// Name is "lz4".
func (Codec) Name() string { return "lz4" }

// Extensions is ".lz4".
func (Codec) Extensions() map[string]string { return map[string]string{".lz4": ""} }

// NewDecoder makes a decoder of raw from the first byte of a frame on.
func (Codec) NewDecoder(raw io.Reader, rawOffset int64) (unpack.Decoder, error) {
	s := states.Get().(*state)
	s.raw.Reset(raw, rawOffset)
	return &decoder{state: s}, nil
}

// NewWalk makes a walk of raw from the first byte of a frame on.
func (Codec) NewWalk(raw io.Reader, rawOffset int64) unpack.Walk {
	w := walks.Get().(*walk)
	w.raw.Reset(raw, rawOffset)
	return w
}

// states are decoders not in use. What is idle is left to the garbage
// collector, and what is in use its owner bounds; blocks are pooled by lz4.
var states = sync.Pool{New: func() any { return new(state) }}

// state is what a decoder reuses.
type state struct {
	walk
	lz4    *lz4.Reader // nil before the first frame, and behind one of linked blocks
	memory int64       // the most that a frame has needed
}

type decoder struct {
	*state
	inFrame bool
	err     error
}

// Next implements unpack.Decoder.
func (d *decoder) Next() (int64, error) {
	if d.err == nil && d.inFrame {
		_, d.err = io.Copy(io.Discard, frameReader{d})
	}
	if d.err != nil {
		return 0, d.err
	}
	d.err = d.begin()
	return d.member, d.err
}

// begin opens the frame that follows.
func (d *decoder) begin() error {
	if err := d.walk.begin(); err != nil {
		return err
	}
	d.memory = max(d.memory, d.frame.memory)
	if d.lz4 == nil {
		d.lz4 = lz4.NewReader(&d.frame)
	} else {
		d.lz4.Reset(&d.frame)
	}
	d.inFrame = true
	return nil
}

// Read implements unpack.Decoder.
func (d *decoder) Read(p []byte) (int, error) {
	if d.err != nil {
		return 0, d.err
	}
	if !d.inFrame {
		return 0, io.EOF
	}
	n, err := d.lz4.Read(p)
	switch {
	case err == nil:
		return n, nil
	case err == io.EOF && d.frame.done:
		d.inFrame = false
		d.release()
		return n, io.EOF
	}
	d.err = d.explain(err)
	return n, d.err
}

// release gives blocks back. A reader that has seen linked blocks keeps the last
// of them, also for the next frame, which must not see them.
func (d *decoder) release() {
	if d.lz4 == nil {
		return
	}
	d.lz4.Reset(nil)
	if d.frame.linked {
		d.lz4 = nil
	}
}

// explain tells failures of reading from damage.
func (d *decoder) explain(err error) error {
	switch {
	case d.raw.Failure() != nil:
		return d.raw.Failure()
	case d.frame.cut || err == io.EOF:
		return d.damage("the file ends inside an lz4 frame")
	case errors.Is(err, lz4.ErrInvalidHeaderChecksum):
		return d.damage("the lz4 frame's header does not match its checksum")
	case errors.Is(err, lz4.ErrInvalidBlockChecksum):
		return d.damage("a block of the lz4 frame does not match its checksum")
	case errors.Is(err, lz4.ErrInvalidFrameChecksum):
		return d.damage("the lz4 frame's checksum does not match its bytes")
	case errors.Is(err, lz4.ErrInvalidContentSize):
		return d.damage("the lz4 frame is not of the size that its header tells")
	}
	return d.damage(fmt.Sprintf("the lz4 frame can't be decoded: %v", err))
}

// MemoryBytes implements unpack.Decoder.
func (d *decoder) MemoryBytes() int64 { return d.memory + d.raw.MemoryBytes() }

// Close implements unpack.Decoder.
func (d *decoder) Close() {
	s := d.state
	if s == nil {
		return
	}
	d.release()
	d.state, d.err, d.inFrame = nil, errClosed, false
	s.raw.Release()
	s.frame, s.memory = frame{}, 0
	states.Put(s)
}

var errClosed = errors.New("lz4 decoder is closed")

// frameReader reads what is left of the current frame.
type frameReader struct{ d *decoder }

func (f frameReader) Read(p []byte) (int, error) { return f.d.Read(p) }
