package catalog

import (
	"fmt"
	"io"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// plainShard is a shard's index as plain slices.
type plainShard struct {
	extents []format.Extent
	members []format.Member // nil: not compressed
	points  []format.Point
	damage  *format.CorruptError
	decoded int64
	kind    string
	parts   bool
	losses  format.Losses
}

// drawShard draws a shard whose records overlap, have gaps, are all of one size, of many sizes, or
// huge.
func drawShard(t *rapid.T, keyed bool) plainShard {
	var s plainShard
	n := rapid.OneOf(rapid.IntRange(0, 5), rapid.IntRange(120, 140), rapid.IntRange(0, 700)).Draw(t, "records")
	size := rapid.SampledFrom([]*rapid.Generator[int64]{
		rapid.Just(int64(77)), rapid.Int64Range(1, 3), rapid.Int64Range(1, 5000), rapid.Int64Range(1, 1<<50),
	}).Draw(t, "sizes")
	gap := rapid.SampledFrom([]*rapid.Generator[int64]{
		rapid.Just(int64(0)), rapid.Just(int64(512)), rapid.Int64Range(0, 9), rapid.Int64Range(0, 1<<40), rapid.Just(int64(-1)),
	}).Draw(t, "gaps")
	at := rapid.Int64Range(0, 1000).Draw(t, "first")
	for range n {
		e := format.Extent{OffsetBytes: at, SizeBytes: size.Draw(t, "size")}
		if keyed {
			e.KeyHash = rapid.Uint64().Draw(t, "key")
			if rapid.IntRange(0, 9).Draw(t, "grows") == 0 {
				g := rapid.SampledFrom([]int64{512, 1024}).Draw(t, "growth")
				e.Growth = make([]int64, format.MaxDigits)
				for d := g / 100; d < format.MaxDigits; d++ {
					e.Growth[d] = g
				}
			}
		}
		s.extents = append(s.extents, e)
		at = e.OffsetBytes + e.SizeBytes + gap.Draw(t, "gap")
		at = max(at, e.OffsetBytes)
	}
	s.decoded = max(at+1, 1<<20) // a point may be one byte after the start of the last record
	if rapid.Bool().Draw(t, "compressed") {
		s.members = []format.Member{{DecodedBytes: 0, RawBytes: 0}}
		for i, e := range s.extents {
			switch rapid.IntRange(0, 7).Draw(t, "member") {
			case 0: // begins with the record, perhaps after empty ones
				s.members = append(s.members, format.Member{DecodedBytes: e.OffsetBytes, RawBytes: int64(10 * i)})
			case 1:
				s.members = append(s.members, format.Member{DecodedBytes: e.OffsetBytes, RawBytes: int64(10 * i)},
					format.Member{DecodedBytes: e.OffsetBytes, RawBytes: int64(10*i + 1)})
			case 2: // a point inside a record
				p := format.Point{DecodedBytes: e.OffsetBytes + 1, RawBits: int64(80*i + 13), CRC32: uint32(i), State: []byte(fmt.Sprint("state", i))}
				if n := len(s.points); n == 0 || s.points[n-1].DecodedBytes < p.DecodedBytes {
					s.points = append(s.points, p)
				}
			}
		}
	}
	s.kind = rapid.SampledFrom([]string{"", "V6", "<f4 (3, 224, 224)"}).Draw(t, "kind")
	if rapid.IntRange(0, 5).Draw(t, "damaged") == 0 {
		s.damage = &format.CorruptError{Record: int64(n), OffsetBytes: at, RawOffset: -1, Reason: "cut short"}
	}
	return s
}

// lost returns the shard's losses.
func (s *plainShard) lost() format.Losses {
	sum := format.Summary{Damage: s.damage}
	return sum.Lost()
}

func (s *plainShard) pack(t require.TestingT, keyed bool) index.Blob {
	p := index.NewPacker(keyed, s.members != nil, index.MaxPackedBytes)
	require.NoError(t, p.Add(format.Extent{OffsetBytes: 5, SizeBytes: 6, KeyHash: 7}))
	p.Restart()
	for _, e := range s.extents {
		require.NoError(t, p.Add(e))
	}
	sum := format.Summary{DecodedBytes: s.decoded, Members: s.members, Points: s.points, Kind: s.kind, Damage: s.damage, Parts: s.parts, Losses: s.losses}
	b, err := p.Finish(sum)
	require.NoError(t, err)
	return b
}

// isEntry is the naive rule of pipeline/order/SELECTION.md, Chunks.
func (s *plainShard) isEntry(i int) bool {
	return i == 0 || s.members == nil || slices.ContainsFunc(s.members, func(m format.Member) bool {
		return m.DecodedBytes == s.extents[i].OffsetBytes
	})
}

// sealShards makes a catalog of shards in memory, as Open does.
func sealShards(t require.TestingT, shards []plainShard, keyed bool) *Catalog {
	image := sealTo(t, &index.Store{}, shards, keyed)
	return &Catalog{image: image, coarse: newCoarse(image)}
}

// sealTo makes a sealed index.
func sealTo(t require.TestingT, s *index.Store, shards []plainShard, keyed bool) *index.Image {
	b := s.Begin("tar", nil)
	defer b.Close()
	c := index.Content{Format: "tar", Keyed: keyed}
	for i := range shards {
		o := storage.Object{Path: string(rune('a'+i)) + ".tar", SizeBytes: int64(i), Version: storage.Version{ModTimeNanos: 7, Inode: uint64(i)}}
		c.Shards = append(c.Shards, index.Shard{Object: o, Codec: uint32(min(1, len(shards[i].members))), Blob: shards[i].pack(t, keyed)})
	}
	c.Lines = func(w io.Writer) error { return datasetLines(w, spec.Format{Name: "tar"}, c.Shards) }
	image, err := b.Seal("a test", c)
	require.NoError(t, err)
	return image
}

func TestPackedShardsEqualPlainSlices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keyed := rapid.Bool().Draw(t, "keyed")
		shards := make([]plainShard, rapid.IntRange(1, 6).Draw(t, "shards"))
		for i := range shards {
			shards[i] = drawShard(t, keyed)
		}
		c := sealShards(t, shards, keyed)
		defer c.Close()
		var numbers []uint64
		var want []Extent
		var sizes []int64
		var keys []uint64
		for i, s := range shards {
			sh := c.Shard(i)
			require.EqualValues(t, len(want), sh.First)
			require.EqualValues(t, len(s.extents), sh.Records)
			require.Equal(t, s.decoded, sh.DecodedBytes)
			require.Equal(t, s.lost().First, c.image.Blob(uint64(i)).Losses().First)
			require.Equal(t, s.kind, string(c.image.Blob(uint64(i)).Kind()))
			entries := 0
			for o, e := range s.extents {
				numbers = append(numbers, uint64(len(want)))
				want = append(want, Extent{Shard: i, Ordinal: uint64(o), OffsetBytes: e.OffsetBytes, SizeBytes: e.SizeBytes})
				sizes = append(sizes, e.SizeBytes)
				keys = append(keys, e.KeyHash)
				if s.isEntry(o) {
					entries++
				}
				checkGrowth(t, c, numbers[len(numbers)-1], e)
			}
			require.EqualValues(t, entries, sh.EntryPoints)
			checkEntries(t, c, i, &s)
		}
		require.EqualValues(t, len(want), c.Records())
		order := rapid.Permutation(indexes(len(want))).Draw(t, "order")
		runs := rapid.Bool().Draw(t, "runs")
		asked := make([]uint64, len(order))
		for i, o := range order {
			asked[i] = uint64(o)
			if runs {
				asked[i] = numbers[i]
			}
		}
		got, gotSizes, gotKeys := make([]Extent, len(asked)), make([]int64, len(asked)), make([]uint64, len(asked))
		c.Extents(asked, got)
		c.Sizes(asked, gotSizes)
		require.Equal(t, keyed, c.KeyHashes(asked, gotKeys))
		for i, r := range asked {
			require.Equal(t, want[r], got[i])
			require.Equal(t, sizes[r], gotSizes[i])
			if keyed {
				require.Equal(t, keys[r], gotKeys[i])
			}
		}
	})
}

