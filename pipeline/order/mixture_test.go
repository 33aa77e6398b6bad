package order

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

func sharesOf(t require.TestingT, seed uint64, weights []uint64) *Shares {
	s, err := NewShares(seed, weights)
	require.NoError(t, err)
	return s
}

// naiveCounts is mixture_counts of SELECTION.md, with big integers.
func naiveCounts(weights []uint64, n uint64) []uint64 {
	turn := make([]int, len(weights))
	for i := range turn {
		turn[i] = i
	}
	slices.SortStableFunc(turn, func(a, b int) int { return new(big.Int).SetUint64(weights[b]).Cmp(new(big.Int).SetUint64(weights[a])) })
	left, rest := new(big.Int).SetUint64(n), new(big.Int)
	for _, w := range weights {
		rest.Add(rest, new(big.Int).SetUint64(w))
	}
	c := make([]uint64, len(weights))
	for _, m := range turn {
		w := new(big.Int).SetUint64(weights[m])
		after := new(big.Int).Mul(left, new(big.Int).Sub(rest, w))
		after.Div(after, rest)
		c[m] = new(big.Int).Sub(left, after).Uint64()
		left, rest = after, rest.Sub(rest, w)
	}
	return c
}

// naiveMixed returns source and index for positions from … from+n-1.
func naiveMixed(seed uint64, weights []uint64, from, n uint64) (places [][2]uint64) {
	for at := from; at < from+n; at++ {
		b := at / 256
		before, end := naiveCounts(weights, 256*b), naiveCounts(weights, 256*b+256)
		var list []uint64
		for m := range weights {
			for range end[m] - before[m] {
				list = append(list, uint64(m))
			}
		}
		naivePermute(list, naiveKey("mix", seed, 0, 0), 256*b)
		m := list[at%256]
		index := before[m]
		for _, other := range list[:at%256] {
			if other == m {
				index++
			}
		}
		places = append(places, [2]uint64{m, index})
	}
	return places
}

// places returns source and index for positions, with sources whose records are in order.
func places(s *Shares, from, n uint64) (places [][2]uint64) {
	c, end := make([]uint64, len(s.weights)), make([]uint64, len(s.weights))
	for at := from; at < from+n; {
		b := at / mixBlock
		s.Counts(b*mixBlock, c)
		s.Counts((b+1)*mixBlock, end)
		for i, m := range s.block(b, slices.Clone(c), end, nil) {
			if p := b*mixBlock + uint64(i); p >= from && p < from+n {
				places = append(places, [2]uint64{uint64(m), c[m]})
			}
			c[m]++
		}
		at = (b + 1) * mixBlock
	}
	return places
}

func TestMixtureVectors(t *testing.T) {
	v := readMixtureVectors(t)
	require.NotEmpty(t, v.Mixture)
	for _, x := range v.Mixture {
		seed := number(t, x.Seed)
		s := sharesOf(t, seed, x.Weights)
		require.Equal(t, number(t, x.MixKey), s.key)
		for m, want := range x.SourceSeeds {
			require.Equal(t, number(t, want), sourceSeed(seed, m))
		}
		for _, c := range x.Counts {
			got := make([]uint64, len(x.Weights))
			s.Counts(c.N, got)
			require.Equal(t, c.C, got, "%d", c.N)
			require.Equal(t, c.C, naiveCounts(x.Weights, c.N), "the naive implementation")
		}
		for _, w := range x.Walk {
			require.Equal(t, w.Positions, places(s, w.From, uint64(len(w.Positions))))
			require.Equal(t, w.Positions, naiveMixed(seed, x.Weights, w.From, uint64(len(w.Positions))), "the naive implementation")
		}
		h := sha256.New()
		for _, p := range places(s, x.Digest.From, x.Digest.Positions) {
			h.Write(binary.LittleEndian.AppendUint64([]byte{byte(p[0])}, p[1]))
		}
		require.Equal(t, x.Digest.Sum, hex.EncodeToString(h.Sum(nil)))
	}
	require.NotEmpty(t, v.Length)
	for _, x := range v.Length {
		s := sharesOf(t, 0, x.Weights)
		first, short := s.First(x.Records)
		require.Equal(t, x.First, first)
		require.Equal(t, -1, short)
		all, err := s.All(x.Records)
		require.NoError(t, err)
		require.Equal(t, x.All, all)
	}
}

func TestMixedEpochVectors(t *testing.T) {
	v := readMixtureVectors(t)
	x := v.Epoch
	o := spec.Default().Order
	o.Seed, o.SizeRecords, o.Lanes = number(t, x.Seed), 8, 4
	sources := []Source{{First: 0, Starts: []uint64{0, 50}}, {First: 100, Starts: []uint64{0, 20}}, {First: 200, Starts: []uint64{0, 10}}}
	m, err := NewMixture(o, sharesOf(t, o.Seed, x.Weights), sources, x.Length)
	require.NoError(t, err)
	require.Len(t, x.G, 2)
	for epoch, want := range x.G {
		e, err := m.Epoch(uint64(epoch))
		require.NoError(t, err)
		got := [][2]uint64{}
		for _, record := range allOf(e) {
			got = append(got, [2]uint64{record / 100, record % 100})
		}
		require.Equal(t, want, got)
	}
}

func drawWeights(t *rapid.T) []uint64 {
	return rapid.SliceOfN(rapid.OneOf(rapid.Uint64Range(1, 9), rapid.Uint64Range(1, MaxWeight)), MinSources, 12).Draw(t, "weights")
}

