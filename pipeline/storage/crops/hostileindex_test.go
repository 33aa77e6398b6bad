package crops

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops/listing"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

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
		require.Equal(t, want, (&Storage{room: newRoom(0, 1)}).checks(f), "%d bricks", chunks)
		require.LessOrEqual(t, int64(want-1)*chunks*checkedEntryBytes, int64(checkedBytes))
	}
}
