package page

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image/png"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/inspect"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/readplan"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/order/quality"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// manyShards is a catalog with that many shards.
type manyShards int

func (n manyShards) Shards() int { return int(n) }
func (n manyShards) Shard(i int) catalog.Shard {
	return catalog.Shard{Object: storage.Object{Path: fmt.Sprintf("part-%d/shard-%07d.tar", i%100, i), SizeBytes: int64(1000 + i*7919%100_000)}, Records: 3, DecodedBytes: 5000}
}

func TestPageIsSmallForAnyDataset(t *testing.T) {
	const shards = 100_000
	p := page{Report: inspect.Report{Shards: shards, Root: "/data/train", Dataset: "/data/train", Damages: map[string]uint64{}}, Chart: newShardChart(manyShards(shards))}
	for i := range shards {
		p.Damaged = append(p.Damaged, fmt.Sprintf("shard-%d.tar: record %d: %s", i, i, strings.Repeat("bad ", 20)))
		p.Reasons = append(p.Reasons, reasonRow{Text: fmt.Sprintf("reason %d", i), Count: 1})
	}
	starts := make([]uint64, shards+1)
	for i := range starts {
		starts[i] = uint64(3 * i)
	}
	subject := quality.Subject{ShardStarts: starts, ChunkStarts: func(_, _ uint64) []uint64 { return starts }}
	shuffled := quality.ShardsAndBuffer(starts, nil, 100_000, 1)
	mix, densities := quality.Survey(shuffled, subject.ShardStarts, nil, quality.Resolution{Columns: pageColumns, Rows: pageRows}, func() bool { return true })
	pic, err := newPicture(densities)
	require.NoError(t, err)
	p.Reads = &readplan.Report{Service: &readplan.Service{Name: "s3://bucket/train", GetDollars: 4e-7, Requests: 445_656, Dollars: 0.1783, Notes: []string{"a note"}, Chunks: []readplan.ChunkPlan{
		{ChunkBytes: 256 << 10, InUse: true, Requests: 445_656, Dollars: 0.1783, Mixing: 1.02}, {ChunkBytes: 4 << 20, Requests: 35_244, Dollars: 0.0141},
	}}}
	for range 3 {
		p.Shuffles = append(p.Shuffles, shuffleRow{Name: "this order", Note: "note", Mix: mix, Picture: pic})
	}
	doc := p.Render()
	require.Less(t, len(doc), 200<<10)
	require.LessOrEqual(t, len(p.Chart.Bars), chartBars)
	require.Equal(t, shards, p.Chart.Bars[len(p.Chart.Bars)-1].Last)
	require.Len(t, p.Chart.Lists, 2)
	require.Contains(t, string(doc), "These are the first 100.")
	for _, want := range []string{"An epoch of s3://bucket/train takes 445,656 requests (about $0.1783 at S3's list price)", "35,244", "$0.0141", "a note."} {
		require.Contains(t, strings.ReplaceAll(string(doc), "&#39;", "'"), want)
	}
}

func TestFiguresOfReadsAreExactOrEstimates(t *testing.T) {
	misfits := false
	var w writer
	putStrategies(&w, []readplan.StrategyPlan{
		{Strategy: "gather", Reads: 111, ReadBytes: 1 << 10},
		{Strategy: "scan", Reads: 222, ReadBytes: 2 << 10, Estimated: true, FitsMemory: &misfits},
	})
	for _, want := range []string{">111<", ">1.0 KiB<", ">≈ 222<", ">≈ 2.0 KiB<"} {
		require.Contains(t, w.b.String(), want)
	}
}

func TestShardChartNamesLargestAndSmallest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.Int64Range(0, 50), 1, 90).Draw(t, "sizes")
		var ends sizeEnds
		for i, n := range sizes {
			ends.add(shardRow{Number: i, Bytes: n})
		}
		lists := ends.lists(50)
		if len(sizes) <= chartListed {
			require.Len(t, lists, 1)
			require.Len(t, lists[0].Shards, len(sizes))
			return
		}
		sorted := slices.Clone(sizes)
		slices.Sort(sorted)
		for i := range chartEnds {
			require.Equal(t, sorted[len(sorted)-1-i], lists[0].Shards[i].Bytes)
			require.Equal(t, sorted[i], lists[1].Shards[i].Bytes)
		}
	})
}

func TestPictureShowsDensities(t *testing.T) {
	pic, err := newPicture(&quality.Picture{Columns: 3, Rows: 2, Density: []float32{0, 1, 2, 3, 50, 1}, Shards: 4})
	require.NoError(t, err)
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(pic.URL, "data:image/png;base64,"))
	require.NoError(t, err)
	img, err := png.Decode(bytes.NewReader(raw))
	require.NoError(t, err)
	var alphas []uint32
	for y := range 2 {
		for x := range 3 {
			_, _, _, a := img.At(x, y).RGBA()
			alphas = append(alphas, a>>8)
		}
	}
	require.Equal(t, []uint32{0, 85, 170, 255, 255, 85}, alphas)
	require.Equal(t, "2.0 shards", pic.PerRow())
	pic, err = newPicture(nil)
	require.NoError(t, err)
	require.Nil(t, pic)
}

func TestPageExplainsWhyMountWouldBeRefused(t *testing.T) {
	p := page{NoReads: "the spool has no room", Shuffles: []shuffleRow{{Name: "this order", Note: "note"}}}
	doc := p.Render()
	require.Contains(t, string(doc), "A mount would be refused: the spool has no room")
}
