package crops

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops/listing"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

// A pipe, device or socket in the place of an object is found when objects are listed. If it
// appears later, it is found when the chunk that would be absent is made.
func TestPipeInPlaceOfObjectIsNotAbsentObject(t *testing.T) {
	a := small
	a.Object = a.Chunk
	for kind, do := range map[string]func(string) error{
		"a pipe":   func(p string) error { return unix.Mkfifo(p, 0o600) },
		"a device": func(p string) error { return os.Symlink("/dev/zero", p) },
		"a socket": func(p string) error { return unix.Mknod(p, unix.S_IFSOCK|0o600, 0) },
	} {
		t.Run(kind, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, a)
			path := filepath.Join(dir, "c/0/0/0")
			require.NoError(t, os.Remove(path))
			m := &made{Storage: Wrap(openLocal(t, dir), Config{Spec: smallCrops, Base: "a.zarr", MemoryBytes: 1 << 20})}
			t.Cleanup(func() { require.NoError(t, m.Storage.Close()) })
			m.list(t)
			require.NoError(t, do(path))
			err := m.List(t.Context(), func(string, bool) bool { return true }, func(storage.Object) error { return nil })
			require.ErrorIs(t, err, storage.ErrNoFile)
			require.ErrorContains(t, err, path)
			require.ErrorContains(t, err, "remove it")

			_, err = m.read(0, m.object.SizeBytes, 0)
			require.ErrorIs(t, err, storage.ErrNoFile)
			require.ErrorContains(t, err, path)
			require.ErrorContains(t, err, "remove it")
		})
	}
}

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

