package blosc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Decoder decodes blocks. It is not safe for concurrent use: each core has one. It holds a scratch
// block of the largest size so far, and the state of its codecs.
type Decoder struct {
	scratch []byte
	zstd    *zstd.Decoder
	zlib    io.ReadCloser
}

// NewDecoder returns a decoder, which the caller closes.
func NewDecoder() *Decoder { return &Decoder{} }

// Close frees the decoder's memory. It can be used again.
func (d *Decoder) Close() {
	if d.zstd != nil {
		d.zstd.Close()
	}
	*d = Decoder{}
}

// Trim frees the scratch block.
func (d *Decoder) Trim() { d.scratch = nil }

// Decode decodes blocks first to last (exclusive) of a buffer with header h into dst, which has the
// size of h.Range(first, last). After an error the content of dst is undefined.
func (d *Decoder) Decode(dst, buffer []byte, h Header, first, last int) error {
	if int64(len(buffer)) < h.StoredBytes {
		return fmt.Errorf("blosc: only %d bytes of a buffer of %d are there", len(buffer), h.StoredBytes)
	}
	buffer = buffer[:h.StoredBytes]
	low, _ := h.Range(first, last)
	for block := first; block < last; block++ {
		at, err := h.Start(buffer, block)
		if err != nil {
			return err
		}
		begin, end := h.Range(block, block+1)
		if err := d.DecodeBlock(dst[begin-low:end-low], buffer[at:], h, block); err != nil {
			return err
		}
	}
	return nil
}

// DecodeBlock decodes one block into dst, which has the block's size. src begins with the block;
// bytes after it are ignored.
func (d *Decoder) DecodeBlock(dst, src []byte, h Header, block int) error {
	if h.Stored() {
		if len(src) < len(dst) {
			return fmt.Errorf("blosc: only %d of %d stored bytes are there", len(src), len(dst))
		}
		copy(dst, src)
		return nil
	}
	if err := d.decodeBlock(dst, src, h); err != nil {
		return fmt.Errorf("blosc: block %d: %w", block, err)
	}
	return nil
}

func (d *Decoder) decodeBlock(dst, src []byte, h Header) error {
	switch {
	case h.flags&flagShuffled != 0 && h.ItemBytes > 1:
		shuffled := d.room(len(dst))
		if err := d.streams(shuffled, src, h); err != nil {
			return err
		}
		unshuffle(dst, shuffled, h.ItemBytes)
		return nil
	case h.flags&flagShuffled == 0 && h.flags&flagBitShuffled != 0 && len(dst)/h.ItemBytes%8 == 0:
		if err := d.streams(dst, src, h); err != nil {
			return err
		}
		unshuffleBits(dst, d.room(len(dst)), h.ItemBytes)
		return nil
	}
	return d.streams(dst, src, h)
}

// room returns the scratch block.
func (d *Decoder) room(n int) []byte {
	if cap(d.scratch) < n {
		d.scratch = make([]byte, n)
	}
	return d.scratch[:n]
}

// streams decodes the consecutive streams of a block.
func (d *Decoder) streams(dst, src []byte, h Header) error {
	size := len(dst) / h.splits(int64(len(dst)))
	for ; len(dst) > 0; dst = dst[size:] {
		if len(src) < 4 {
			return errors.New("the buffer ends before it")
		}
		n := int64(int32(binary.LittleEndian.Uint32(src)))
		if src = src[4:]; n <= 0 || n > int64(len(src)) {
			return fmt.Errorf("a stream of %d bytes, and %d are left", n, len(src))
		}
		if n == int64(size) {
			copy(dst[:size], src)
		} else if err := codecs[h.codec()](d, dst[:size:size], src[:n]); err != nil {
			return err
		}
		src = src[n:]
	}
	return nil
}

// codecs decode src into dst, and fail unless the result has exactly the size of dst.
var codecs = [...]func(d *Decoder, dst, src []byte) error{
	0: func(_ *Decoder, dst, src []byte) error { return decodeBlosclz(dst, src) },
	1: (*Decoder).lz4Block,
	2: (*Decoder).snappyBlock,
	3: (*Decoder).zlibStream,
	4: (*Decoder).zstdFrame,
}

