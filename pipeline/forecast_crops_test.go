package pipeline

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// The memory with which chunks are decoded about once is the least with which an LRU memory decodes
// at most one in 20 again.
func TestForecastOfMemoryIsThatOfLRUCache(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bytes := []int64{10, 3, 25} // by field
		list := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) chunkUse {
			return chunkUse{0, rapid.IntRange(0, 2).Draw(t, "field"), rapid.Int64Range(0, 6).Draw(t, "chunk")}
		}), 0, 300).Draw(t, "uses")
		u := newChunkUses()
		for _, b := range list {
			u.add(b, bytes[b.field])
		}
		decodedWith := func(memory int64) (decoded uint64) {
			var kept []chunkUse // the most recently used one last
			for _, b := range list {
				if i := slices.Index(kept, b); i >= 0 {
					kept = slices.Delete(kept, i, i+1)
				} else {
					decoded++
				}
				kept = append(kept, b)
				// The LRU keeps the longest suffix of what was used, in that order, that fits.
				for sum := int64(0); ; sum = 0 {
					for _, x := range kept {
						sum += bytes[x.field]
					}
					if sum <= memory || len(kept) == 0 {
						break
					}
					kept = kept[1:]
				}
			}
			return decoded
		}
		least := u.once()
		require.LessOrEqual(t, decodedWith(least), u.distinct+u.distinct/20)
		if least > 0 {
			require.Greater(t, decodedWith(least-1), u.distinct+u.distinct/20)
		}
	})
}

// The figures for crops of a small array, counted by hand. Crops of 6×10×12, 4×8×8 apart, touch 2
// or 3 chunks of 4 in time, and 1 or 2 of 16 in y and in x.
func TestForecastOfCrops(t *testing.T) {
	dir := t.TempDir()
	writeCube(t, dir, 0, 20)
	s := cropSpec(t, dir)
	s.Format.Zarr.Jitter = false
	s.Order.Shuffle = spec.ShuffleNone
	d := open(t, s)
	f, err := d.ForecastCrops(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 48, f.Records)
	require.EqualValues(t, 6*10*12*4, f.RecordBytes)
	g, release := d.acquire()
	defer release()
	require.Equal(t, g.mount.crops.MostHeldBytes(), f.MemoryBytes)
	require.Less(t, f.MemoryBytes, s.MemoryBytes/2, "some of it is for indexes, and for what is being decoded")
	require.Greater(t, f.MemoryBytes, s.MemoryBytes/4)
	// Origins in time are 0, 4, 8, 12: 2 chunks each. In y they are 0, 8, 16, 24: 1, 2, 1, 2
	// chunks. In x they are 0, 8, 16: 1, 2, 1.
	require.Equal(t, 2*1.5*4/3, f.ChunksWanted)
	require.Equal(t, f.ChunksWanted*4*16*16*4, f.WantedBytes)
	x := f.Fields[0]
	require.Equal(t, []float64{2 * 4 / 6., 1.5 * 16 / 10., 4. / 3 * 16 / 12.}, x.DecodedAlong)
	require.Equal(t, []string{"time", "y", "x"}, x.Dims)
	require.EqualValues(t, 3*2*1, x.Objects)
	require.EqualValues(t, 3*2*1, x.Stored)
	var shuffles []spec.Shuffle
	for _, o := range f.Orders {
		shuffles = append(shuffles, o.Shuffle)
		// 5×3×2 chunks without the one that is absent, and memory for all of them.
		require.Equal(t, 29/48., o.Chunks)
		require.Equal(t, 29/48.*4096, o.Bytes)
		require.LessOrEqual(t, o.OnceBytes, int64(30*4096))
	}
	require.Equal(t, []spec.Shuffle{spec.ShuffleNone, spec.ShuffleBlock, spec.ShuffleFull}, shuffles)
	require.True(t, f.Orders[0].InUse)
	require.Less(t, f.Orders[0].OnceBytes, f.Orders[2].OnceBytes, "neighbours come one after the other")

	plain, err := open(t, testSpec(t, makeLines(t))).ForecastCrops(t.Context())
	require.NoError(t, err)
	require.Nil(t, plain)
}
