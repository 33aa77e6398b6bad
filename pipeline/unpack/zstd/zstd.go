// Package zstd decodes whole-shard Zstandard compression (RFC 8878), frame by
// frame.
//
//	shard: frame  frame  …, with skippable frames anywhere between
//	frame: fd2fb528 descriptor [window] [dictionary] [content size],
//	       blocks: 3-byte header (last, type, size), bytes
//	       [u32le of xxh64 of the decoded bytes]
//	skippable frame: 184D2A5x, u32le size, bytes
//
// The decoder is shown one frame at a time: its end is found by walking the
// block headers as bytes pass through. The seek table of the seekable format
// (facebook/zstd, contrib/seekable_format) is a skippable frame like others: it
// tells what is found at no cost, and may lie. Frames that need a window above 128 MiB,
// or a dictionary, count as damaged, since they can't be decoded.
package zstd

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// maxWindowBytes bounds what a frame may have a decoder allocate: the window of
// `zstd --ultra -22`, the largest that needs no other option to be decoded.
const maxWindowBytes = 128 << 20

// Codec is zstd's unpack.Codec.
type Codec struct{}

var _ unpack.MemberCodec = Codec{}

// Name is "zstd".
func (Codec) Name() string { return "zstd" }

// Extensions is ".zst".
func (Codec) Extensions() map[string]string { return map[string]string{".zst": ""} }

// NewDecoder makes a decoder of raw from the first byte of a frame on.
func (Codec) NewDecoder(raw io.Reader, rawOffset int64) (unpack.Decoder, error) {
	s, ok := states.Get().(*state)
	if !ok {
		var err error
		if s, err = newState(); err != nil {
			return nil, err
		}
	}
	s.raw.Reset(raw, rawOffset)
	return &decoder{state: s}, nil
}

// NewWalk makes a walk of raw from the first byte of a frame on.
func (Codec) NewWalk(raw io.Reader, rawOffset int64) unpack.Walk {
	w := walks.Get().(*walk)
	w.raw.Reset(raw, rawOffset)
	return w
}

// states are decoders not in use: the buffers and tables of one cost more to
// make than many a small shard to decode. What is idle is left to the garbage
// collector, and what is in use its owner bounds.
var states sync.Pool

// keepWindowBytes is the window above which a decoder is not kept for reuse:
// that of the highest ordinary level, 19.
const keepWindowBytes = 8 << 20

// state is what a decoder reuses.
type state struct {
	walk
	zstd *zstd.Decoder
	// window is the largest that a frame has had: what zstd holds goes by it.
	window int64
}

func newState() (*state, error) {
	z, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindowBytes))
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	return &state{zstd: z}, nil
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
	d.window = max(d.window, d.frame.window)
	if err := d.zstd.Reset(&d.frame); err != nil {
		return fmt.Errorf("zstd: %w", err)
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
	n, err := d.zstd.Read(p)
	switch {
	case err == nil:
		return n, nil
	case err == io.EOF && d.frame.done:
		d.inFrame = false
		return n, io.EOF
	}
	d.err = d.explain(err)
	return n, d.err
}

// explain tells failures of reading from damage.
func (d *decoder) explain(err error) error {
	switch {
	case d.raw.Failure() != nil:
		return d.raw.Failure()
	case d.frame.cut || err == io.EOF:
		return d.damage("the file ends inside a zstd frame")
	case errors.Is(err, zstd.ErrCRCMismatch):
		return d.damage("the zstd frame's checksum does not match its bytes")
	}
	return d.damage(fmt.Sprintf("the zstd frame can't be decoded: %v", err))
}

// MemoryBytes implements unpack.Decoder.
func (d *decoder) MemoryBytes() int64 { return decoderBytes(d.window) }

// Close implements unpack.Decoder.
func (d *decoder) Close() {
	s := d.state
	if s == nil {
		return
	}
	d.state, d.err, d.inFrame = nil, errClosed, false
	if s.window > keepWindowBytes {
		s.zstd.Close()
		return
	}
	s.raw.Release()
	s.frame = frame{}
	if err := s.zstd.Reset(nil); err == nil {
		states.Put(s)
	}
}

var errClosed = errors.New("zstd decoder is closed")

// frameReader reads what is left of the current frame.
type frameReader struct{ d *decoder }

func (f frameReader) Read(p []byte) (int, error) { return f.d.Read(p) }
