package chunkmap

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// oneShard is an index of the extents of one shard, all in one piece; if odd is set, only those at
// odd positions are in the part.
type oneShard struct {
	Index   // nil: only the methods below are called
	shard   catalog.Shard
	extents []catalog.Extent
	odd     bool
}

func (x *oneShard) Shards() int             { return 1 }
func (x *oneShard) Shard(int) catalog.Shard { return x.shard }
func (x *oneShard) Extents(records []uint64, dst []catalog.Extent) {
	for i, r := range records {
		dst[i] = x.extents[r]
	}
}
func (x *oneShard) Has(record uint64) bool       { return !x.odd || record%2 == 1 }
func (x *oneShard) Count(from, to uint64) uint64 { panic("not asked for") }

func TestLayoutMapsPieceToItsBytes(t *testing.T) {
	for name, c := range map[string]struct {
		extents [][2]int64 // offset and size
		bytes   int64      // of the shard
		odd     bool
		want    Layout
	}{
		"side by side":        {[][2]int64{{10, 5}, {15, 5}}, 99, false, Layout{[]Range{{10, 10}}, []Span{{0, 5}, {5, 5}}, 10, false, 20}},
		"a gap comes along":   {[][2]int64{{10, 5}, {25, 5}}, 99, false, Layout{[]Range{{10, 20}}, []Span{{0, 5}, {15, 5}}, 20, false, 30}},
		"a gap does not":      {[][2]int64{{10, 5}, {26, 5}}, 99, false, Layout{[]Range{{10, 5}, {26, 5}}, []Span{{0, 5}, {5, 5}}, 10, false, 31}},
		"no last newline":     {[][2]int64{{10, 5}, {15, 5}}, 19, false, Layout{[]Range{{10, 9}}, []Span{{0, 5}, {5, 5}}, 10, true, 19}},
		"overlapping records": {[][2]int64{{10, 9}, {12, 4}}, 99, false, Layout{[]Range{{10, 9}}, []Span{{0, 9}, {2, 4}}, 9, false, 19}},
		"a part":              {[][2]int64{{10, 5}, {15, 5}, {20, 5}, {25, 5}}, 99, true, Layout{[]Range{{15, 15}}, []Span{{0, -1}, {0, 5}, {0, -1}, {10, 5}}, 15, false, 30}},
		"large: whole pages": {[][2]int64{{5000, 70_000}}, 100_000, false,
			Layout{[]Range{{4096, 73_728}}, []Span{{904, 70_000}}, 73_728, false, 75_000}},
		"large: up to the end": {[][2]int64{{5000, 70_000}}, 75_001, false,
			Layout{[]Range{{4096, 70_905}}, []Span{{904, 70_000}}, 70_905, false, 75_000}},
	} {
		t.Run(name, func(t *testing.T) {
			x := &oneShard{odd: c.odd, shard: catalog.Shard{Records: uint64(len(c.extents)), DecodedBytes: c.bytes, Object: storage.Object{SizeBytes: c.bytes}}}
			for _, e := range c.extents {
				x.extents = append(x.extents, catalog.Extent{OffsetBytes: e[0], SizeBytes: e[1]})
			}
			table, err := New([]uint64{0, uint64(len(c.extents))}, uint64(len(c.extents)))
			require.NoError(t, err)
			p := Map{Index: x, Table: table, Part: x}
			_, l := p.Layout(0, func(int) int64 { return 10 })
			require.Equal(t, c.want, l)
		})
	}
}

// The reads of a piece contain each of its bytes once, are no larger than suits the storage, and
// are split at its alignment.
func TestPiecesAreSplitIntoReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		align := int64(1) << rapid.IntRange(0, 12).Draw(t, "align")
		most := max(align*rapid.Int64Range(1, 100).Draw(t, "read"), (1000+align-1)&^(align-1))
		var l Layout
		at := int64(0)
		for range rapid.IntRange(1, 4).Draw(t, "ranges") {
			at += rapid.Int64Range(1, 10_000).Draw(t, "gap")
			size := rapid.Int64Range(0, 100_000).Draw(t, "size")
			l.Ranges = append(l.Ranges, Range{at, size})
			at += size
		}
		var reads []Range
		l.Reads(most, align, func(r Range) { reads = append(reads, r) })
		for _, r := range l.Ranges {
			n, cuts := 0, (r.SizeBytes+2*align)/most+2
			for end := r.OffsetBytes + r.SizeBytes; r.OffsetBytes < end; n++ {
				require.NotEmpty(t, reads)
				next := reads[0]
				require.Equal(t, r.OffsetBytes, next.OffsetBytes)
				require.Positive(t, next.SizeBytes)
				require.LessOrEqual(t, next.SizeBytes, most)
				if r.OffsetBytes += next.SizeBytes; r.OffsetBytes < end {
					require.Zero(t, r.OffsetBytes%align)
				}
				require.LessOrEqual(t, r.OffsetBytes, end)
				reads = reads[1:]
			}
			require.LessOrEqual(t, int64(n), cuts)
		}
		require.Empty(t, reads)
	})
}
