package order

import (
	"encoding/json"
	"math"
	"math/big"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// mixtureVectors are the test vectors of SELECTION.md's "Samples" and "Mixtures".
type mixtureVectors struct {
	Phase []struct {
		Seed   uint64
		Path   string
		N      uint64
		Phases []uint64
	}
	Mixture []struct {
		Weights     []uint64
		Seed        string
		MixKey      string   `json:"mix_key"`
		SourceSeeds []string `json:"source_seeds"`
		Walk        []struct {
			From      uint64
			Positions [][2]uint64
		}
		Counts []struct {
			N uint64
			C []uint64
		}
		Digest struct {
			From, Positions uint64
			Sum             string `json:"sha256"`
		}
	}
	Length []struct {
		Weights, Records []uint64
		First, All       uint64
	}
	Epoch struct {
		Weights []uint64
		Seed    string
		Length  uint64
		G       [][][2]uint64
	}
}

func readMixtureVectors(t *testing.T) (v mixtureVectors) {
	t.Helper()
	text, err := os.ReadFile("testdata/mixture-vectors.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &v))
	return v
}

func TestSubsetVectors(t *testing.T) {
	v := readMixtureVectors(t)
	require.NotEmpty(t, v.Phase)
	for _, c := range v.Phase {
		shards := listedShards{{path: c.Path, entries: slices.Repeat([]bool{true}, len(c.Phases))}}
		for phase := range c.N {
			p, err := NewPart(spec.Order{Sample: spec.Subsample{Of: c.N, Seed: c.Seed}}, phase, shards, inTurn)
			require.NoError(t, err)
			for ordinal, want := range c.Phases {
				require.Equal(t, want == phase, p.Has(uint64(ordinal)), "%+v, record %d, phase %d", c, ordinal, phase)
				require.Equal(t, want, naivePhase(c.Path, c.Seed, c.N)(uint64(ordinal)), "the naive implementation")
			}
		}
	}
}

// The draws of a phase are those whose product with n has the phase as its high word.
func TestSubsetBoundsAreExact(t *testing.T) {
	two64 := new(big.Int).Lsh(big.NewInt(1), 64)
	phaseOf := func(u *big.Int, n uint64) uint64 {
		x := new(big.Int).Mul(u, new(big.Int).SetUint64(n))
		return x.Rsh(x, 64).Uint64()
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64Range(2, spec.MaxSampleOf).Draw(t, "n")
		phase := rapid.Uint64Range(0, n-1).Draw(t, "phase")
		from, count := phaseBounds(phase, n)
		first := new(big.Int).SetUint64(from)
		end := new(big.Int).Add(first, new(big.Int).SetUint64(count))
		require.Equal(t, phase, phaseOf(first, n))
		require.Equal(t, phase, phaseOf(new(big.Int).Sub(end, big.NewInt(1)), n))
		if phase > 0 {
			require.Equal(t, phase-1, phaseOf(new(big.Int).Sub(first, big.NewInt(1)), n))
		}
		if end.Cmp(two64) < 0 {
			require.Equal(t, phase+1, phaseOf(end, n))
		} else {
			require.Equal(t, n-1, phase)
		}
	})
}

// Any n consecutive epochs have each record once, whatever the split; epochs of one phase have the
// same records in another order.
func TestSubsampledEpochsMakeOnePass(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shards, _ := drawShards(t)
		o := spec.Default().Order
		o.Sample = spec.Subsample{Of: rapid.Uint64Range(2, 9).Draw(t, "n"), Seed: rapid.Uint64().Draw(t, "seed")}
		o.Split = spec.Split{Part: drawPart(t), Seed: rapid.Uint64().Draw(t, "split's seed"), By: rapid.SampledFrom(units3).Draw(t, "by")}.Or()
		begin := rapid.Uint64Range(0, math.MaxUint64-100).Draw(t, "epoch")
		var all []uint64
		for epoch := begin; epoch < begin+o.Sample.Of; epoch++ {
			p, err := NewPart(o, epoch, listedShards(shards), inTurn)
			require.NoError(t, err)
			again, err := NewPart(o, epoch+o.Sample.Of, listedShards(shards), inTurn)
			require.NoError(t, err)
			require.Equal(t, p, again)
			all = append(all, numbers(p)...)
		}
		slices.Sort(all)
		whole := o
		whole.Sample = spec.Subsample{}
		want := naiveSampled(whole, 0, shards)
		require.Len(t, all, len(want))
		for i := range want {
			require.Equal(t, want[i], all[i])
		}
	})
}

// A sample of many records has about its share of them, in shards that are processed in pieces.
func TestSubsampleHasItsShareOfRecords(t *testing.T) {
	shards := listedShards{
		{path: "a", entries: slices.Repeat([]bool{true}, splitWork+77)},
		{path: "b", entries: append([]bool{true}, make([]bool, splitWork/2)...)},
	}
	const n = 39
	o := spec.Order{Sample: spec.Subsample{Of: n, Seed: 3}, Split: spec.Split{Part: part(t, "0..0.5"), Seed: 1, By: spec.SplitByRecord}}
	for _, epoch := range []uint64{0, 17, 38} {
		p, err := NewPart(o, epoch, shards, inTurn)
		require.NoError(t, err)
		require.True(t, slices.Equal(naiveSampled(o, epoch, shards), numbers(p)))
		share := float64(splitWork+77+splitWork/2+1) / n / 2
		require.InDelta(t, share, float64(p.Len()), 6*math.Sqrt(share))
	}
}
