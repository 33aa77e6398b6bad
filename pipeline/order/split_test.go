package order

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// listedShards are shards as a catalog describes them.
type listedShards []naiveShard

func (l listedShards) Shards() int { return len(l) }

func (l listedShards) Shard(i int) Shard {
	return Shard{Records: uint64(len(l[i].entries)), ID: ID(l[i].path), Anywhere: !slices.Contains(l[i].entries, false)}
}

func (l listedShards) Entries(i int, word uint64) (set uint64) {
	entries := l[i].entries[word*64:]
	for bit, entry := range entries[:min(64, len(entries))] {
		if entry {
			set |= 1 << bit
		}
	}
	return set
}

func inTurn(work []func()) {
	for _, w := range work {
		w()
	}
}

func newPart(t require.TestingT, s spec.Split, shards Shards) *Part {
	p, err := NewPart(spec.Order{Split: s}, 0, shards, inTurn)
	require.NoError(t, err)
	return p
}

// numbers returns all records of a part.
func numbers(p *Part) []uint64 {
	all := make([]uint64, p.Len())
	for i := range all {
		all[i] = uint64(i)
	}
	p.Numbers(all)
	return all
}

func part(t require.TestingT, text string) spec.Part {
	p, err := spec.ParsePart(text)
	require.NoError(t, err)
	return p
}

func TestSplitVectors(t *testing.T) {
	v := readVectors(t)
	require.NotEmpty(t, v.Split)
	left := func(path string, ordinal, seed uint64, text string) bool {
		u := units{pick: pick{key: key("split", seed, 0, 0) ^ bits.ReverseBytes64(ID(path))}}
		u.from, u.count = part(t, text).Bounds()
		require.Equal(t, naiveInPart(path, seed, part(t, text))(ordinal), u.left(ordinal), "the naive implementation")
		return u.left(ordinal)
	}
	for _, c := range v.Split {
		require.Equal(t, c.In, left(c.Path, c.UnitOrdinal, c.SplitSeed, c.Part), "%+v", c)
	}
	require.NotEmpty(t, v.SplitCount)
	for _, c := range v.SplitCount {
		require.Equal(t, "0..99999", c.UnitOrdinals)
		shard := naiveShard{path: c.Path, entries: slices.Repeat([]bool{true}, 100_000)}
		p := newPart(t, spec.Split{Part: part(t, c.Part), Seed: c.SplitSeed, By: spec.SplitByRecord}, listedShards{shard})
		require.Equal(t, c.In, p.Len())
	}
}

var units3 = []spec.SplitBy{spec.SplitByRecord, spec.SplitByShard, spec.SplitByUnit}

// drawShards draws shards, and chunks that begin at entry points.
func drawShards(t *rapid.T) (shards []naiveShard, chunks []uint64) {
	most := rapid.SampledFrom([]int{3, 40, 400}).Draw(t, "records of a shard, at most")
	for i := range rapid.IntRange(1, 12).Draw(t, "shards") {
		s := naiveShard{path: fmt.Sprintf("%s/%d", strings.Repeat("d", i), i)}
		sparse := rapid.IntRange(0, 3).Draw(t, "entry points") * 7
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "shard's seed"), 1))
		n := r.IntN(most + 1)
		size := uint64(0)
		for ordinal := range n {
			entry := ordinal == 0 || sparse == 0 || r.IntN(sparse) == 0
			s.entries = append(s.entries, entry)
			if entry && size > 5 {
				chunks, size = append(chunks, size), 0
			}
			size++
		}
		if size > 0 {
			chunks = append(chunks, size)
		}
		shards = append(shards, s)
	}
	return shards, chunks
}

func drawPart(t *rapid.T) spec.Part {
	from := rapid.OneOf(rapid.Just(uint32(0)), rapid.Uint32Range(0, 999_999_999)).Draw(t, "from")
	return spec.Part{From: from, To: rapid.OneOf(rapid.Just(uint32(1_000_000_000)), rapid.Uint32Range(from+1, 1_000_000_000)).Draw(t, "to")}
}

