// Package codec decodes the stored bytes of a chunk, following the steps of a zarr.Chain. It knows
// nothing about arrays: package zarr copies elements out of the decoded chunk.
//
// Usage:
//
//	d := codec.NewDecoder()
//	defer d.Close()
//	err := d.Decode(chunk, stored, chain)     // chunk has Array.ChunkBytes()
//
// The size of each step's output is known or bounded in advance, and no step writes beyond it: a
// chunk that claims more is damaged. Between steps the decoder uses two buffers, as large as needed
// so far.
package codec

import (
	"bytes"
	"compress/bzip2"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/lsiofs/lsiofs/pipeline/zarr"
	"github.com/lsiofs/lsiofs/pipeline/zarr/blosc"
)

// Decoder decodes chunks. It is not safe for concurrent use: each core has one.
type Decoder struct {
	room  func(i int, n int64) ([]byte, error)
	blosc *blosc.Decoder
	zstd  *zstd.Decoder
}

// NewDecoder returns a decoder, which the caller closes.
func NewDecoder() *Decoder {
	var between [2][]byte
	return NewDecoderIn(func(i int, n int64) ([]byte, error) {
		if int64(cap(between[i])) < n {
			between[i] = make([]byte, n)
		}
		return between[i][:n], nil
	})
}

// NewDecoderIn returns a decoder that gets its two buffers between steps, numbered 0 and 1, from
// room. room returns n bytes, valid until it is called for the same buffer again.
func NewDecoderIn(room func(i int, n int64) ([]byte, error)) *Decoder {
	return &Decoder{room: room, blosc: blosc.NewDecoder()}
}

// Trim frees memory that large chunks needed.
func (d *Decoder) Trim() { d.blosc.Trim() }

// Close frees the decoder's memory.
func (d *Decoder) Close() {
	d.blosc.Close()
	if d.zstd != nil {
		d.zstd.Close()
	}
	*d = Decoder{}
}

// Decode decodes a chunk into dst, which has the chunk's decoded size; the elements are in stored
// order and byte order. stored is not modified. An error means that the chunk is damaged, and names
// the codec that noticed; the content of dst is then undefined.
func (d *Decoder) Decode(dst, stored []byte, c zarr.Chain) error {
	sizes := c.Sizes(int64(len(dst)))
	if n := int64(len(stored)); n > sizes[0].Bytes || sizes[0].Exact && n != sizes[0].Bytes {
		return fmt.Errorf("it has %d bytes, and must have %d", n, sizes[0].Bytes)
	}
	src := stored
	for i, s := range c.Steps {
		out := dst
		if i+1 < len(c.Steps) {
			var err error
			if out, err = d.room(i%2, sizes[i+1].Bytes); err != nil {
				return err
			}
		}
		n, err := d.step(out, src, s, sizes[i+1].Exact)
		if err == nil && sizes[i+1].Exact && n != len(out) {
			err = fmt.Errorf("it has %d bytes decoded, and must have %d", n, len(out))
		}
		if err != nil {
			return named(s.Codec, err)
		}
		src = out[:n]
	}
	if len(c.Steps) == 0 {
		copy(dst, stored)
	}
	return nil
}

// named adds a codec's name to an error, unless it has it already.
func named(codec zarr.Codec, err error) error {
	if strings.HasPrefix(err.Error(), string(codec)+": ") {
		return err
	}
	return fmt.Errorf("%s: %w", codec, err)
}

// step undoes one step from src to dst, and returns how many bytes of dst it wrote. If exact is
// true, the output must fill dst.
func (d *Decoder) step(dst, src []byte, s zarr.Step, exact bool) (int, error) {
	switch s.Codec {
	case zarr.Blosc:
		return d.bloscBuffer(dst, src, exact)
	case zarr.Zstd:
		return d.zstdFrames(dst, src)
	case zarr.Gzip:
		r, err := gzip.NewReader(bytes.NewReader(src))
		if err != nil {
			return 0, err
		}
		return readAll(dst, r)
	case zarr.Zlib:
		r, err := zlib.NewReader(bytes.NewReader(src))
		if err != nil {
			return 0, err
		}
		return readAll(dst, r)
	case zarr.Bzip2:
		return readAll(dst, bzip2.NewReader(bytes.NewReader(src)))
	case zarr.LZ4:
		return lz4Block(dst, src)
	case zarr.CRC32C, zarr.Fletcher32:
		return checked(dst, src, s.Codec)
	case zarr.Shuffle:
		return unshuffle(dst, src, s.ItemBytes), nil
	case zarr.Delta, zarr.FixedScaleOffset, zarr.Quantize:
		return elements(dst, src, s)
	}
	return 0, errors.New("is not a codec of chunks")
}

