package blosc

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"
)

// variant is one way to encode a buffer.
type variant struct {
	codec                         byte
	itemBytes, blockBytes         int
	shuffled, bitShuffled, stored bool
	whole                         bool // blocks are not split
	dice                          *rand.Rand
}

// encode makes a buffer as described in the package comment, in the simplest way. Blocks are in
// random order, with gaps, and streams that don't become smaller are stored.
func (v variant) encode(t testing.TB, data []byte) []byte {
	flags := v.codec << 5
	for i, set := range []bool{v.shuffled, v.stored, v.bitShuffled, false, v.whole} {
		if set {
			flags |= 1 << i
		}
	}
	out := []byte{2, 1, flags, byte(v.itemBytes)}
	out = binary.LittleEndian.AppendUint32(out, uint32(len(data)))
	out = binary.LittleEndian.AppendUint32(out, uint32(v.blockBytes))
	out = append(out, 0, 0, 0, 0)
	switch {
	case len(data) == 0:
	case v.stored:
		out = append(out, data...)
	default:
		blocks := (len(data) + v.blockBytes - 1) / v.blockBytes
		out = append(out, make([]byte, 4*blocks)...)
		for _, i := range v.dice.Perm(blocks) {
			out = append(out, make([]byte, v.dice.IntN(3))...)
			binary.LittleEndian.PutUint32(out[16+4*i:], uint32(len(out)))
			out = append(out, v.block(t, data[i*v.blockBytes:min((i+1)*v.blockBytes, len(data))])...)
		}
	}
	binary.LittleEndian.PutUint32(out[12:], uint32(len(out)))
	return out
}

// block returns a block's streams.
func (v variant) block(t testing.TB, data []byte) []byte {
	n := len(data) / v.itemBytes
	mixed := bytes.Clone(data)
	switch {
	case v.shuffled && v.itemBytes > 1:
		for i := range n {
			for j := range v.itemBytes {
				mixed[j*n+i] = data[i*v.itemBytes+j]
			}
		}
	case !v.shuffled && v.bitShuffled && n%8 == 0:
		clear(mixed[:n*v.itemBytes])
		for i := range n {
			for bit := range 8 * v.itemBytes {
				if data[i*v.itemBytes+bit/8]>>(bit%8)&1 == 1 {
					mixed[bit*(n/8)+i/8] |= 1 << (i % 8)
				}
			}
		}
	}
	streams := 1
	if !v.whole && v.itemBytes <= 16 && v.blockBytes/v.itemBytes >= 128 && len(data) == v.blockBytes {
		streams = v.itemBytes
	}
	var out []byte
	size := len(data) / streams
	for ; len(mixed) > 0; mixed = mixed[size:] {
		packed := v.stream(t, mixed[:size])
		if len(packed) >= size {
			packed = mixed[:size]
		}
		out = binary.LittleEndian.AppendUint32(out, uint32(len(packed)))
		out = append(out, packed...)
	}
	return out
}

func (v variant) stream(t testing.TB, data []byte) []byte {
	switch v.codec {
	case 0:
		return encodeBlosclz(data, v.dice)
	case 1:
		out := make([]byte, lz4.CompressBlockBound(len(data)))
		n, err := lz4.CompressBlock(data, out, nil)
		require.NoError(t, err)
		if n == 0 {
			return data
		}
		return out[:n]
	case 2:
		return s2.EncodeSnappy(nil, data)
	case 3:
		var b bytes.Buffer
		w := zlib.NewWriter(&b)
		_, err := w.Write(data)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		return b.Bytes()
	}
	return zstdWriter.EncodeAll(data, nil)
}

var zstdWriter, _ = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))

// encodeBlosclz finds matches of at least 3 bytes anywhere before, so that all forms of distances
// and lengths occur.
func encodeBlosclz(data []byte, dice *rand.Rand) []byte {
	var out, literals []byte
	flush := func() {
		for len(literals) > 0 {
			n := min(len(literals), 32)
			out = append(append(out, byte(n-1)), literals[:n]...)
			literals = literals[n:]
		}
	}
	last := map[[3]byte]int{}
	for at := 0; at < len(data); {
		n, distance := 0, 0
		if at > 0 && at+3 <= len(data) {
			key := [3]byte(data[at:])
			if from, ok := last[key]; ok && at-from <= 8191+65535 {
				for n = 3; at+n < len(data) && data[from+n] == data[at+n]; n++ {
				}
				distance = at - from - 1
			}
			last[key] = at
		}
		if n == 0 || dice.IntN(20) == 0 {
			literals = append(literals, data[at])
			at++
			continue
		}
		flush()
		length, far := n-2, distance >= 8191
		control := byte(min(length, 7)) << 5
		near := min(distance, 8191)
		out = append(out, control|byte(near>>8))
		if length >= 7 {
			rest := length - 7
			for ; rest >= 255; rest -= 255 {
				out = append(out, 255)
			}
			out = append(out, byte(rest))
		}
		out = append(out, byte(near))
		if far {
			out = binary.BigEndian.AppendUint16(out, uint16(distance-8191))
		}
		at += n
	}
	flush()
	return out
}
