package pipeline

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// BenchmarkEpoch reads whole epochs of uncompressed lines in the default order, 1 MiB at a time, as
// a mount would but without FUSE. The shards are in the page cache. Each iteration reads another
// epoch: in "first" the first one of a dataset that was just opened, in "again" with everything in
// memory.
func BenchmarkEpoch(b *testing.B) {
	for _, size := range []int{1200, 12_500, 200_000} {
		dir := b.TempDir()
		total := writeShards(b, dir, size, 256<<20)
		b.Run(fmt.Sprintf("%dB/first", size), func(b *testing.B) {
			b.SetBytes(total)
			for n := range b.N {
				b.StopTimer()
				s := benchSpec(b, dir)
				s.Order.Seed = uint64(n)
				d := open(b, s)
				b.StartTimer()
				readEpoch(b, d, 0)
				b.StopTimer()
				require.NoError(b, d.Close())
				b.StartTimer()
			}
		})
		b.Run(fmt.Sprintf("%dB/again", size), func(b *testing.B) {
			d := open(b, benchSpec(b, dir))
			readEpoch(b, d, 0)
			b.SetBytes(total)
			b.ResetTimer()
			for n := range b.N {
				readEpoch(b, d, uint64(n+1))
			}
		})
	}
}

func benchSpec(b *testing.B, dir string) spec.Spec {
	s := spec.Default()
	s.Dataset, s.IndexDir = dir, filepath.Join(filepath.Dir(dir), "index")
	return s
}

// writeShards writes shards of about 32 MiB of random lines.
func writeShards(b *testing.B, dir string, size int, total int64) (written int64) {
	rng := rand.NewChaCha8([32]byte{byte(size)})
	line := make([]byte, size)
	for shard := 0; written < total; shard++ {
		f, err := os.Create(filepath.Join(dir, fmt.Sprintf("s-%03d.jsonl", shard)))
		require.NoError(b, err)
		w := bufio.NewWriterSize(f, 1<<20)
		for n := 0; n < 32<<20; n += size {
			_, _ = rng.Read(line)
			for i, c := range line {
				line[i] = ' ' + c&63
			}
			line[size-1] = '\n'
			_, err := w.Write(line)
			require.NoError(b, err)
			written += int64(size)
		}
		require.NoError(b, w.Flush())
		require.NoError(b, f.Close())
	}
	return written
}

func readEpoch(b *testing.B, d *Dataset, epoch uint64) {
	set, err := d.Set(context.Background(), epoch, nil, spec.Default().Deal)
	require.NoError(b, err)
	h := set.Open(0, stream.Data)
	defer h.Close()
	size, err := set.SizeBytes(context.Background(), 0, stream.Data)
	require.NoError(b, err)
	var r stream.Reply
	for off := int64(0); off < size; off += stream.MaxReadBytes {
		require.NoError(b, h.ReadAt(context.Background(), &r, off, stream.MaxReadBytes))
		r.Release()
	}
}