func indexes(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

func checkGrowth(t *rapid.T, c *Catalog, record uint64, e format.Extent) {
	for _, position := range []uint64{0, 9, 10, 99999, math.MaxUint64} {
		want := int64(0)
		if e.Growth != nil {
			want = e.Growth[digits(position)-1]
		}
		require.Equal(t, want, c.Growth(record, position), "record %d at position %d", record, position)
	}
}

func checkEntries(t *rapid.T, c *Catalog, shard int, s *plainShard) {
	if s.members == nil {
		return
	}
	require.EqualValues(t, len(s.members), c.Shard(shard).Members)
	for _, e := range s.extents {
		for _, at := range []int64{e.OffsetBytes, e.OffsetBytes + e.SizeBytes - 1} {
			want := format.Entry{}
			for _, m := range s.members {
				if m.DecodedBytes <= at {
					want = format.Entry{DecodedBytes: m.DecodedBytes, RawBytes: m.RawBytes}
				}
			}
			member := want
			for i, p := range s.points {
				if p.DecodedBytes <= at && p.DecodedBytes > member.DecodedBytes {
					want = format.Entry{DecodedBytes: p.DecodedBytes, RawBytes: p.RawBits / 8, Point: i + 1}
					p.MemberBytes, p.MemberRawBytes = p.DecodedBytes-member.DecodedBytes, member.RawBytes
					require.Equal(t, p, c.Point(shard, i+1))
					p.State = nil
					got, some := c.NextPoint(shard, p.DecodedBytes-1)
					require.True(t, some)
					require.Equal(t, p, got)
				}
			}
			require.Equal(t, want, c.Entry(shard, at), "byte %d", at)
		}
	}
}

func TestChunksAreCutByRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shards := make([]plainShard, rapid.IntRange(1, 4).Draw(t, "shards"))
		for i := range shards {
			shards[i] = drawShard(t, false)
		}
		c := sealShards(t, shards, false)
		defer c.Close()
		chunkBytes := rapid.OneOf(rapid.Uint64Range(1, 100), rapid.Uint64Range(1, 1<<20)).Draw(t, "bytes")
		chunkRecords := rapid.Uint64Range(1, 300).Draw(t, "records")
		require.Equal(t, naiveStarts(shards, chunkBytes, chunkRecords, (*plainShard).isEntry), c.ChunkStarts(chunkBytes, chunkRecords))
		every := func(*plainShard, int) bool { return true }
		require.Equal(t, naiveStarts(shards, chunkBytes, chunkRecords, every), c.PieceStarts(chunkBytes, chunkRecords, 0))
	})
}

