package crops

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
	"github.com/lsiofs/lsiofs/uring"
)

// noted announces what a reader wants, and returns how many blocks are noted of it.
func (m *made) noted(reader uint64, blocks []storage.Block) int {
	m.Want(reader, blocks)
	return m.future.readers[reader].blocks.len()
}

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
		ranges := make([]storage.Block, len(order))
		for i, n := range order {
			ranges[i] = storage.Block{Object: m.object, OffsetBytes: int64(len(c.header)) + int64(n)*c.row.Bytes, SizeBytes: c.row.Bytes}
		}
		if told {
			require.Equal(t, len(ranges), m.noted(1, ranges))
		}
		for i, r := range ranges {
			if told {
				m.Passed(1, ranges[i:i+1])
			}
			got, err := m.read(r.OffsetBytes, r.SizeBytes, 0)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want[r.OffsetBytes:][:r.SizeBytes], got))
		}
		decoded[told] = m.Stats().Decoded
		m.Drop(1)
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
	var ranges []storage.Block
	for n := range int64(c.Cut.Total()) {
		ranges = append(ranges, storage.Block{Object: m.object, OffsetBytes: int64(len(c.header)) + n*c.row.Bytes, SizeBytes: c.row.Bytes})
	}
	first := m.noted(1, ranges)
	require.Positive(t, first)
	require.Less(t, first, len(ranges))
	require.Zero(t, m.noted(2, ranges))
	m.Passed(1, ranges[:first/2])
	require.Positive(t, m.noted(2, ranges))
	m.Passed(2, ranges)
	m.Passed(3, ranges[:1])
	m.Drop(3)
	m.Drop(2)
	require.Equal(t, first-first/2, m.future.readers[1].blocks.len())
	require.Greater(t, m.noted(1, ranges[first/2:]), first-first/2, "there is room for more")
	require.Equal(t, 1, m.noted(1, ranges[:1]), "another list replaces it")
	m.Drop(1)
	require.Zero(t, m.cells.Stats().Wanted)
	require.Zero(t, m.cells.Stats().Blocks)
	require.Equal(t, 1, m.noted(1, ranges[:1]), "there is room again")
	m.Drop(1)
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
		ranges := make([]storage.Block, len(order))
		for i, n := range order {
			ranges[i] = storage.Block{Object: m.object, OffsetBytes: int64(len(c.header)) + int64(n)*c.row.Bytes, SizeBytes: c.row.Bytes}
		}
		last := ranges[len(ranges)-20:]
		if stands {
			require.Equal(t, 20, m.noted(2, last))
		}
		want := m.want()
		for range 3 {
			require.Equal(t, len(ranges), m.noted(1, ranges))
			for i, r := range ranges {
				m.Passed(1, ranges[i:i+1])
				got, err := m.read(r.OffsetBytes, r.SizeBytes, 0)
				require.NoError(t, err)
				require.True(t, bytes.Equal(want[r.OffsetBytes:][:r.SizeBytes], got))
			}
		}
		decoded[stands] = m.Stats().Decoded
		if stands { // it continues where it stopped
			require.Zero(t, m.future.readers[2].blocks.len())
			m.Passed(2, last[:15])
			next := append(slices.Clone(last[15:]), ranges[:4]...)
			require.Equal(t, 9, m.noted(2, next))
			m.Passed(2, next[:5])
			require.Equal(t, 4, m.future.readers[2].blocks.len(), "those that it has not passed")
			m.Passed(2, next[5:])
			require.Zero(t, m.future.readers[2].blocks.len())
		}
		m.Drop(1)
		m.Drop(2)
		require.Zero(t, m.future.chunks)
		require.Zero(t, m.cells.Stats().Wanted)
	}
	require.LessOrEqual(t, decoded[true], decoded[false]*21/20)
}

// With jitter, the same ranges of another epoch are cut from other chunks.
func TestSameRangesOfAnotherEpochAreAnotherList(t *testing.T) {
	a, z := small, smallCrops
	a.Codec, z.Jitter = encode.BloscLZ4, true
	m := open(t, a, z, uring.HugePageBytes)
	c := m.cubes["a.zarr"]
	of := func(epoch uint64) (blocks []storage.Block) {
		for n := range int64(c.Cut.Total()) {
			blocks = append(blocks, storage.Block{Object: m.object, OffsetBytes: int64(len(c.header)) + n*c.row.Bytes, SizeBytes: c.row.Bytes, Epoch: epoch})
		}
		return blocks
	}
	m.Want(1, of(0))
	m.Want(2, of(1))
	differ := func() (n int) {
		x, y := &m.future.readers[1].blocks, &m.future.readers[2].blocks
		require.Equal(t, y.len(), x.len())
		for i := range x.len() {
			if !slices.Equal(x.at(i).cells, y.at(i).cells) {
				n++
			}
		}
		return n
	}
	require.Positive(t, differ())
	m.Want(1, of(1))
	require.Zero(t, differ())
	m.Drop(1)
	m.Drop(2)
	require.Zero(t, m.cells.Stats().Wanted)
}
