package uring

import (
	"encoding/binary"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// For any sequence of operations, slots have the size that was asked for and do not overlap, memory
// stays within the bound unless more was asked for, and in the end all of it is unmapped.
func TestSlotsAreApartAndWithinBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := ArenaConfig{BoundBytes: rapid.Int64Range(0, 8<<20).Draw(t, "bound"), SlabsFrom: rapid.SampledFrom([]int64{0, 1, 4 << 20}).Draw(t, "slabs"), LooseFrom: rapid.SampledFrom([]int64{0, 1 << 20}).Draw(t, "loose")}
		a := NewArena(c)
		type taken struct {
			slot   *Slot
			number uint64
		}
		var out []taken
		inUse, number := int64(0), uint64(0)
		sizes := []int64{16, 1000, 4096, 100 << 10, 1<<20 - 1000, 1 << 20, 1<<20 + 60<<10, 3 << 20}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				n, beyond := rapid.SampledFrom(sizes).Draw(t, "n"), rapid.IntRange(0, 9).Draw(t, "beyond") == 0
				before, room := a.MappedBytes(), a.HasRoom(n)
				s, err := a.Take(n, beyond)
				require.NoError(t, err)
				require.Equal(t, room || beyond, s != nil)
				if s == nil {
					return
				}
				if !beyond {
					require.LessOrEqual(t, a.MappedBytes(), max(before, a.BoundBytes()))
				}
				require.GreaterOrEqual(t, int64(len(s.Bytes)), n)
				if c.LooseFrom == 0 || n < c.LooseFrom {
					require.Len(t, s.Bytes, int(n))
				} else {
					require.LessOrEqual(t, int64(len(s.Bytes)), n+n/looseShare)
				}
				number++
				binary.LittleEndian.PutUint64(s.Bytes, number)
				binary.LittleEndian.PutUint64(s.Bytes[len(s.Bytes)-8:], number)
				out = append(out, taken{s, number})
				inUse += int64(len(s.Bytes))
			},
			"give": func(t *rapid.T) {
				if len(out) == 0 {
					return
				}
				i := rapid.IntRange(0, len(out)-1).Draw(t, "which")
				inUse -= int64(len(out[i].slot.Bytes))
				require.NoError(t, a.Give(out[i].slot))
				out = slices.Delete(out, i, i+1)
			},
			"bound": func(t *rapid.T) {
				a.Bound(rapid.Int64Range(0, 8<<20).Draw(t, "bound"))
				require.NoError(t, a.Trim(a.MappedBytes()-a.BoundBytes()))
				require.True(t, a.MappedBytes() <= a.BoundBytes() || a.FreeBytes() == 0)
			},
			"": func(t *rapid.T) {
				require.GreaterOrEqual(t, a.MappedBytes()-a.FreeBytes(), inUse)
				require.GreaterOrEqual(t, a.FreeBytes(), int64(0))
				for _, x := range out {
					require.Equal(t, x.number, binary.LittleEndian.Uint64(x.slot.Bytes))
					require.Equal(t, x.number, binary.LittleEndian.Uint64(x.slot.Bytes[len(x.slot.Bytes)-8:]))
				}
			},
		})
		for _, x := range out {
			require.NoError(t, a.Give(x.slot))
		}
		require.Equal(t, a.MappedBytes(), a.FreeBytes(), "nothing is in use")
		require.NoError(t, a.Close())
		require.Zero(t, a.MappedBytes())
	})
}

// What was given back is reused: in a steady state nothing is mapped.
func TestSlotsAreReused(t *testing.T) {
	for _, n := range []int64{512, 1 << 20, 3 << 20} {
		a := NewArena(ArenaConfig{BoundBytes: 6 << 20, SlabsFrom: 1})
		seen := map[*byte]bool{}
		for i := range 100 {
			x, err := a.Take(n, false)
			require.NoError(t, err)
			y, err := a.Take(n, false)
			require.NoError(t, err)
			first := i == 0
			require.Equal(t, first, !seen[unsafe.SliceData(x.Bytes)])
			require.Equal(t, first, !seen[unsafe.SliceData(y.Bytes)])
			seen[unsafe.SliceData(x.Bytes)], seen[unsafe.SliceData(y.Bytes)] = true, true
			require.NoError(t, a.Give(x))
			require.NoError(t, a.Give(y))
		}
		require.NoError(t, a.Close())
	}
}

// Small slots have huge pages if the bound has room for these, and otherwise share small pages.
func TestSmallSlotsShareTheirPages(t *testing.T) {
	a := NewArena(ArenaConfig{BoundBytes: HugePageBytes + 8192, SlabsFrom: 1})
	var out []*Slot
	for {
		s, err := a.Take(1024, false)
		require.NoError(t, err)
		if s == nil {
			break
		}
		out = append(out, s)
	}
	require.Len(t, out, (HugePageBytes+8192)/1024)
	require.EqualValues(t, HugePageBytes+8192, a.MappedBytes())
	for _, s := range out {
		require.NoError(t, a.Give(s))
	}
	large, err := a.Take(HugePageBytes+4096, false)
	require.NoError(t, err)
	require.NotNil(t, large, "what small slots had is unmapped for it")
	require.NoError(t, a.Give(large))
	require.NoError(t, a.Close())
}