func naiveStarts(shards []plainShard, chunkBytes, chunkRecords uint64, isEntry func(*plainShard, int) bool) []uint64 {
	starts, total := []uint64{}, uint64(0)
	for _, s := range shards {
		for i := 0; i < len(s.extents); {
			starts = append(starts, total+uint64(i))
			var bytes, records uint64
			for bytes < chunkBytes && records < chunkRecords && i < len(s.extents) {
				bytes += uint64(s.extents[i].SizeBytes)
				records++
				i++
			}
			for i < len(s.extents) && !isEntry(&s, i) {
				i++
			}
		}
		total += uint64(len(s.extents))
	}
	return append(starts, total)
}

func TestHotAccessorsAllocateNothing(t *testing.T) {
	s := plainShard{decoded: 1 << 20}
	for i := range 1000 {
		s.extents = append(s.extents, format.Extent{OffsetBytes: int64(i) * 1000, SizeBytes: int64(1 + i%900), KeyHash: uint64(i)})
	}
	c := sealShards(t, []plainShard{s, s}, true)
	defer c.Close()
	numbers := []uint64{5, 6, 7, 1999, 0, 1000, 999, 555}
	extents, sizes, keys := make([]Extent, 8), make([]int64, 8), make([]uint64, 8)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		c.Extents(numbers, extents)
		c.Sizes(numbers, sizes)
		c.KeyHashes(numbers, keys)
		_ = c.Growth(1999, 12345)
	}))
}

func BenchmarkLookup(b *testing.B) {
	s := plainShard{}
	for k := range 1_000_000 {
		size := 600 + int64(k*2654435761>>7)%1200
		s.extents = append(s.extents, format.Extent{OffsetBytes: s.decoded, SizeBytes: size})
		s.decoded += size
	}
	c := sealShards(b, []plainShard{s, s, s, s}, false)
	defer c.Close()
	numbers := make([]uint64, 4096)
	for i := range numbers {
		numbers[i] = uint64(i) * 0x9E3779B97F4A7C15 % c.Records()
	}
	run := slices.Clone(numbers)
	for i := range run {
		run[i] = 1_500_000 + uint64(i)
	}
	extents, sizes := make([]Extent, len(numbers)), make([]int64, len(numbers))
	for _, bb := range []struct {
		name string
		call func()
	}{
		{"sizes=random", func() { c.Sizes(numbers, sizes) }},
		{"extents=random", func() { c.Extents(numbers, extents) }},
		{"extents=run", func() { c.Extents(run, extents) }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				bb.call()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(numbers)), "ns/record")
		})
	}
	b.Run("chunks", func(b *testing.B) {
		for b.Loop() {
			c.ChunkStarts(256<<10, 128)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(uint64(b.N)*c.Records()), "ns/record")
	})
}
