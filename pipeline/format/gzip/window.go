package gzip

import (
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/lsiofs/lsiofs/pipeline/format/inflate"
)

// windowBytes is the largest distance to which DEFLATE data refers.
const windowBytes = 32 << 10

// packWindow packs the decoded bytes before a point. Bytes to which no data after it refers become
// zeros ("sparse windows" of rapidgzip, Knespel and Brunst 2023). raw is what follows the point in
// the file, from the byte that contains its first bit: enough for windowBytes decoded bytes, or
// everything.
func packWindow(window, raw []byte, bit uint) []byte {
	return windowEncoder().EncodeAll(sparse(window, raw, bit), nil)
}

// sparse returns a copy of window with those bytes cleared to which raw does not refer.
//
// raw is decoded three times: with the window as history, and with the low and the high parts of
// its bytes' positions. A byte copied from the window appears in each together with its position; a
// literal is the same in all three.
func sparse(window, raw []byte, bit uint) []byte {
	scratch := sparsers.Get().(*sparser)
	defer sparsers.Put(scratch)
	var places [2][windowBytes]byte
	for i := range window {
		places[0][i], places[1][i] = byte(i), byte(i>>8)|0x80
	}
	var decoded [3][]byte
	for i, history := range [][]byte{window, places[0][:len(window)], places[1][:len(window)]} {
		decoded[i] = scratch.decode(i, history, raw, bit)
	}
	kept := make([]byte, len(window))
	for i, b := range decoded[0] {
		low, high := decoded[1][i], decoded[2][i]
		// A literal may look like a position; then at most one byte too many is kept.
		if place := int(high&0x7f)<<8 | int(low); high >= 0x80 && place < len(window) && window[place] == b {
			kept[place] = b
		}
	}
	return kept
}

// sparser is the scratch memory of sparse, about 200 KiB.
type sparser struct {
	decoder inflate.Decoder
	out     [3][windowBytes]byte
}

var sparsers = sync.Pool{New: func() any { return new(sparser) }}

// decode decodes up to windowBytes after a history, into the i-th buffer.
func (s *sparser) decode(i int, history, raw []byte, bit uint) []byte {
	s.decoder.ResetAt(history, bit)
	out := s.out[i][:0]
	for {
		used, status := s.decoder.Decode(raw)
		raw = raw[used:]
		n := min(len(s.decoder.Window()), windowBytes-len(out))
		out = append(out, s.decoder.Window()[:n]...)
		s.decoder.Take(len(s.decoder.Window()))
		if status != inflate.Output || len(out) == windowBytes {
			return out
		}
	}
}

// windowEncoder and windowDecoder use Zstandard. Both are safe for concurrent use.
var windowEncoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithWindowSize(windowBytes), zstd.WithEncoderCRC(true), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(err) // its options are constant
	}
	return e
})

var windowDecoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(windowBytes), zstd.WithDecoderMaxWindow(windowBytes), zstd.WithDecoderConcurrency(0))
	if err != nil {
		panic(err) // its options are constant
	}
	return d
})

var errWindow = errors.New("it has no window that can be unpacked: lsiofs index --rebuild makes the index again")

// unpackWindow reverses packWindow.
func unpackWindow(packed []byte) ([]byte, error) {
	window, err := windowDecoder().DecodeAll(packed, make([]byte, 0, windowBytes))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errWindow, err)
	}
	return window, nil
}
