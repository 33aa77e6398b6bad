package encode

import (
	"encoding/binary"

	"github.com/pierrec/lz4/v4"
)

// defaultBlockBytes is between c-blosc's block sizes for lz4 and for zstd.
const defaultBlockBytes = 256 << 10

// Flags of a blosc buffer; the upper three bits are the number of its codec.
const (
	bloscShuffled = 0x01
	bloscLZ4      = 1 << 5
	bloscZstd     = 4 << 5
)

// blosc encodes a buffer of shuffled blocks.
func (w *writer) blosc(b []byte) ([]byte, error) {
	size := w.BlockBytes
	if size == 0 {
		size = defaultBlockBytes
	}
	size = min(size/w.ItemBytes*w.ItemBytes, len(b))
	flags := byte(bloscShuffled | bloscLZ4)
	if w.Codec == BloscZstd {
		flags = bloscShuffled | bloscZstd
	}
	out := []byte{2, 1, flags, byte(w.ItemBytes)}
	out = binary.LittleEndian.AppendUint32(out, uint32(len(b)))
	out = binary.LittleEndian.AppendUint32(out, uint32(size))
	out = append(out, 0, 0, 0, 0)
	blocks := (len(b) + size - 1) / size
	starts := len(out)
	out = append(out, make([]byte, 4*blocks)...)
	for i := range blocks {
		binary.LittleEndian.PutUint32(out[starts+4*i:], uint32(len(out)))
		block := b[i*size : min((i+1)*size, len(b))]
		streams := 1
		if w.ItemBytes <= 16 && size/w.ItemBytes >= 128 && len(block) == size {
			streams = w.ItemBytes
		}
		mixed := shuffle(block, w.ItemBytes)
		for n := len(mixed) / streams; len(mixed) > 0; mixed = mixed[n:] {
			packed, err := w.stream(mixed[:n])
			if err != nil {
				return nil, err
			}
			out = append(binary.LittleEndian.AppendUint32(out, uint32(len(packed))), packed...)
		}
	}
	binary.LittleEndian.PutUint32(out[12:], uint32(len(out)))
	return out, nil
}

// stream compresses a part of a block; if the result is not smaller, it stays uncompressed.
func (w *writer) stream(b []byte) ([]byte, error) {
	packed := b
	if w.Codec == BloscZstd {
		packed = w.zstd.EncodeAll(b, nil)
	} else {
		out := make([]byte, lz4.CompressBlockBound(len(b)))
		n, err := lz4.CompressBlock(b, out, nil)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			packed = out[:n]
		}
	}
	if len(packed) >= len(b) {
		return b, nil
	}
	return packed, nil
}

// shuffle puts the first bytes of all elements first, then all second bytes, and so on.
func shuffle(b []byte, itemBytes int) []byte {
	n := len(b) / itemBytes
	mixed := make([]byte, len(b))
	for i := range n {
		for j := range itemBytes {
			mixed[j*n+i] = b[i*itemBytes+j]
		}
	}
	copy(mixed[n*itemBytes:], b[n*itemBytes:])
	return mixed
}