// readAll reads r to its end. It fails if r has more bytes than dst.
func readAll(dst []byte, r io.Reader) (int, error) {
	n := 0
	for n < len(dst) {
		m, err := r.Read(dst[n:])
		if n += m; err == io.EOF {
			return n, nil
		} else if err != nil {
			return n, err
		}
	}
	var more [1]byte
	if m, err := io.ReadFull(r, more[:]); m > 0 {
		return n, fmt.Errorf("it has more than %d bytes decoded", len(dst))
	} else if err != io.EOF {
		return n, err
	}
	return n, nil
}

// bloscBuffer decodes a buffer of dst's size or, if that is not exact, a smaller one.
func (d *Decoder) bloscBuffer(dst, src []byte, exact bool) (int, error) {
	n := int64(len(dst))
	if !exact && len(src) >= blosc.HeaderBytes {
		n = min(n, int64(binary.LittleEndian.Uint32(src[4:])))
	}
	h, err := blosc.Parse(src, int64(len(src)), n)
	if err != nil {
		return 0, err
	}
	return int(n), d.blosc.Decode(dst[:n], src, h, 0, h.Blocks())
}

// zstdWindow is the largest accepted window.
const zstdWindow = 128 << 20

func (d *Decoder) zstdFrames(dst, src []byte) (int, error) {
	if d.zstd == nil {
		var err error
		d.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindow), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			return 0, err
		}
	}
	out, err := d.zstd.DecodeAll(src, dst[:0:len(dst)])
	return len(out), err
}

// lz4Block decodes a block that is preceded by its decoded size.
func lz4Block(dst, src []byte) (int, error) {
	if len(src) < 4 {
		return 0, io.ErrUnexpectedEOF
	}
	n := binary.LittleEndian.Uint32(src)
	if int64(n) > int64(len(dst)) {
		return 0, fmt.Errorf("a block has %d bytes, and must have %d", n, len(dst))
	}
	if n == 0 {
		return 0, nil
	}
	got, err := lz4.UncompressBlock(src[4:], dst[:n:n])
	if err == nil && got != int(n) {
		err = fmt.Errorf("a block of %d bytes has %d", n, got)
	}
	return got, err
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checked removes the checksum from the end and verifies it.
func checked(dst, src []byte, c zarr.Codec) (int, error) {
	if len(src) < 4 {
		return 0, errors.New("it is too short for its checksum")
	}
	body := src[:len(src)-4]
	want := binary.LittleEndian.Uint32(src[len(body):])
	got := crc32.Checksum(body, castagnoli)
	if c == zarr.Fletcher32 {
		got = fletcher32(body)
	}
	if got != want {
		return 0, fmt.Errorf("the checksum is %08x, and must be %08x", got, want)
	}
	return copy(dst, body), nil
}

// fletcher32 is HDF5's: over big-endian 16-bit numbers; a last odd byte is the upper half of a
// number.
func fletcher32(b []byte) uint32 {
	// This many numbers can be added before a sum may overflow.
	const most = 360
	fold := func(x uint32) uint32 { return x&0xffff + x>>16 }
	sum1, sum2 := uint32(0), uint32(0)
	for len(b) > 1 {
		some := b[:min(len(b)&^1, 2*most)]
		for i := 0; i < len(some); i += 2 {
			sum1 += uint32(some[i])<<8 | uint32(some[i+1])
			sum2 += sum1
		}
		sum1, sum2, b = fold(sum1), fold(sum2), b[len(some):]
	}
	if len(b) == 1 {
		sum1 += uint32(b[0]) << 8
		sum2 += sum1
		sum1, sum2 = fold(sum1), fold(sum2)
	}
	return fold(sum2)<<16 | fold(sum1)
}
