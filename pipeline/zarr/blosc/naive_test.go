package blosc

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"io"

	"github.com/klauspost/compress/s2"
)

var errNaive = errors.New("it is damaged")

// decodeNaively decodes a buffer of n bytes in the simplest way: byte by byte, each block
// separately. It supports all codecs except zstd.
func decodeNaively(b []byte, n int) (out []byte, err error) {
	defer func() {
		if recover() != nil { // it checks nothing before it reads
			out, err = nil, errNaive
		}
	}()
	le := binary.LittleEndian
	flags, item, blockBytes := b[2], int(b[3]), int(le.Uint32(b[8:]))
	b = b[:le.Uint32(b[12:])]
	if n == 0 {
		return nil, nil
	}
	if flags&2 != 0 {
		return bytes.Clone(b[16 : 16+n]), nil
	}
	for i := 0; len(out) < n; i++ {
		size := min(blockBytes, n-len(out))
		at, streams := int(le.Uint32(b[16+4*i:])), 1
		if flags&0x10 == 0 && item <= 16 && blockBytes/item >= 128 && size == blockBytes {
			streams = item
		}
		var block []byte
		for range streams {
			stored := int(le.Uint32(b[at:]))
			stream := b[at+4 : at+4+stored]
			at += 4 + stored
			if stored != size/streams {
				if stream, err = naiveStream(flags>>5, stream, size/streams); err != nil {
					return nil, err
				}
			}
			block = append(block, stream...)
		}
		if len(block) != size {
			return nil, errNaive
		}
		out = append(out, naiveUnshuffle(block, flags, item)...)
	}
	return out, nil
}

func naiveUnshuffle(block []byte, flags byte, item int) []byte {
	out, n := bytes.Clone(block), len(block)/item
	switch {
	case flags&1 != 0:
		for i := range n {
			for j := range item {
				out[i*item+j] = block[j*n+i]
			}
		}
	case flags&4 != 0 && n%8 == 0:
		clear(out[:n*item])
		for i := range n {
			for bit := range 8 * item {
				out[i*item+bit/8] |= block[bit*(n/8)+i/8] >> (i % 8) & 1 << (bit % 8)
			}
		}
	}
	return out
}

// naiveStream decodes a stream of n bytes.
func naiveStream(codec byte, in []byte, n int) (out []byte, err error) {
	switch codec {
	case 0:
		out = naiveBlosclz(in)
	case 1:
		out = naiveLZ4(in)
	case 2:
		out, err = s2.Decode(nil, in)
	case 3:
		var r io.Reader
		if r, err = zlib.NewReader(bytes.NewReader(in)); err == nil {
			out, err = io.ReadAll(io.LimitReader(r, int64(n)+1))
		}
	default:
		return nil, errNaive
	}
	if err == nil && len(out) != n {
		err = errNaive
	}
	return out, err
}

// naiveMatch appends n bytes from distance bytes back.
func naiveMatch(out []byte, distance, n int) []byte {
	for range n {
		out = append(out, out[len(out)-distance])
	}
	return out
}

func naiveLZ4(in []byte) (out []byte) {
	length := func(n int) int {
		if n == 15 {
			for more := byte(255); more == 255; n += int(more) {
				more, in = in[0], in[1:]
			}
		}
		return n
	}
	for {
		token := in[0]
		in = in[1:]
		n := length(int(token >> 4))
		out, in = append(out, in[:n]...), in[n:]
		if len(in) == 0 {
			return out
		}
		distance := int(in[0]) | int(in[1])<<8
		in = in[2:]
		if distance == 0 {
			panic(errNaive)
		}
		out = naiveMatch(out, distance, length(int(token&15))+4)
	}
}

func naiveBlosclz(in []byte) (out []byte) {
	for first := true; len(in) > 0; first = false {
		control := int(in[0])
		if first {
			control &= 31
		}
		in = in[1:]
		if control < 32 {
			out, in = append(out, in[:control+1]...), in[control+1:]
			continue
		}
		n, distance := control>>5+2, control&31<<8
		if n == 9 {
			for more := byte(255); more == 255; n += int(more) {
				more, in = in[0], in[1:]
			}
		}
		distance, in = distance+int(in[0]), in[1:]
		if distance == 8191 {
			distance, in = distance+int(in[0])<<8+int(in[1]), in[2:]
		}
		out = naiveMatch(out, distance+1, n)
	}
	return out
}
