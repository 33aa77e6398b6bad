package zarr

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// encoded returns an index with these entries.
func encoded(l Level, entries [][2]uint64) []byte {
	order := binary.AppendByteOrder(binary.LittleEndian)
	if l.Big {
		order = binary.BigEndian
	}
	var b []byte
	for _, e := range entries {
		b = order.AppendUint64(order.AppendUint64(b, e[0]), e[1])
	}
	if l.Checksum {
		b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	}
	return b
}

func TestShardIndexes(t *testing.T) {
	const objectBytes, indexBytes, most = 1 << 20, 4*16 + 4, 2*1000 + 64<<10
	chunk := Size{Bound(1000), false}
	entries := [][2]uint64{{100, 50}, {math.MaxUint64, math.MaxUint64}, {indexBytes, most}, {objectBytes - indexBytes - 1, 1}}
	for _, l := range []Level{{}, {Checksum: true}, {Big: true}, {Big: true, Checksum: true, AtStart: true}} {
		l.Object, l.Chunk = []int64{4, 6}, []int64{2, 3}
		index := encoded(l, entries)
		require.EqualValues(t, len(index), l.IndexBytes())
		places := make([]Place, 4)
		require.NoError(t, l.ParseIndex(places, index, objectBytes, chunk))
		require.Equal(t, []Place{{100, 50}, {-1, 0}, {indexBytes, most}, {objectBytes - indexBytes - 1, 1}}, places)
		require.True(t, places[1].Absent() && !places[0].Absent())

		at, err := l.IndexOffset(objectBytes)
		require.NoError(t, err)
		if l.AtStart {
			require.Zero(t, at)
		} else {
			require.Equal(t, objectBytes-l.IndexBytes(), at)
		}
		_, err = l.IndexOffset(l.IndexBytes() - 1)
		require.ErrorContains(t, err, "cut off")

		for i := range index {
			index[i] ^= 0x10
			err := l.ParseIndex(places, index, objectBytes, chunk)
			if l.Checksum {
				require.ErrorIs(t, err, errIndexChecksum, "byte %d", i)
			}
			index[i] ^= 0x10
		}
		require.Error(t, l.ParseIndex(places, index[1:], objectBytes, chunk))
		for _, bad := range [][2]uint64{
			{objectBytes, 1}, {0, objectBytes + 1}, {math.MaxUint64, 0}, {0, math.MaxUint64}, {math.MaxUint64 - 1, math.MaxUint64}, {1 << 63, 1 << 63},
			{math.MaxUint64 - 9, 20}, {200, most + 1}, {200, 0}, {objectBytes, 0},
		} {
			all := append([][2]uint64{bad}, entries[1:]...)
			require.Error(t, l.ParseIndex(places, encoded(l, all), objectBytes, chunk), "%v", bad)
		}
		for _, bad := range [][2]uint64{{uint64(at), 1}, {uint64(at + l.IndexBytes() - 1), 1}, {uint64(max(at-1, 0)), 2}} {
			all := append([][2]uint64{bad}, entries[1:]...)
			require.ErrorContains(t, l.ParseIndex(places, encoded(l, all), objectBytes, chunk), "where the index itself is")
		}
		require.ErrorContains(t, l.ParseIndex(places, index, objectBytes, Size{50, true}), "67536 bytes for chunk 2, and a chunk has 50")
	}
}

func TestPositionsSharingBytes(t *testing.T) {
	absent := Place{-1, 0}
	for _, c := range []struct {
		places []Place
		want   string
	}{
		{nil, ""},
		{[]Place{absent, {5, 5}, absent, {0, 5}, {10, 1}}, ""},
		{[]Place{{5, 5}, {0, 6}}, "chunk 1 at [0, 6) and chunk 0 at [5, 10), which share bytes"},
		{[]Place{{0, 9}, absent, {20, 1}, {3, 2}}, "chunk 0 at [0, 9) and chunk 3 at [3, 5)"},
		{[]Place{{7, 3}, {7, 3}, {7, 3}}, ""},
		{[]Place{{7, 3}, {7, 3}, {8, 1}}, "chunk 2 at [8, 9)"},
	} {
		err := CheckOverlap(c.places)
		if c.want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, c.want, "%v", c.places)
	}
}

func TestPositionsInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.IntRange(1, 62).Draw(t, "bits")
		places := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Place {
			return Place{rapid.Int64Range(-1, 1<<bits).Draw(t, "at"), 1}
		}), 0, 40).Draw(t, "places")
		var want []int32
		for i, p := range places {
			if !p.Absent() {
				want = append(want, int32(i))
			}
		}
		slices.SortStableFunc(want, func(i, j int32) int { return cmp.Compare(places[i].OffsetBytes, places[j].OffsetBytes) })
		got := inOrder(places)
		require.Len(t, got, len(want))
		for n := range want {
			require.Equal(t, want[n], got[n])
		}
	})
}

func FuzzShardIndex(f *testing.F) {
	l := Level{Object: []int64{4}, Chunk: []int64{2}}
	f.Add(encoded(l, [][2]uint64{{1, 2}, {math.MaxUint64, math.MaxUint64}}), int64(100))
	f.Fuzz(func(t *testing.T, index []byte, objectBytes int64) {
		objectBytes &= math.MaxInt64
		places := make([]Place, 2)
		if l.ParseIndex(places, index, objectBytes, Size{Bound(1000), false}) != nil {
			return
		}
		for _, p := range places {
			require.True(t, p.Absent() || p.SizeBytes > 0 && p.SizeBytes <= objectBytes-l.IndexBytes()-p.OffsetBytes && p.SizeBytes <= Bound(1000))
		}
		x, y := places[0], places[1]
		apart := x.Absent() || y.Absent() || x == y || x.end() <= y.OffsetBytes || y.end() <= x.OffsetBytes
		require.Equal(t, apart, CheckOverlap(places) == nil, "%v", places)
	})
}

// BenchmarkCheckOverlap is the cost of checking a shard's places when a dataset is indexed, in
// addition to reading them.
func BenchmarkCheckOverlap(b *testing.B) {
	for _, order := range []string{"in order", "at random", "along a Morton curve"} {
		b.Run(fmt.Sprintf("chunks=4096/%s", order), func(b *testing.B) {
			places := make([]Place, 4096)
			perm := rand.New(rand.NewPCG(1, 1)).Perm(len(places))
			for i := range places {
				at := i
				switch order {
				case "at random":
					at = perm[i]
				case "along a Morton curve": // of 16·16·16
					at = 0
					for bit := range 4 {
						at |= i>>bit&1<<(3*bit) | i>>(4+bit)&1<<(3*bit+1) | i>>(8+bit)&1<<(3*bit+2)
					}
				}
				places[i] = Place{int64(at) * 1000, 1000}
			}
			for b.Loop() {
				if err := CheckOverlap(places); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