// sized returns the error of a stream: err, or a wrong size.
func sized(codec string, got, want int, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", codec, err)
	}
	if got != want {
		return fmt.Errorf("%s: a stream has %d bytes decoded, and must have %d", codec, got, want)
	}
	return nil
}

func (d *Decoder) lz4Block(dst, src []byte) error {
	n, err := lz4.UncompressBlock(src, dst)
	return sized("lz4", n, len(dst), err)
}

func (d *Decoder) snappyBlock(dst, src []byte) error {
	n, err := s2.DecodedLen(src)
	if err == nil && n == len(dst) {
		_, err = s2.Decode(dst, src)
	}
	return sized("snappy", n, len(dst), err)
}

// zstdWindow is the largest accepted window: that of zstd -19, and of all levels of blosc.
const zstdWindow = 128 << 20

func (d *Decoder) zstdFrame(dst, src []byte) error {
	if d.zstd == nil {
		var err error
		d.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindow), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			return err
		}
	}
	out, err := d.zstd.DecodeAll(src, dst[:0])
	return sized("zstd", len(out), len(dst), err)
}

func (d *Decoder) zlibStream(dst, src []byte) error {
	r := bytes.NewReader(src)
	var err error
	if d.zlib == nil {
		d.zlib, err = zlib.NewReader(r)
	} else {
		err = d.zlib.(zlib.Resetter).Reset(r, nil)
	}
	if err != nil {
		d.zlib = nil
		return sized("zlib", 0, 0, err)
	}
	n, err := io.ReadFull(d.zlib, dst)
	if err != nil {
		return sized("zlib", n, len(dst), err)
	}
	// Reading to the end compares the checksum.
	var more [1]byte
	switch n, err := d.zlib.Read(more[:]); {
	case n > 0:
		return errors.New("zlib: a stream does not end where its block does")
	case err != io.EOF:
		return sized("zlib", 0, 0, err)
	}
	return nil
}

var errBlosclz = errors.New("blosclz: the stream is damaged")

// decodeBlosclz decodes a blosclz stream, a sequence of
//
//	000nnnnn  n+1 literals follow
//	lllddddd  a match of l+2 bytes (l = 7: more bytes add to it, up to one below 255), at the
//	          distance d<<8 + a byte + 1; if d and that byte are all ones, plus a u16be
//
// The upper 3 bits of the first byte are ignored.
func decodeBlosclz(dst, src []byte) error {
	const farthest = 31<<8 | 255
	at, control := 0, byte(0)
	if len(src) == 0 {
		return errBlosclz
	}
	control, src = src[0]&31, src[1:]
	for {
		if control < 32 {
			n := int(control) + 1
			if n > len(src) || n > len(dst)-at {
				return errBlosclz
			}
			copy(dst[at:], src[:n])
			at, src = at+n, src[n:]
		} else {
			n, distance := int(control>>5)+2, int(control&31)<<8
			if control>>5 == 7 {
				for {
					if len(src) == 0 {
						return errBlosclz
					}
					more := src[0]
					n, src = n+int(more), src[1:]
					if more < 255 {
						break
					}
				}
			}
			if len(src) == 0 {
				return errBlosclz
			}
			distance += int(src[0])
			src = src[1:]
			if distance == farthest {
				if len(src) < 2 {
					return errBlosclz
				}
				distance += int(src[0])<<8 | int(src[1])
				src = src[2:]
			}
			distance++
			if distance > at || n > len(dst)-at {
				return errBlosclz
			}
			copyMatch(dst[at:at+n], dst[at-distance:], distance)
			at += n
		}
		if len(src) == 0 {
			break
		}
		control, src = src[0], src[1:]
	}
	return sized("blosclz", at, len(dst), nil)
}

// copyMatch fills dst from src, which begins distance bytes before dst and may overlap it.
func copyMatch(dst, src []byte, distance int) {
	if distance >= len(dst) {
		copy(dst, src)
		return
	}
	n := copy(dst, src[:distance])
	for n < len(dst) {
		n += copy(dst[n:], dst[:n])
	}
}