func TestCountsAreExactAtEveryBlock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := drawWeights(t)
		s := sharesOf(t, rapid.Uint64().Draw(t, "seed"), weights)
		c, next := make([]uint64, len(weights)), make([]uint64, len(weights))
		n := rapid.OneOf(rapid.Uint64Range(0, 5000), rapid.Uint64Range(0, maxMixed-1)).Draw(t, "n")
		s.Counts(n, c)
		require.Equal(t, naiveCounts(weights, n), c)
		sum := uint64(0)
		for _, k := range c {
			sum += k
		}
		require.Equal(t, n, sum)
		s.Counts(n+1, next)
		one := uint64(0)
		for m := range c {
			require.GreaterOrEqual(t, next[m], c[m], "counts only grow")
			one += next[m] - c[m]
		}
		require.Equal(t, uint64(1), one)
	})
}

// A mixture's G is what SELECTION.md defines, read from any position, in any step, in any epoch.
func TestEveryMixtureEqualsNaiveOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := drawWeights(t)
		set := drawSettings(t)
		o := set.order
		var sources []Source
		var chunks [][]uint64
		first := uint64(0)
		for range weights {
			c := rapid.SliceOfN(rapid.Uint64Range(1, 30), 1, 6).Draw(t, "chunks")
			chunks = append(chunks, c)
			sources = append(sources, Source{First: first, Starts: startsOf(c)})
			first += sources[len(sources)-1].records() + 3
		}
		length := rapid.Uint64Range(1, 900).Draw(t, "length")
		epoch := rapid.OneOf(rapid.Uint64Range(0, 4), rapid.Uint64Range(0, 1<<40)).Draw(t, "epoch")
		m, err := NewMixture(o, sharesOf(t, o.Seed, weights), sources, length)
		require.NoError(t, err)
		e, err := m.Epoch(epoch)
		require.NoError(t, err)
		known := map[[2]uint64][]uint64{}
		want := make([]uint64, 0, length)
		for _, p := range naiveMixed(o.Seed, weights, epoch*length, length) {
			source, total := p[0], sources[p[0]].records()
			at := [2]uint64{source, p[1] / total}
			if known[at] == nil {
				mine := o
				mine.Seed = naiveKey("source", o.Seed, 0, source)
				known[at] = naiveG(mine, at[1], chunks[source])
			}
			want = append(want, known[at][p[1]%total]+sources[source].First)
		}
		require.True(t, slices.Equal(want, walk(t, e.Cursor(0), int(length), rapid.IntRange(1, 400).Draw(t, "step"))))
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "jumps"), 0))
		c := e.Cursor(0)
		for range 20 {
			p := r.Uint64N(length)
			got := make([]uint64, 1+r.IntN(40))
			c.Seek(p)
			got = got[:c.Next(got)]
			require.True(t, slices.Equal(want[p:p+uint64(len(got))], got), "from %d", p)
		}
	})
}

func TestMixtureLengthsMatchTheirBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := drawWeights(t)
		records := make([]uint64, len(weights))
		for m := range records {
			records[m] = rapid.Uint64Range(1, 100_000).Draw(t, "records")
		}
		s := sharesOf(t, 0, weights)
		fits := func(n uint64) bool {
			for m, c := range naiveCounts(weights, n) {
				if c > records[m] {
					return false
				}
			}
			return true
		}
		first, short := s.First(records)
		require.Zero(t, first%256)
		if first == 0 {
			require.False(t, fits(256))
			require.Contains(t, weights, weights[short])
		} else {
			require.True(t, fits(first))
			require.False(t, fits(first+256))
		}
		all, err := s.All(records)
		if err != nil {
			return // weights far apart
		}
		require.Zero(t, all%256)
		holds := func(n uint64) bool {
			for m, c := range naiveCounts(weights, n) {
				if c < records[m] {
					return false
				}
			}
			return true
		}
		require.True(t, holds(all))
		require.False(t, holds(all-256))
	})
}

func TestInvalidMixturesAreRefused(t *testing.T) {
	_, err := NewShares(0, []uint64{1})
	require.ErrorContains(t, err, "between 2 and 128")
	_, err = NewShares(0, make([]uint64, 129))
	require.ErrorContains(t, err, "between 2 and 128")
	_, err = NewShares(0, []uint64{1, 0})
	require.ErrorContains(t, err, "the weight of source 1")
	_, err = NewShares(0, []uint64{MaxWeight + 1, 1})
	require.ErrorContains(t, err, "the weight of source 0")
	_, err = sharesOf(t, 0, []uint64{MaxWeight, 1}).All([]uint64{1, 1 << 30})
	require.ErrorIs(t, err, errTooLong)
	s := sharesOf(t, 0, []uint64{1, 1})
	two := []Source{{Starts: []uint64{0, 3}}, {First: 3, Starts: []uint64{0, 3}}}
	o := spec.Default().Order
	_, err = NewMixture(o, s, two[:1], 1)
	require.ErrorContains(t, err, "1 sources and 2 weights")
	_, err = NewMixture(o, s, two, 0)
	require.ErrorContains(t, err, "length")
	_, err = NewMixture(o, s, []Source{two[0], {Starts: []uint64{0}}}, 1)
	require.ErrorContains(t, err, "source 1 of the mixture has no records")
	sampled := o
	sampled.Sample.Of = 3
	_, err = NewMixture(sampled, s, two, 1)
	require.ErrorContains(t, err, "sample")
	m, err := NewMixture(o, s, two, 1<<40)
	require.NoError(t, err)
	_, err = m.Epoch(1 << 22)
	require.ErrorContains(t, err, "epochs can be ordered")
}
