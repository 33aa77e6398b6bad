package crops

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
	"github.com/lsiofs/lsiofs/uring"
)

// Chunks of part of an array are read in random order. If the coming reads are known, fewer chunks
// are decoded, and all bytes are the same.
func TestExpectedChunksAreDecodedLessOftenWithSameResult(t *testing.T) {
	a := small
	a.Codec = encode.BloscLZ4
	decoded := map[bool]uint64{}
	for _, told := range []bool{false, true} {
		m := open(t, a, smallCrops, uring.HugePageBytes)
		// Memory for a few chunks, each in its own pages.
		m.cells.Allow(6 * 4096)
		want, c := m.want(), m.cubes["a.zarr"]
		order := rand.New(rand.NewPCG(3, 4)).Perm(int(c.Cut.Total()))
		ranges := make([]storage.Range, len(order))
		for i, n := range order {
			ranges[i] = storage.Range{Object: m.object, OffsetBytes: int64(len(c.header)) + int64(n)*c.row.Bytes, SizeBytes: c.row.Bytes}
		}
		if told {
			require.Equal(t, len(ranges), m.Expect(1, ranges))
		}
		for _, r := range ranges {
			if told {
				m.Passed(1, 1)
			}
			got, err := m.read(r.OffsetBytes, r.SizeBytes, 0)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want[r.OffsetBytes:][:r.SizeBytes], got))
		}
		decoded[told] = m.Stats().Decoded
		m.Forget(1)
		require.Empty(t, m.future.readers)
		require.Zero(t, m.future.chunks)
		require.Zero(t, m.cells.Stats().Wanted)
	}
	require.Less(t, decoded[true], decoded[false]*9/10)
}

// What is remembered is bounded, whatever readers expect. What did not fit may be announced again.
func TestExpectationsAreBounded(t *testing.T) {
	a := small
	a.Codec = encode.BloscLZ4
	m := open(t, a, smallCrops, uring.HugePageBytes)
	m.future.maxChunks = 100
	c := m.cubes["a.zarr"]
	var ranges []storage.Range
	for n := range int64(c.Cut.Total()) {
		ranges = append(ranges, storage.Range{Object: m.object, OffsetBytes: int64(len(c.header)) + n*c.row.Bytes, SizeBytes: c.row.Bytes})
	}
	first := m.Expect(1, ranges)
	require.Positive(t, first)
	require.Less(t, first, len(ranges))
	require.Zero(t, m.Expect(2, ranges))
	m.Passed(1, first/2)
	require.Positive(t, m.Expect(2, ranges))
	m.Passed(2, 1000)
	m.Passed(3, 1)
	m.Forget(3)
	m.Forget(2)
	require.Zero(t, len(m.future.readers[1].ranges.items)-m.future.readers[1].ranges.head-(first-first/2))
	m.Forget(1)
	require.Zero(t, m.cells.Stats().Wanted)
	require.Zero(t, m.cells.Stats().Blocks)
	require.Equal(t, len(ranges[:1]), m.Expect(1, ranges[:1]), "there is room again")
	m.Forget(1)
}

// A reader that expects much and then stops reading does not keep memory from others: once they
// have passed the positions that it expected, nothing is kept for it.
func TestStalledReaderDoesNotRetainMemory(t *testing.T) {
	a := small
	a.Codec = encode.BloscLZ4
	decoded := map[bool]uint64{}
	for _, stands := range []bool{false, true} {
		m := open(t, a, smallCrops, uring.HugePageBytes)
		m.cells.Allow(6 * 4096)
		c := m.cubes["a.zarr"]
		order := rand.New(rand.NewPCG(3, 4)).Perm(int(c.Cut.Total()))
		ranges := make([]storage.Range, len(order))
		for i, n := range order {
			ranges[i] = storage.Range{Object: m.object, OffsetBytes: int64(len(c.header)) + int64(n)*c.row.Bytes, SizeBytes: c.row.Bytes}
		}
		if stands {
			require.Equal(t, 20, m.Expect(2, ranges[len(ranges)-20:]))
		}
		want := m.want()
		for range 3 {
			require.Equal(t, len(ranges), m.Expect(1, ranges))
			for _, r := range ranges {
				m.Passed(1, 1)
				got, err := m.read(r.OffsetBytes, r.SizeBytes, 0)
				require.NoError(t, err)
				require.True(t, bytes.Equal(want[r.OffsetBytes:][:r.SizeBytes], got))
			}
		}
		decoded[stands] = m.Stats().Decoded
		if stands { // it continues where it stopped
			m.Passed(2, 15)
			require.Equal(t, 4, m.Expect(2, ranges[:4]))
			m.Passed(2, 5)
			require.Equal(t, 4, m.future.readers[2].ranges.len(), "those that it has not passed")
			m.Passed(2, 4)
			require.Zero(t, m.future.readers[2].ranges.len())
		}
		m.Forget(1)
		m.Forget(2)
		require.Zero(t, m.future.chunks)
		require.Zero(t, m.cells.Stats().Wanted)
	}
	require.LessOrEqual(t, decoded[true], decoded[false]*21/20)
}
