package stream

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// places locates each record by its shard, ordinal and epoch.
type places struct{}

func (places) Locate(dst []int64, shard int, ordinal, epoch uint64) {
	copy(dst, []int64{int64(shard), int64(ordinal), int64(epoch)})
}

// naiveCrops returns a worker's whole file of kind Crops, made at once.
func naiveCrops(m *memory, records []uint64) []byte {
	text := fmt.Sprintf("{'descr': '<i8', 'fortran_order': False, 'shape': (%d, 3), }", len(records))
	for (10+len(text)+1)%64 != 0 {
		text += " "
	}
	text += "\n"
	file := append([]byte("\x93NUMPY\x01\x00"), byte(len(text)), byte(len(text)>>8))
	file = append(file, text...)
	for _, r := range records {
		for _, n := range []uint64{r % uint64(m.shards), r / uint64(m.shards), 3} {
			file = binary.LittleEndian.AppendUint64(file, n)
		}
	}
	return file
}

// The file of kind Crops is an npy file whose bytes don't depend on the sizes of reads. It has a
// row for each record of the worker's file, including padding.
func TestCropsFileHasOneRowPerRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawDataset(t)
		v := drawView(t, len(m.bytes)) // epoch 3
		src := newSource(m, m.open)
		defer src.Close()
		require.NoError(t, src.SetCrops(3, func() Locate { return places{}.Locate }))
		set := src.Set(v, nil)
		ctx, rng := context.Background(), rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "reads"), 1))
		for w := range v.Deal().Workers {
			records := make([]uint64, v.Count(w))
			v.Records(w, 0, records)
			want := naiveCrops(m, records)
			size, err := set.SizeBytes(ctx, w, Crops)
			require.NoError(t, err)
			require.EqualValues(t, len(want), size)
			h := set.Open(w, Crops)
			var r Reply
			for off := int64(0); off < size; {
				n := 1 + rng.IntN(200)
				require.NoError(t, h.ReadAt(ctx, &r, off, n))
				got := bytes.Join(r.Slices, nil)
				r.Release()
				require.Equal(t, want[off:min(off+int64(n), size)], got)
				off += int64(len(got))
			}
			h.Close()
			head := int64(len(want)) - 24*int64(len(records))
			for range 5 {
				mark := rng.Int64N(size + 1)
				n, err := set.WholeRecords(ctx, w, Crops, mark)
				require.NoError(t, err)
				require.Equal(t, min(v.Own(w), uint64(max(mark-head, 0)/24)), n)
			}
		}
	})
}

// Records that are not crops have no such file.
func TestOnlyCropsHaveACropsFile(t *testing.T) {
	m := &memory{shards: 1, lends: 1, bytes: [][]byte{{1}}, hashes: []uint64{0}}
	src := newSource(m, m.open)
	defer src.Close()
	set := src.Set(defaultView(t, 0, 1), nil)
	_, err := set.SizeBytes(context.Background(), 0, Crops)
	require.ErrorContains(t, err, "not crops")
	require.Panics(t, func() { set.Open(0, Crops) })
}
