package parquet

import (
	"bytes"
	"encoding/binary"
	"io"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// codec is a CompressionCodec of parquet.thrift.
type codec int32

const (
	uncompressed codec = 0
	codecSnappy  codec = 1
	codecGzip    codec = 2
	codecLZO     codec = 3
	codecBrotli  codec = 4
	codecLZ4     codec = 5 // Hadoop's framing, or a raw block
	codecZstd    codec = 6
	codecLZ4Raw  codec = 7
)

var codecNames = [...]string{"uncompressed", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4_raw"}

func (c codec) String() string {
	if c >= 0 && int(c) < len(codecNames) {
		return codecNames[c]
	}
	return "unknown"
}

// ratio bounds how many bytes a byte can decode to. A page that claims more is damaged, which is
// found before memory is taken.
func (c codec) ratio() int64 {
	switch c {
	case uncompressed:
		return 1
	case codecSnappy:
		return 32 // a copy of 64 bytes takes 2
	case codecGzip:
		return 1032
	case codecLZ4, codecLZ4Raw:
		return 256
	case codecZstd:
		return 1 << 16 // a block of 128 KiB takes 4
	}
	return 1 << 22 // brotli: a meta-block has at most 16 MiB
}

// decompressor decompresses pages. It is not safe for concurrent use.
type decompressor struct {
	gzip   *gzip.Reader
	brotli *brotli.Reader
}

// zstdDecoders decode whole pages, whose size the caller has checked.
var zstdDecoders = sync.Pool{New: func() any {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic(err) // options are constant
	}
	return d
}}

// decompress decodes src to dst, which has the size that the page's header has; another size is
// damage.
func (d *decompressor) decompress(c codec, dst, src []byte) error {
	if len(dst) == 0 && len(src) == 0 {
		return nil
	}
	var n int
	var err error
	switch c {
	case uncompressed:
		n = copy(dst, src)
		if len(src) > len(dst) {
			n = len(src)
		}
	case codecSnappy:
		if n, err = snappy.DecodedLen(src); err == nil && n == len(dst) {
			var out []byte
			out, err = snappy.Decode(dst, src)
			n = len(out)
		}
	case codecGzip:
		n, err = d.gunzip(dst, src)
	case codecZstd:
		z := zstdDecoders.Get().(*zstd.Decoder)
		var out []byte
		out, err = z.DecodeAll(src, dst[:0:len(dst)])
		n = len(out)
		zstdDecoders.Put(z)
	case codecBrotli:
		if d.brotli == nil {
			d.brotli = brotli.NewReader(nil)
		}
		if err = d.brotli.Reset(bytes.NewReader(src)); err == nil {
			n, err = readWhole(d.brotli, dst)
		}
	case codecLZ4Raw:
		n, err = lz4Block(dst, src)
	case codecLZ4:
		if n, err = hadoopLZ4(dst, src); err != nil || n != len(dst) {
			n, err = lz4Block(dst, src)
		}
	}
	if err != nil {
		return damaged("%s: %v", c, err)
	}
	if n != len(dst) {
		return damaged("%s: it does not decode to the %d bytes that its header has", c, len(dst))
	}
	return nil
}

func (d *decompressor) gunzip(dst, src []byte) (int, error) {
	from := bytes.NewReader(src)
	var err error
	if d.gzip == nil {
		d.gzip, err = gzip.NewReader(from)
	} else {
		err = d.gzip.Reset(from)
	}
	if err != nil {
		d.gzip = nil
		return 0, err
	}
	return readWhole(d.gzip, dst)
}

const errLonger = reason("it decodes to more bytes than its header has")

// readWhole reads all of r, which must have len(dst) bytes.
func readWhole(r io.Reader, dst []byte) (int, error) {
	n, err := io.ReadFull(r, dst)
	if err == io.EOF && len(dst) == 0 {
		return 0, nil
	}
	if err != nil {
		return n, err
	}
	var more [1]byte
	if k, err := io.ReadFull(r, more[:]); k > 0 {
		return n, errLonger
	} else if err != io.EOF {
		return n, err
	}
	return n, nil
}

// lz4Block decodes a block. The library does not accept an empty dst.
func lz4Block(dst, src []byte) (int, error) {
	if len(dst) == 0 {
		if len(src) != 1 || src[0] != 0 {
			return 0, errLonger
		}
		return 0, nil
	}
	return lz4.UncompressBlock(src, dst)
}

const errFraming = reason("its framing is not that of Hadoop")

// hadoopLZ4 decodes frames of: decoded size, encoded size, each in 4 bytes, big-endian; a block.
func hadoopLZ4(dst, src []byte) (int, error) {
	n := 0
	for len(src) > 0 {
		if len(src) < 8 {
			return 0, errFraming
		}
		decoded, encoded := binary.BigEndian.Uint32(src), binary.BigEndian.Uint32(src[4:])
		src = src[8:]
		if uint64(encoded) > uint64(len(src)) || uint64(decoded) > uint64(len(dst)-n) {
			return 0, errFraming
		}
		k, err := lz4Block(dst[n:n+int(decoded)], src[:encoded])
		if err != nil || k != int(decoded) {
			return 0, errFraming
		}
		n, src = n+k, src[encoded:]
	}
	return n, nil
}
