package inspect

import (
	"bytes"
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/goldentest"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/order/quality"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func TestHistogramCountsEverySizeOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOf(rapid.Uint64Range(0, 1<<40)).Draw(t, "sizes")
		var byLength [65]uint64
		for _, s := range sizes {
			byLength[bits.Len64(s)]++
		}
		buckets := Histogram(byLength[:])
		total := uint64(0)
		for i, b := range buckets {
			n := uint64(0)
			for _, s := range sizes {
				if int64(s) >= b.FromBytes && int64(s) < b.ToBytes {
					n++
				}
			}
			require.Equal(t, n, b.Records)
			if i > 0 {
				require.Equal(t, buckets[i-1].ToBytes, b.FromBytes, "no gap")
			}
			total += n
		}
		require.EqualValues(t, len(sizes), total)
		if len(buckets) > 0 {
			require.NotZero(t, buckets[0].Records)
			require.NotZero(t, buckets[len(buckets)-1].Records)
		}
	})
}

func TestInspectReport(t *testing.T) {
	i := Report{
		Root: "/data/train", Format: "jsonl", Fingerprint: "abcd", Shards: 147, CompressedShards: 147, Selection: opening.Selection{PassedOver: 1},
		Damaged: []string{"a.jsonl.gz: record 7: cut off"}, Records: 1_234_567, EntryPoints: 147,
		RawBytes: 3 << 30, DecodedBytes: 12 << 30, StreamBytes: 12 << 30, Chunks: 147, Shuffle: spec.ShuffleReservoir, Workers: 4, Storage: storage.DefaultProfile(storage.KindSSD),
		Histogram: []Bucket{{4096, 8192, 1_000_000}, {8192, 16384, 0}, {16384, 32768, 234_567}},
		Mixing: Mixing{
			Global: quality.Estimate{Value: 6.1, Batches: 4000}, Worker: quality.Estimate{Value: 6.54, Batches: 1205, Whole: true},
			Advice: []quality.Advice{{Flag: "--lanes", Value: "128", Chi: 1.7}, {Flag: "--shuffle", Value: "full", Chi: 1}},
		},
	}
	for _, v := range []int64{4100, 20000, 9000} {
		i.RecordBytes.Add(v)
		i.ChunkBytes.Add(v * 1000)
		i.ChunkRecords.Add(v)
	}
	var out, err bytes.Buffer
	require.NoError(t, i.Print(terminal.New(&out, &err)))
	require.Empty(t, err.String())
	goldentest.Equal(t, "inspect.txt", out.String())

	i.Split = &splitInfo{Part: "0.9..1", Seed: 3, By: spec.SplitByUnit, WholeRecords: 12_345_678, WholeBytes: 120 << 30}
	out.Reset()
	require.NoError(t, i.Print(terminal.New(&out, &err)))
	require.Contains(t, out.String(), "\nsplit          0.9..1 by unit, seed 3, from 12,345,678 records, 120 GiB in streams\nrecords        1,234,567, 147 entry points\n")
}
