package zarr

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// encoded is an index with these entries.
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
	const objectBytes, brickBytes = 1 << 20, 1000
	entries := [][2]uint64{{100, 50}, {math.MaxUint64, math.MaxUint64}, {0, objectBytes}, {objectBytes, 0}}
	entries[2][1] = 2*brickBytes + 64<<10
	for _, l := range []Level{{}, {Checksum: true}, {Big: true}, {Big: true, Checksum: true, AtStart: true}} {
		l.Object, l.Brick = []int64{4, 6}, []int64{2, 3}
		index := encoded(l, entries)
		require.EqualValues(t, len(index), l.IndexBytes())
		places := make([]Place, 4)
		require.NoError(t, l.ParseIndex(places, index, objectBytes, brickBytes))
		require.Equal(t, []Place{{100, 50}, {-1, 0}, {0, 2*brickBytes + 64<<10}, {objectBytes, 0}}, places)
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
			err := l.ParseIndex(places, index, objectBytes, brickBytes)
			if l.Checksum {
				require.ErrorIs(t, err, errIndexChecksum, "byte %d", i)
			}
			index[i] ^= 0x10
		}
		require.Error(t, l.ParseIndex(places, index[1:], objectBytes, brickBytes))
		for _, bad := range [][2]uint64{
			{objectBytes, 1}, {0, objectBytes + 1}, {math.MaxUint64, 0}, {0, math.MaxUint64}, {math.MaxUint64 - 1, math.MaxUint64}, {1 << 63, 1 << 63},
			{math.MaxUint64 - 9, 20}, {0, 2*brickBytes + 64<<10 + 1},
		} {
			all := append([][2]uint64{bad}, entries[1:]...)
			require.Error(t, l.ParseIndex(places, encoded(l, all), objectBytes, brickBytes), "%v", bad)
		}
	}
}

func FuzzShardIndex(f *testing.F) {
	l := Level{Object: []int64{4}, Brick: []int64{2}}
	f.Add(encoded(l, [][2]uint64{{1, 2}, {math.MaxUint64, math.MaxUint64}}), int64(100))
	f.Fuzz(func(t *testing.T, index []byte, objectBytes int64) {
		objectBytes &= math.MaxInt64
		places := make([]Place, 2)
		if l.ParseIndex(places, index, objectBytes, 1000) != nil {
			return
		}
		for _, p := range places {
			require.True(t, p.Absent() || p.SizeBytes >= 0 && p.SizeBytes <= objectBytes-p.OffsetBytes && p.SizeBytes <= Bound(1000))
		}
	})
}
