package pipeline

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// BenchmarkFullShuffle reads 1 GiB of uncompressed lines of 12.5 KB in a full shuffle, from the
// disk, in much less memory: the case that gather is for. Scan, which then reads a piece for each
// record, gets only a part of it. The shards are in TMPDIR.
func BenchmarkFullShuffle(b *testing.B) {
	dir := b.TempDir()
	total := writeShards(b, dir, 12_500, 1<<30)
	for _, c := range []struct {
		read  spec.Read
		bytes int64
	}{{spec.ReadGather, total}, {spec.ReadScan, total / 32}} {
		b.Run(string(c.read), func(b *testing.B) {
			s := benchSpec(b, dir)
			s.Order.Shuffle, s.MemoryBytes, s.Direct, s.Read = spec.ShuffleFull, 64<<20, spec.DirectOn, c.read
			d := open(b, s)
			before := d.Status().Engine
			b.SetBytes(c.bytes)
			epoch := uint64(0)
			for b.Loop() {
				readUpTo(b, d, epoch, c.bytes)
				epoch++
			}
			after := d.Status().Engine
			wanted := float64(b.N) * float64(c.bytes)
			b.ReportMetric(float64(after.Reads-before.Reads)/(wanted/12_500), "reads/record")
			b.ReportMetric(float64(after.ReadBytes-before.ReadBytes)/wanted, "amplification")
		})
	}
}

func readUpTo(b *testing.B, d *Dataset, epoch uint64, size int64) {
	set, err := d.Set(context.Background(), epoch, nil, spec.Default().Deal)
	require.NoError(b, err)
	h := set.Open(0, stream.Data)
	defer h.Close()
	var r stream.Reply
	for off := int64(0); off < size; off += stream.MaxReadBytes {
		require.NoError(b, h.ReadAt(context.Background(), &r, off, int(min(stream.MaxReadBytes, size-off))))
		r.Release()
	}
}