func TestEveryOrderOfPartEqualsNaiveOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shards, chunks := drawShards(t)
		s := drawSettings(t)
		s.order.Split = spec.Split{Part: drawPart(t), Seed: rapid.Uint64().Draw(t, "split's seed"), By: rapid.SampledFrom(units3).Draw(t, "by")}.Or()
		s.order.Sample = spec.Subsample{Of: rapid.SampledFrom([]uint64{0, 0, 2, 3, 39}).Draw(t, "sample"), Seed: rapid.Uint64().Draw(t, "sample's seed")}.Or()
		p, err := NewPart(s.order, s.epoch, listedShards(shards), inTurn)
		require.NoError(t, err)
		left := []uint64{}
		if p == nil {
			for record := range startsOf(chunks)[len(chunks)] {
				left = append(left, record)
			}
		} else {
			left = append(left, naiveSampled(s.order, s.epoch, shards)...)
			require.True(t, slices.Equal(left, numbers(p)))
		}
		e, err := NewEpoch(s.order, s.epoch, p.Starts(startsOf(chunks)), p)
		require.NoError(t, err)
		require.Equal(t, uint64(len(left)), e.Len())
		s.g = naivePartG(s.order, s.epoch, chunks, left)
		require.True(t, slices.Equal(s.g, walk(t, e.Cursor(0), len(left), rapid.IntRange(1, 400).Draw(t, "step"))))

		done, rest := s.drawDone(t)
		deal := s.drawDeal(t)
		v, err := NewView(e, done, deal)
		require.NoError(t, err)
		tailed := naiveTail(rest, s.g, deal)
		require.Equal(t, uint64(len(tailed)), v.Dealt())
		for w, places := range naiveDeal(uint64(len(tailed)), deal.Workers, deal.Batch, deal.Dealing) {
			want := make([]uint64, 0, len(places))
			for _, place := range places {
				want = append(want, tailed[place])
			}
			got := make([]uint64, len(places)+1)
			require.True(t, slices.Equal(want, got[:v.Records(uint64(w), 0, got)]), "worker %d", w)
		}
	})
}

// Adjacent parts are disjoint and complete, whatever the cuts.
func TestAdjacentPartsArePartitions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shards, chunks := drawShards(t)
		cuts := []uint32{0, 1_000_000_000}
		for range rapid.IntRange(1, 5).Draw(t, "cuts") {
			cuts = append(cuts, rapid.Uint32Range(1, 999_999_999).Draw(t, "cut"))
		}
		slices.Sort(cuts)
		cuts = slices.Compact(cuts)
		split := spec.Split{Seed: rapid.Uint64().Draw(t, "seed"), By: rapid.SampledFrom(units3).Draw(t, "by")}
		var all []uint64
		for i := range len(cuts) - 1 {
			split.Part = spec.Part{From: cuts[i], To: cuts[i+1]}
			all = append(all, numbers(newPart(t, split, listedShards(shards)))...)
		}
		slices.Sort(all)
		total := startsOf(chunks)[len(chunks)]
		require.Len(t, all, int(total))
		for record := range total {
			require.Equal(t, record, all[record])
		}
	})
}

// Records that are processed in pieces, on all cores, give the same result.
func TestPartOfManyRecordsEqualsNaiveOne(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var shards []naiveShard
	total := uint64(0)
	for i := range 5 {
		s := naiveShard{path: fmt.Sprint("shard-", i), entries: make([]bool, splitWork/2+r.IntN(100)+i*7)}
		for ordinal := range s.entries {
			s.entries[ordinal] = ordinal == 0 || r.IntN(1000) == 0
		}
		shards = append(shards, s)
		total += uint64(len(s.entries))
	}
	for _, by := range units3 {
		for i, text := range []string{"0..0.9", "0.9..1", "0.5..0.501", "0..0.5", "0..0.5", "0..0.5"} {
			split := spec.Split{Part: part(t, text), Seed: uint64(7 + i), By: by}
			p := newPart(t, split, listedShards(shards))
			left := append([]uint64{}, naiveSplit(split, shards)...)
			require.True(t, slices.Equal(left, numbers(p)), "%s by %s", text, by)
			checkLookups(t, r, p, left, total)
			require.Less(t, uint64(8*len(p.words)+8*len(p.blocks)+4*len(p.hints)), total/6, "bytes")
		}
	}
}

// checkLookups compares look-ups in a part with the list of its records.
func checkLookups(t *testing.T, r *rand.Rand, p *Part, left []uint64, total uint64) {
	require.Equal(t, uint64(len(left)), p.Rank(total))
	for range 2000 {
		record := r.Uint64N(total)
		rank, found := slices.BinarySearch(left, record)
		require.Equal(t, uint64(rank), p.Rank(record))
		require.Equal(t, found, p.Has(record))
		to := record + r.Uint64N(total-record)
		end, _ := slices.BinarySearch(left, to)
		require.Equal(t, uint64(end-rank), p.Count(record, to))
	}
	if len(left) == 0 {
		return
	}
	var ranks, want []uint64
	for range 2000 { // runs, and jumps
		rank := r.IntN(len(left))
		for range 1 + r.IntN(3) {
			if rank < len(left) {
				ranks, want = append(ranks, uint64(rank)), append(want, left[rank])
			}
			rank++
		}
	}
	require.Zero(t, testing.AllocsPerRun(10, func() { p.Numbers([]uint64{0, 0}) }))
	p.Numbers(ranks)
	require.Equal(t, want, ranks)
}

