package pipeline

import (
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

// mixedCrops mixes a source of two cubes and a source that is one cube.
func mixedCrops(t testing.TB) spec.Spec {
	dir := t.TempDir()
	writeCube(t, filepath.Join(dir, "two/a.zarr"), 1, 20)
	writeCube(t, filepath.Join(dir, "two/b.zarr"), 2, 33)
	writeCube(t, filepath.Join(dir, "one.zarr"), 0, 25)
	s := cropSpec(t, "")
	s.Mix.Sources = []spec.Source{
		{Name: "z", Weight: million(3), Dataset: filepath.Join(dir, "two")},
		{Name: "a", Weight: million(1), Dataset: filepath.Join(dir, "one.zarr")},
	}
	s.Order.Length = 512
	return s
}

// cropsRead returns each crop of a set: its cube, row and origin, and its elements.
func cropsRead(t testing.TB, set *stream.Set, workers int) (places [][5]int64, elements [][]byte) {
	const size = 6 * 10 * 12 * 4
	for w := range workers {
		n := set.View().Count(uint64(w))
		data := rowsOf(t, readFile(t, set, uint64(w), stream.Data, 1<<20), "<i4", ", 6, 10, 12", n)
		crops := rowsOf(t, readFile(t, set, uint64(w), stream.Crops, 1000), "<i8", ", 5", n)
		for k := range n {
			var at [5]int64
			for i := range at {
				at[i] = int64(binary.LittleEndian.Uint64(crops[40*k+8*uint64(i):]))
			}
			places, elements = append(places, at), append(elements, data[k*size:(k+1)*size])
		}
	}
	return places, elements
}

// Each record of a mixture is the crop of the cube and at the place given in the file next to it.
// Its cube counts in the whole mixture, by name of the source.
func TestEachCropOfAMixtureLiesWhereItsFileSays(t *testing.T) {
	s := mixedCrops(t)
	for _, memory := range []int64{1 << 20, 64 << 20} {
		s.MemoryBytes = memory
		d := open(t, s)
		require.Equal(t, []string{"a/one.zarr", "z/a.zarr", "z/b.zarr"}, d.Cubes())
		moved := map[string]bool{}
		for epoch := range uint64(3) {
			set, err := d.Set(context.Background(), epoch, nil, s.Deal)
			require.NoError(t, err)
			places, elements := cropsRead(t, set, int(s.Deal.Workers))
			require.Len(t, places, 512)
			from := map[bool]int{}
			for k, at := range places {
				from[at[0] == 0]++
				moved[fmt.Sprint(at)] = true
				for i := range int64(6 * 10 * 12) {
					time, y, x := at[2]+i/120, at[3]+i/12%10, at[4]+i%12
					value := elementAt(int(at[0]), time, y, x)
					if time < 4 && y < 16 && x < 16 {
						value = -1
					}
					require.Equal(t, value, int32(binary.LittleEndian.Uint32(elements[k][4*i:])), "epoch %d, crop %v, element %d", epoch, at, i)
				}
			}
			require.Equal(t, map[bool]int{true: 128, false: 384}, from)
		}
		require.Greater(t, len(moved), 500, "the 192 crops are elsewhere in each epoch")
		require.NotZero(t, d.Status().Cubes.Decoded)
	}
}

// A mixture of crops has the records of its sources, each in the order that the source has alone.
func TestAMixtureOfCropsHasTheOrdersOfItsSources(t *testing.T) {
	for _, shuffle := range []spec.Shuffle{spec.ShuffleBlock, spec.ShuffleFull, spec.ShuffleNone} {
		s := mixedCrops(t)
		s.Format.Zarr.Jitter, s.Order.Shuffle, s.Deal.Workers = false, shuffle, 1
		var alone [][][5]int64
		for m, x := range s.Mix.Sources {
			o := s
			o.Dataset, o.Mix, o.Order.Length = x.Dataset, spec.Mix{}, 0
			o.Order.Seed = naiveKey("source", s.Order.Seed, 0, uint64(m))
			d := open(t, o)
			var all [][5]int64
			for epoch := range uint64(10) {
				set, err := d.Set(context.Background(), epoch, nil, o.Deal)
				require.NoError(t, err)
				places, _ := cropsRead(t, set, 1)
				all = append(all, places...)
			}
			alone = append(alone, all)
		}
		d := open(t, s)
		for epoch := range uint64(2) {
			set, err := d.Set(context.Background(), epoch, nil, s.Deal)
			require.NoError(t, err)
			places, _ := cropsRead(t, set, 1)
			for p, at := range naiveMixture(s.Order.Seed, []uint64{million(3), million(1)}, epoch, 512) {
				want := alone[at[0]][at[1]]
				if at[0] == 0 { // the cubes of source z come after that of a
					want[0]++
				}
				require.Equal(t, want, places[p], "%s, position %d of epoch %d", shuffle, p, epoch)
			}
		}
	}
}

func TestAMixtureOfCropsIsResumedByOtherWorkers(t *testing.T) {
	s := mixedCrops(t)
	d := open(t, s)
	deal := s.Deal
	deal.Workers = 1
	set, err := d.Set(context.Background(), 2, nil, deal)
	require.NoError(t, err)
	whole, _ := cropsRead(t, set, 1)
	set, err = d.Set(context.Background(), 2, []order.Done{{Batch: 1, Consumed: []uint64{10, 30, 20}}}, deal)
	require.NoError(t, err)
	rest, _ := cropsRead(t, set, 1)
	var left [][5]int64
	for p, at := range whole {
		if uint64(p/3) >= []uint64{10, 30, 20}[p%3] {
			left = append(left, at)
		}
	}
	require.Equal(t, left, rest)
}

// Coordinates and dataset.json know the cubes of all sources by their paths in the mixture.
func TestAMixtureOfCropsHasTheCoordinatesOfAllSources(t *testing.T) {
	d := open(t, mixedCrops(t))
	for cube, times := range []uint64{25, 20, 33} {
		file, err := d.Coordinate(t.Context(), cube, "time")
		require.NoError(t, err)
		rows := rowsOf(t, file, "<f8", ",", times)
		require.EqualValues(t, 1000*cube, binary.LittleEndian.Uint64(rows))
	}
	text, err := d.Describe()
	require.NoError(t, err)
	require.Contains(t, string(text), `"z/b.zarr"`)
	require.Contains(t, string(text), `coords/a/one.zarr/time.npy`)
	r, err := d.VerifyShards(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, r.Findings)
	require.Equal(t, 3, r.Shards)
}

// All sources have crops of one kind, like the cubes of one dataset.
func TestCropsOfOtherKindsAreNotMixed(t *testing.T) {
	s, dir := mixedCrops(t), t.TempDir()
	other := encode.Array{
		Shape: []int64{20, cubeY, cubeX}, Object: []int64{8, 32, 32}, Chunk: []int64{4, 16, 16}, Dims: []string{"time", "y", "x"},
		DataType: "int16", ItemBytes: 2, Fill: -1, Codec: encode.BloscLZ4,
	}
	require.NoError(t, other.Write(filepath.Join(dir, "data"), func([]int64, []byte) bool { return true }))
	writeGroup(t, dir)
	s.Mix.Sources[1].Dataset = dir
	_, err := Open(t.Context(), s, Options{})
	require.ErrorContains(t, err, "the sources of a mixture must be of one kind: a differs from z: ")
}

// The forecast goes through the mixture's order: it wants the chunks of the records that the epoch
// has, and with memory for all of them decodes each once.
func TestForecastOfAMixtureOfCropsGoesThroughItsOrder(t *testing.T) {
	s := mixedCrops(t)
	s.Format.Zarr.Jitter, s.Deal.Workers, s.Epoch = false, 1, 1
	for _, memory := range []int64{2 << 20, 256 << 20} {
		for _, shuffle := range []spec.Shuffle{spec.ShuffleNone, spec.ShuffleBlock, spec.ShuffleFull} {
			s.Order.Shuffle, s.MemoryBytes = shuffle, memory
			d := open(t, s)
			f, err := d.ForecastCrops(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 512, f.Records)
			require.True(t, f.Orders[0].InUse)
			set, err := d.Set(context.Background(), 1, nil, s.Deal)
			require.NoError(t, err)
			places, _ := cropsRead(t, set, 1)
			wants, seen := 0, map[[4]int64]bool{}
			for _, at := range places {
				for time := at[2] / 4; time <= (at[2]+5)/4; time++ {
					for y := at[3] / 16; y <= (at[3]+9)/16; y++ {
						for x := at[4] / 16; x <= (at[4]+11)/16; x++ {
							wants++
							seen[[4]int64{at[0], time, y, x}] = true
						}
					}
				}
			}
			require.InDelta(t, float64(wants)/512, f.ChunksWanted, 1e-9)
			for cube := range int64(3) {
				delete(seen, [4]int64{cube}) // absent
			}
			if memory > 100<<20 {
				require.InDelta(t, float64(len(seen))/512, f.Orders[0].Chunks, 1e-9)
			} else {
				require.GreaterOrEqual(t, f.Orders[0].Chunks+1e-9, float64(len(seen))/512)
			}
		}
	}
}
