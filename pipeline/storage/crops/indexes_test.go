package crops

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

// nested are arrays with shards in shards, of two and of three levels.
func nested() map[string]encode.Array {
	two := small
	two.Object, two.Shards = []int64{8, 32, 96}, [][]int64{{8, 16, 32}}
	start := two
	start.IndexAtStart, start.NoChecksum, start.Codec = true, true, encode.BloscLZ4
	three := small
	three.Object, three.Shards, three.Codec = []int64{16, 64, 64}, [][]int64{{8, 64, 32}, {8, 16, 16}}, encode.Zstd
	return map[string]encode.Array{"two": two, "index at start": start, "three": three}
}

// A memory of 1 byte keeps only one index, so all levels are read again and again.
func TestAnyRangeOfNestedShardsHasElementsOfItsCrops(t *testing.T) {
	for name, a := range nested() {
		for _, memory := range []int64{1, 1 << 20} {
			t.Run(fmt.Sprint(name, ", ", memory), func(t *testing.T) {
				m := open(t, a, smallCrops, memory)
				require.NoError(t, m.Check(t.Context(), m.object))
				want := m.want()
				whole, err := m.read(0, m.object.SizeBytes, 0)
				require.NoError(t, err)
				require.True(t, bytes.Equal(want, whole))
				rapid.Check(t, func(t *rapid.T) {
					n := rapid.Int64Range(1, min(3000, m.object.SizeBytes)).Draw(t, "n")
					off := rapid.Int64Range(0, m.object.SizeBytes-n).Draw(t, "off")
					got, err := m.read(off, n, 0)
					require.NoError(t, err)
					require.True(t, bytes.Equal(want[off:off+n], got), "[%d, %d)", off, off+n)
				})
			})
		}
	}
}

// An index that points outside its shard is an error for the reads that need it and for a check;
// the error names the shard. The same holds for a shard that is too short for its index, and for a
// wrong checksum.
func TestDamagedNestedIndexesNameTheirShard(t *testing.T) {
	two, start := nested()["two"], nested()["index at start"]
	// In the object, an index of 6 shards is last, or first; in a shard, one of 8 chunks.
	first := func(b []byte) (offset, size uint64) {
		outer := b[len(b)-16*6-4:]
		return binary.LittleEndian.Uint64(outer), binary.LittleEndian.Uint64(outer[8:])
	}
	for name, c := range map[string]struct {
		array  encode.Array
		damage func(b []byte)
		says   string
	}{
		"checksum": {two, func(b []byte) { offset, size := first(b); b[offset+size-1] ^= 1 }, "the shard index does not match its crc32c"},
		"out of its shard, in the object": {start, func(b []byte) {
			inner := b[binary.LittleEndian.Uint64(b):]
			binary.LittleEndian.PutUint64(inner, binary.LittleEndian.Uint64(b[8:])-5)
		}, "the shard index has chunk 0 at"},
		"shorter than its index": {start, func(b []byte) { binary.LittleEndian.PutUint64(b[8:], 100) }, "has 100 bytes, fewer than the 128 of its shard index"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, c.array)
			path := filepath.Join(dir, "c/0/0/0")
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			c.damage(b)
			require.NoError(t, os.WriteFile(path, b, 0o644))
			s := Wrap(openLocal(t, dir), Config{Spec: smallCrops, Base: "a.zarr", MemoryBytes: 1 << 20})
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			m := &made{Storage: s}
			m.list(t)
			err = m.Check(t.Context(), m.object)
			require.ErrorContains(t, err, "c/0/0/0: the shard at [")
			require.ErrorContains(t, err, c.says)
			_, err = m.read(0, m.object.SizeBytes, 0)
			require.ErrorContains(t, err, "c/0/0/0: the shard at [")
			require.ErrorContains(t, err, c.says)
			var named *storage.Error
			require.ErrorAs(t, err, &named)
		})
	}
}

// Converted elements are the same whatever is decoded at a time and cached: chunks, blocks, or
// ranges of uncompressed chunks.
func TestConvertedCropsDoNotDependOnDecodingUnit(t *testing.T) {
	z := smallCrops
	z.As, z.Scale, z.Offset = spec.AsFloat32, []spec.FieldNumber{{Value: 0.01}}, []spec.FieldNumber{{Value: -3}}
	for name, a := range map[string]encode.Array{
		"none": small, "blosc": {Codec: encode.BloscLZ4}, "small blocks": {Codec: encode.BloscLZ4, BlockBytes: 256}, "zstd": {Codec: encode.Zstd},
	} {
		for _, memory := range []int64{0, 1 << 20} {
			t.Run(fmt.Sprint(name, ", ", memory), func(t *testing.T) {
				codec, block := a.Codec, a.BlockBytes
				a := small
				a.Codec, a.BlockBytes = codec, block
				m := open(t, a, z, memory)
				header := len(m.cubes["a.zarr"].header)
				stored := m.want()
				want := bytes.Clone(stored[:header])
				for at := header; at < len(stored); at += 2 {
					x := float32(float32(binary.LittleEndian.Uint16(stored[at:]))*float32(0.01)) - 3
					want = binary.LittleEndian.AppendUint32(want, math.Float32bits(x))
				}
				require.EqualValues(t, len(want), m.object.SizeBytes)
				rapid.Check(t, func(t *rapid.T) {
					n := min(rapid.Int64Range(1, 9000).Draw(t, "n"), m.object.SizeBytes)
					off := rapid.Int64Range(0, m.object.SizeBytes-n).Draw(t, "off")
					got, err := m.read(off, n, 0)
					require.NoError(t, err)
					require.True(t, bytes.Equal(want[off:off+n], got), "[%d, %d)", off, off+n)
				})
			})
		}
	}
}
