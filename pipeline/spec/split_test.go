package spec

import (
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPartsParseExactlyAndFormatInShortestDecimals(t *testing.T) {
	for text, want := range map[string]string{
		"0..0.9":                   "0..0.9",
		"0.0..0.90":                "0..0.9",
		"0.9..1":                   "0.9..1",
		"0.900000000..1.000000000": "0.9..1",
		"0.000000001..0.1":         "0.000000001..0.1",
		"0.1..0.333333333":         "0.1..0.333333333",
		"0..1":                     "0..1",
		"0.0..1.0":                 "0..1",
	} {
		p, err := ParsePart(text)
		require.NoError(t, err, text)
		require.Equal(t, want, p.String())
		require.Equal(t, want == "0..1", p.Whole())
	}
}

func TestInvalidPartIsRefusedWithExample(t *testing.T) {
	for _, text := range []string{
		"", "0.9", "0.9..", "..0.9", "0...9", "0..0.9..1", "0..1.1", "-0.1..0.5", "+0..0.5", "0..2", "0..9e-1", "0,0..0,9", ".1..0.9",
		"0..0.", "00..0.9", "0..0.1234567891", "a..b", "0 .. 0.9", "0..1.000000001", "10%..90%", "0.9..0.9", "0.9..0.1", "1..1", "0..0", "1..0",
	} {
		_, err := ParsePart(text)
		require.ErrorContains(t, err, "0..0.9", text)
	}
}

func TestWholeDatasetIsNotASplit(t *testing.T) {
	whole, err := ParsePart("0..1")
	require.NoError(t, err)
	require.Equal(t, Split{}, Split{Part: whole, Seed: 3, By: SplitByShard}.Or())
	half := Split{Part: Part{0, billion / 2}, Seed: 3, By: SplitByShard}
	require.Equal(t, half, half.Or())
}

func TestBoundsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.Uint32Range(0, billion-1).Draw(t, "from")
		p := Part{from, rapid.Uint32Range(from+1, billion).Draw(t, "to")}
		if p.Whole() {
			return
		}
		low, count := p.Bounds()
		floor := func(n uint32) *big.Int {
			x := new(big.Int).Lsh(big.NewInt(int64(n)), 64)
			return x.Quo(x, big.NewInt(billion))
		}
		require.Equal(t, floor(p.From).String(), new(big.Int).SetUint64(low).String())
		end := new(big.Int).Add(new(big.Int).SetUint64(low), new(big.Int).SetUint64(count))
		require.Equal(t, floor(p.To).String(), end.String())
	})
}

func TestInvalidSplitsAreNamed(t *testing.T) {
	s := valid()
	s.Order.Split = Split{Part: Part{0, billion / 2}, By: "game"}
	require.ErrorContains(t, s.Validate(), `--split-by ("game") must be one of record, shard, unit`)
	s.Order.Split = Split{Part: Part{5, 5}}
	require.ErrorContains(t, s.Validate(), "--split (0.000000005..0.000000005) must be two fractions")
	s.Order.Split = Split{Part: Part{0, billion / 2}}
	require.NoError(t, s.Validate(), "the unit is the format's own")
}
