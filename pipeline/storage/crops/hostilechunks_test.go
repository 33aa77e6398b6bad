package crops

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

// chunkBytes is the size of the only chunk of a store that writeOne writes.
const chunkBytes = 1 << 10

// writeOne writes a version 2 array with one chunk.
func writeOne(t *testing.T, codec string, stored []byte) string {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".zarray"), fmt.Appendf(nil, `{"zarr_format": 2, "shape": [%d], "chunks": [%d], "dtype": "|u1",
"compressor": {"id": %q}, "fill_value": 0, "order": "C", "filters": null}`, chunkBytes, chunkBytes, codec), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "0"), stored, 0o644))
	return dir
}

// readOne reads it, and returns how many bytes that allocated.
func readOne(t *testing.T, dir string) (got []byte, bytes int64, err error) {
	m, in := openStored(t, dir, Config{Spec: spec.Zarr{Crop: []spec.DimValue{{Value: chunkBytes}}}})
	first := allocated(func() { got, err = m.read(m.object.SizeBytes-chunkBytes, chunkBytes, 0) })
	require.Less(t, first, int64(4<<20), "with a decoder")
	bytes = allocated(func() { _, _ = m.read(m.object.SizeBytes-chunkBytes, chunkBytes, 0) })
	require.Less(t, in.bytes.Load(), int64(1<<20))
	return got, bytes, err
}

// compress are encoders for the codecs of version 2.
var compress = map[string]func(t *testing.T, b []byte) []byte{
	"gzip": func(t *testing.T, b []byte) []byte {
		return through(t, b, func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) })
	},
	"zlib": func(t *testing.T, b []byte) []byte {
		return through(t, b, func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) })
	},
	"zstd": func(t *testing.T, b []byte) []byte {
		w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
		require.NoError(t, err)
		defer func() { require.NoError(t, w.Close()) }()
		return w.EncodeAll(b, nil)
	},
	"lz4": func(t *testing.T, b []byte) []byte {
		out := make([]byte, lz4.CompressBlockBound(len(b)))
		n, err := lz4.CompressBlock(b, out, nil)
		require.NoError(t, err)
		return append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), out[:n]...)
	},
}