func TestNilPartIsWholeDataset(t *testing.T) {
	p, err := NewPart(spec.Order{Split: spec.Split{Part: part(t, "0..1"), Seed: 4, By: spec.SplitByShard}}, 0, listedShards{}, inTurn)
	require.NoError(t, err)
	require.Nil(t, p)
	require.True(t, p.Has(5))
	require.Equal(t, uint64(5), p.Rank(5))
	require.Equal(t, uint64(3), p.Count(5, 8))
	starts := []uint64{0, 7, 9}
	require.Equal(t, starts, p.Starts(starts))
	p.Numbers(starts)
	require.Equal(t, []uint64{0, 7, 9}, starts)
}

func TestOrderRequiresItsOwnPart(t *testing.T) {
	shards := listedShards{{path: "x", entries: slices.Repeat([]bool{true}, 100)}}
	o := spec.Default().Order
	o.Split = spec.Split{Part: part(t, "0..0.5"), By: spec.SplitByRecord}
	p := newPart(t, o.Split, shards)
	_, err := NewEpoch(o, 0, []uint64{0, 100}, nil)
	require.ErrorContains(t, err, "sample 1/1 of the part 0..0.5 has not been taken out")
	_, err = NewEpoch(o, 0, []uint64{0, 100}, p)
	require.ErrorContains(t, err, "chunks of 100 records for a part of")
	_, err = NewPart(spec.Order{Split: spec.Split{Part: o.Split.Part}}, 0, shards, inTurn)
	require.ErrorContains(t, err, "unknown unit")
}

func TestSplitThatSelectsNothingIsAnEmptyOrder(t *testing.T) {
	o := spec.Default().Order
	o.Split = spec.Split{Part: part(t, "0.000000001..0.000000002"), By: spec.SplitByShard}
	p := newPart(t, o.Split, listedShards{{path: "x", entries: make([]bool, 100)}})
	require.Zero(t, p.Len())
	for _, shuffle := range []spec.Shuffle{spec.ShuffleNone, spec.ShuffleReservoir, spec.ShuffleBlock, spec.ShuffleFull} {
		o.Shuffle = shuffle
		e, err := NewEpoch(o, 0, p.Starts([]uint64{0, 64, 100}), p)
		require.NoError(t, err)
		for _, tail := range []spec.Tail{spec.TailKeep, spec.TailDrop, spec.TailPad} {
			v, err := NewView(e, nil, spec.Assignment{Workers: 3, Batch: 2, Dealing: spec.DealInterleaved, Tail: tail})
			require.NoError(t, err)
			require.Zero(t, v.Dealt())
			require.Zero(t, v.Records(2, 0, make([]uint64, 4)))
			v.Sweep(0, 0, func(uint64, []uint64) bool { t.Fatal("a record"); return false })
		}
	}
}

func TestNthBitIsFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := rapid.Uint64Range(1, math.MaxUint64).Draw(t, "word")
		if rapid.Bool().Draw(t, "few bits") {
			w = 1<<rapid.IntRange(0, 63).Draw(t, "a bit") | 1<<rapid.IntRange(0, 63).Draw(t, "another")
		}
		n := uint64(0)
		for place := range uint64(64) {
			if w>>place&1 != 0 {
				require.Equal(t, place, nthBit(w, n))
				n++
			}
		}
	})
	for n := range uint64(64) {
		require.Equal(t, n, nthBit(math.MaxUint64, n))
	}
}

// keptShards are shards that exclude some records.
type keptShards struct {
	listedShards
	kept [][]uint64
}

func (s keptShards) Kept(i int) []uint64 { return s.kept[i] }

// Excluded records are in no order, with and without a split and a sample; kept records are in the
// same orders as before.
func TestExcludedRecordsAreInNoOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shards := keptShards{}
		for i := range rapid.IntRange(1, 5).Draw(t, "shards") {
			n := rapid.IntRange(0, 300).Draw(t, "records")
			shards.listedShards = append(shards.listedShards, naiveShard{path: fmt.Sprint(i), entries: slices.Repeat([]bool{true}, n)})
			var kept []uint64
			if rapid.Bool().Draw(t, "kept") {
				kept = rapid.SliceOfN(rapid.Uint64(), (n+63)/64, (n+63)/64).Draw(t, "bits")
			}
			shards.kept = append(shards.kept, kept)
		}
		o := spec.Order{}
		if rapid.Bool().Draw(t, "split") {
			o.Split = spec.Split{Part: spec.Part{From: 0, To: 500_000_000}, By: spec.SplitByRecord}
		}
		without, err := NewPart(o, 0, shards.listedShards, inTurn)
		require.NoError(t, err)
		with, err := NewPart(o, 0, shards, inTurn)
		require.NoError(t, err)
		number := uint64(0)
		for i, s := range shards.listedShards {
			for n := range s.entries {
				left := shards.kept[i] != nil && shards.kept[i][n/64]>>(n%64)&1 == 0
				require.Equal(t, without.Has(number) && !left, with.Has(number), "record %d of shard %d", n, i)
				number++
			}
		}
		any := slices.ContainsFunc(shards.kept, func(k []uint64) bool { return k != nil })
		require.Equal(t, any || o.Split != spec.Split{}, with != nil)
	})
}