// allocated returns how many bytes do allocates, including those that are freed again.
func allocated(do func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// inside is a storage that fails the test if a read leaves its object.
type inside struct {
	storage.Storage
	t     *testing.T
	bytes atomic.Int64 // requested
}

func (s *inside) Caps() storage.Caps { return storage.Caps{} }

func (s *inside) Submit(reads []*storage.Read) {
	for _, r := range reads {
		n := int64(len(r.Buf))
		s.bytes.Add(n)
		if r.OffsetBytes < 0 || n > r.Object.SizeBytes || r.OffsetBytes > r.Object.SizeBytes-n {
			s.t.Errorf("%s: [%d, +%d) of %d bytes", r.Object.Path, r.OffsetBytes, n, r.Object.SizeBytes)
		}
	}
	s.Storage.Submit(reads)
}

// openStored opens an array that was written before.
func openStored(t *testing.T, dir string, c Config) (*made, *inside) {
	in := &inside{Storage: openLocal(t, dir), t: t}
	if c.Spec.Crop == nil {
		c.Spec = smallCrops
	}
	c.Base = "a.zarr"
	m := &made{dir: dir, Storage: Wrap(in, c)}
	t.Cleanup(func() { require.NoError(t, m.Storage.Close()) })
	m.list(t)
	return m, in
}

// setIndex replaces index entries of a shard of small. The shard has 2·2·2 chunks, and its index is
// at one of its ends.
func setIndex(t *testing.T, a encode.Array, path string, set func(entries [][2]uint64, size, index uint64)) {
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	n := 8 * 16
	if !a.NoChecksum {
		n += 4
	}
	at := len(b) - n
	if a.IndexAtStart {
		at = 0
	}
	le := binary.LittleEndian
	entries := make([][2]uint64, 8)
	for i := range entries {
		entries[i] = [2]uint64{le.Uint64(b[at+16*i:]), le.Uint64(b[at+16*i+8:])}
	}
	set(entries, uint64(len(b)), uint64(at))
	for i, e := range entries {
		le.PutUint64(b[at+16*i:], e[0])
		le.PutUint64(b[at+16*i+8:], e[1])
	}
	if !a.NoChecksum {
		le.PutUint32(b[at+8*16:], crc32.Checksum(b[at:at+8*16], crc32.MakeTable(crc32.Castagnoli)))
	}
	require.NoError(t, os.WriteFile(path, b, 0o644))
}

// The writer of a shard also writes its checksum, so the entries of an index are checked one by
// one. The check before a mount reports what is wrong, and so does a read without a check.
func TestInvalidIndexesAreNamedAndNeverFollowed(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(e [][2]uint64, size, index uint64)
		want string
		read bool // without a check, other bytes of the same object are read as the chunk
	}{
		"past the end":          {func(e [][2]uint64, size, _ uint64) { e[1][0] = size - e[1][1] + 1 }, "chunk 1 at [", false},
		"begins behind the end": {func(e [][2]uint64, size, _ uint64) { e[1] = [2]uint64{size + 1, 0} }, "chunk 1 at [", false},
		"overflows":             {func(e [][2]uint64, _, _ uint64) { e[1] = [2]uint64{math.MaxUint64 - 9, 20} }, "chunk 1 at [18446744073709551606, +20)", false},
		"huge":                  {func(e [][2]uint64, _, _ uint64) { e[1] = [2]uint64{1 << 63, 1 << 63} }, "chunk 1 at [9223372036854775808, +9223372036854775808)", false},
		"a huge size":           {func(e [][2]uint64, _, _ uint64) { e[1] = [2]uint64{0, 1 << 63} }, "chunk 1 at [0, +9223372036854775808)", false},
		"half absent":           {func(e [][2]uint64, _, _ uint64) { e[1][0] = math.MaxUint64 }, "chunk 1 at [18446744073709551615, ", false},
		"no bytes":              {func(e [][2]uint64, _, _ uint64) { e[1][1] = 0 }, "chunk 1 in 0 bytes", false},
		"in the index":          {func(e [][2]uint64, _, index uint64) { e[1] = [2]uint64{max(index, 1024) - 1016, 1024} }, "where the index itself is", false},
		"over another one":      {func(e [][2]uint64, _, _ uint64) { e[1][0] = e[0][0] + 1 }, "which share bytes", true},
	} {
		for _, codec := range []encode.Codec{encode.None, encode.BloscZstd} {
			for _, a := range []encode.Array{{}, {IndexAtStart: true, NoChecksum: true}} {
				t.Run(fmt.Sprint(name, ", ", codec, ", at the start, without a checksum: ", a.NoChecksum), func(t *testing.T) {
					b := small
					b.Codec, b.IndexAtStart, b.NoChecksum = codec, a.IndexAtStart, a.NoChecksum
					dir := t.TempDir()
					write(t, dir, b)
					setIndex(t, b, filepath.Join(dir, "c/0/0/0"), c.set)
					m, in := openStored(t, dir, Config{MemoryBytes: 1 << 20})
					err := m.Check(t.Context(), m.object)
					require.ErrorContains(t, err, "c/0/0/0: the shard index has chunk ")
					require.ErrorContains(t, err, c.want)
					require.ErrorContains(t, err, "copy or write these files again")
					require.ErrorContains(t, err, "--on-corrupt skip")
					if !c.read {
						_, err = m.read(0, m.object.SizeBytes, 0)
						require.ErrorContains(t, err, "a.zarr: bytes [0, ")
						require.ErrorContains(t, err, "c/0/0/0: the shard index has chunk 1")
						require.ErrorContains(t, err, c.want)
					}
					require.Less(t, in.bytes.Load(), int64(1<<20))
				})
			}
		}
	}
}

// Chunks at the same place, as a writer that stores equal ones once makes them, are not damage.
func TestChunksMayShareOnePosition(t *testing.T) {
	a := small
	a.Codec = encode.BloscLZ4
	dir := t.TempDir()
	absent := write(t, dir, a)
	setIndex(t, a, filepath.Join(dir, "c/0/0/0"), func(e [][2]uint64, _, _ uint64) { e[1] = e[0] })
	require.False(t, absent["[0 0 0]"] || absent["[0 0 1]"])
	m, _ := openStored(t, dir, Config{MemoryBytes: 1 << 20})
	require.NoError(t, m.Check(t.Context(), m.object))
	m.array, m.absent = a, absent
	whole, err := m.read(0, m.object.SizeBytes, 0)
	require.NoError(t, err)
	require.NotEqual(t, m.want(), whole)
}

// A sparse file may be long and empty: the memory of its indexes is still bounded.
func TestConcurrentlyCheckedIndexesAreBounded(t *testing.T) {
	for chunks, want := range map[int64]int{1: 32, 4096: 32, 1 << 17: 25, 1 << 20: 3, 1 << 24: 1} {
		f := &field{Field: &listing.Field{Array: &zarr.Array{Object: []int64{4 * chunks}, Chunk: []int64{4}}}}
		require.Equal(t, want, (&Storage{room: newRoom(0, 1)}).checks(f), "%d chunks", chunks)
		require.LessOrEqual(t, int64(want-1)*chunks*checkedEntryBytes, int64(checkedBytes))
	}
}