func through(t *testing.T, b []byte, to func(io.Writer) io.WriteCloser) []byte {
	var out bytes.Buffer
	w := to(&out)
	_, err := w.Write(b)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

func TestChunksDecodingToOtherSizeAreNamedAndBounded(t *testing.T) {
	for codec, encode := range compress {
		for name, size := range map[string]int{"right": chunkBytes, "nothing": 0, "one less": chunkBytes - 1, "one more": chunkBytes + 1, "16 MiB": 16 << 20} {
			t.Run(codec+", "+name, func(t *testing.T) {
				want := make([]byte, size)
				copy(want, "content")
				stored := encode(t, want)
				got, bytes, err := readOne(t, writeOne(t, codec, stored))
				require.Less(t, bytes, int64(1<<20))
				if size == chunkBytes {
					require.NoError(t, err)
					require.Equal(t, want, got)
					return
				}
				require.ErrorContains(t, err, "a.zarr: bytes [256, 1280): ")
				require.ErrorContains(t, err, fmt.Sprintf(": 0: chunk (0) at [0, %d): ", len(stored)))
				require.ErrorContains(t, err, ": copy the file again, or write it again")
				if len(stored) <= 2*chunkBytes+64<<10 {
					require.ErrorContains(t, err, codec+": ")
				}
			})
		}
	}
}

// A frame's claims about its size must not cause as much memory to be allocated.
func TestFramesClaimingHugeSizesAllocateLittle(t *testing.T) {
	le := binary.LittleEndian
	claims := map[string][2]string{
		// A frame of 2^60 bytes with a window of the same size, and one of 2^31 bytes with a window
		// of 128 MiB.
		"zstd, 2^60 bytes":  {"zstd", "\x28\xb5\x2f\xfd\xe0" + string(le.AppendUint64(nil, 1<<60)) + "\x01\x00\x00"},
		"zstd, a window":    {"zstd", "\x28\xb5\x2f\xfd\x00\xf8\x01\x00\x00"},
		"zstd, 128 MiB":     {"zstd", "\x28\xb5\x2f\xfd\x80\x88" + string(le.AppendUint32(nil, 1<<31)) + "\x01\x00\x00"},
		"lz4, 2^32-1 bytes": {"lz4", "\xff\xff\xff\xff\x10a"},
		"lz4, 0 bytes":      {"lz4", "\x00\x00\x00\x00"},
	}
	for name, c := range claims {
		t.Run(name, func(t *testing.T) {
			_, bytes, err := readOne(t, writeOne(t, c[0], []byte(c[1])))
			require.ErrorContains(t, err, ": 0: chunk (0) at [0, ")
			require.ErrorContains(t, err, c[0]+": ")
			require.Less(t, bytes, int64(1<<20))
		})
	}
}

// An object larger than any chunk can be is not read at all, nor is an empty one.
func TestImpossiblySizedObjectsAreNotRead(t *testing.T) {
	for size, want := range map[int64]string{0: "0 bytes are stored for a chunk of 1024 bytes", 1 << 40: "1099511627776 bytes are stored for a chunk of 1024 bytes"} {
		dir := writeOne(t, "zstd", nil)
		require.NoError(t, os.Truncate(filepath.Join(dir, "0"), size))
		_, bytes, err := readOne(t, dir)
		require.ErrorContains(t, err, want)
		require.Less(t, bytes, int64(1<<20))
	}
}

func TestInvalidBloscBuffersAreNamedAndBounded(t *testing.T) {
	le := binary.LittleEndian
	for name, c := range map[string]struct {
		lie  func(b []byte) []byte
		want string
	}{
		"more bytes":           {func(b []byte) []byte { le.PutUint32(b[4:], 1<<31); return b }, "the buffer has 2147483648 bytes decoded, and it must have 1024"},
		"fewer bytes":          {func(b []byte) []byte { le.PutUint32(b[4:], 1023); return b }, "the buffer has 1023 bytes decoded"},
		"no bytes":             {func(b []byte) []byte { le.PutUint32(b[4:], 0); return b }, "the buffer has 0 bytes decoded"},
		"blocks of none":       {func(b []byte) []byte { le.PutUint32(b[8:], 0); return b }, "blocks of 0 bytes"},
		"blocks of 1 byte":     {func(b []byte) []byte { le.PutUint32(b[8:], 1); return b }, "blocks don't fit"},
		"blocks of all bits":   {func(b []byte) []byte { le.PutUint32(b[8:], 1<<32-1); return b }, "blocks of 4294967295 bytes"},
		"a longer buffer":      {func(b []byte) []byte { le.PutUint32(b[12:], 1<<32-1); return b }, "the buffer has 4294967295 bytes by its header"},
		"a shorter buffer":     {func(b []byte) []byte { le.PutUint32(b[12:], 15); return b }, "the buffer has 15 bytes by its header"},
		"elements of none":     {func(b []byte) []byte { b[3] = 0; return b }, "elements have 0 bytes"},
		"another codec":        {func(b []byte) []byte { b[2] |= 0xe0; return b }, "codec 7"},
		"blosc2":               {func(b []byte) []byte { b[0] = 5; return b }, "blosc2 is not supported"},
		"a block in the head":  {func(b []byte) []byte { le.PutUint32(b[16:], 3); return b }, "block 0 begins at 3"},
		"a block at the end":   {func(b []byte) []byte { le.PutUint32(b[16:], uint32(len(b))); return b }, "block 0 begins at "},
		"a block behind":       {func(b []byte) []byte { le.PutUint32(b[16:], 1<<31); return b }, "block 0 begins at 2147483648"},
		"a stream of all bits": {func(b []byte) []byte { le.PutUint32(b[le.Uint32(b[16:]):], 1<<32-1); return b }, "a stream of -1 bytes"},
		"a long stream":        {func(b []byte) []byte { le.PutUint32(b[le.Uint32(b[16:]):], 1<<31-1); return b }, "a stream of 2147483647 bytes"},
		"a stream of none":     {func(b []byte) []byte { le.PutUint32(b[le.Uint32(b[16:]):], 0); return b }, "a stream of 0 bytes"},
		"a head alone":         {func(b []byte) []byte { return b[:16] }, "bytes by its header"},
		"half a head":          {func(b []byte) []byte { return b[:8] }, "8 bytes are not a buffer"},
	} {
		for _, blockBytes := range []int{256, 1024} {
			t.Run(fmt.Sprint(name, ", blocks of ", blockBytes), func(t *testing.T) {
				a := small
				a.Codec, a.Object, a.BlockBytes = encode.BloscLZ4, a.Chunk, blockBytes
				dir := t.TempDir()
				require.NoError(t, a.Write(dir, func(_ []int64, b []byte) bool { return true }))
				path := filepath.Join(dir, "c/0/0/0")
				b, err := os.ReadFile(path)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(path, c.lie(b), 0o644))
				m, _ := openStored(t, dir, Config{})
				first := int64(len(m.cubes["a.zarr"].header))
				_, err = m.read(first, 2, 0) // few elements: one block is decoded, if there are several
				require.ErrorContains(t, err, "c/0/0/0: chunk (0,0,0) at [0, ")
				require.ErrorContains(t, err, ": blosc: ")
				require.ErrorContains(t, err, c.want)
				require.ErrorContains(t, err, ": copy the file again, or write it again")
				require.Less(t, allocated(func() { _, _ = m.read(first, 2, 0) }), int64(1<<20))
			})
		}
	}
}
