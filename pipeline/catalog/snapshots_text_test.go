package catalog

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// textOf returns the text of the snapshot of shards.
func textOf(shards []LiveShard) []byte {
	text := []byte(datasetWords + "lc0\n")
	for _, i := range byPath(shards) {
		x := &shards[i]
		text = appendLine(text, x.Records, x.Bytes, x.Units, x.Path)
	}
	return text
}

// NewsOf agrees with a comparison of sets of lines.
func TestNewShardsHaveNewLines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		paths := rapid.SliceOfNDistinct(rapid.StringMatching(`a?(x|training\.)[0-9 a-b/]{0,10}`), 0, 40, rapid.ID[string])
		set := func(label string) (shards []LiveShard) {
			for _, p := range paths.Draw(t, label) {
				shards = append(shards, LiveShard{Path: p, Records: rapid.Uint64Range(1, 2).Draw(t, "records"), Units: 1, Bytes: 10})
			}
			return shards
		}
		before, now := set("before"), set("now")
		had := map[LiveShard]bool{}
		for _, s := range before {
			had[s] = true
		}
		want := News{GoneShards: uint64(len(before))}
		for _, s := range now {
			if had[s] {
				want.GoneShards--
				continue
			}
			want.NewShards, want.NewRecords, want.NewUnits = want.NewShards+1, want.NewRecords+s.Records, want.NewUnits+1
		}
		got, err := NewsOf(textOf(before), textOf(now))
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
	n, err := NewsOf(nil, textOf([]LiveShard{{Path: "a", Records: 7, Units: 2, Bytes: 1}}))
	require.NoError(t, err)
	require.Equal(t, News{NewShards: 1, NewRecords: 7, NewUnits: 2}, n)
}

func TestInvalidSnapshotTextsYieldNoNewShards(t *testing.T) {
	const head = datasetWords + "lc0\n"
	right := []byte(head + "1 1 1 a\n2 2 2 b\n")
	for _, wrong := range []string{"x", head + "1 1 1 a", head + "1 1 a\n", head + "1 1 1 \n", head + "1 1 1 b\n1 1 1 a\n", head + "1 1 1 a\n1 1 1 a\n"} {
		_, err := NewsOf([]byte(wrong), right)
		require.ErrorContains(t, err, "does not describe a shard", wrong)
		_, err = NewsOf(right, []byte(wrong))
		require.ErrorContains(t, err, "does not describe a shard", wrong)
	}
	_, err := NewsOf(right, []byte(head+"-1 1 1 a\n"))
	require.ErrorContains(t, err, "does not describe a shard")
}

func TestPathsAreSortedByBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var shards []LiveShard
		for _, p := range rapid.SliceOfNDistinct(rapid.StringMatching(`a?(x|training\.)[0-9a-b/]{0,10}`), 0, 40, rapid.ID[string]).Draw(t, "paths") {
			shards = append(shards, LiveShard{Path: p})
		}
		var sorted []string
		for _, i := range byPath(shards) {
			sorted = append(sorted, shards[i].Path)
		}
		require.True(t, slices.IsSorted(sorted), sorted)
		require.Len(t, sorted, len(shards))
	})
}
