package catalog

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/format/lc0"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/uring"
)

// stockOf returns a live index that knows shards of that many games of 80 frames each, without
// files, and how much memory each shard takes.
func stockOf(b *testing.B, shards, games int) (s *LiveIndex, bytesAShard float64) {
	engine, err := uring.Open(uring.ModePread)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, engine.Close()) })
	data := b.TempDir()
	s, err = OpenLiveIndex(context.Background(), LiveIndexConfig{Config: Config{
		Dataset: data, Format: spec.Format{Name: "lc0"}, OnCorrupt: spec.CorruptFail, IndexDir: b.TempDir(),
		OpenStorage: func(root, _ string) (storage.Storage, error) { return local.Open(root, engine) },
	}})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()); require.NoError(b, s.storage.Close()) })
	const frame, frames = 8356, 80
	before := heap()
	for i := range shards {
		packer := index.NewPacker(false, true, index.MaxPackedBytes)
		sum := format.Summary{DecodedBytes: int64(games) * frames * frame, Kind: "version 6", Parts: true}
		for g := range games {
			sum.Members = append(sum.Members, format.Member{DecodedBytes: int64(g) * frames * frame, RawBytes: int64(g) * 20000})
			for f := range frames {
				if err := packer.Add(format.Extent{OffsetBytes: int64(g*frames+f) * frame, SizeBytes: frame}); err != nil {
					b.Fatal(err)
				}
			}
		}
		blob, err := packer.Finish(sum)
		if err != nil {
			b.Fatal(err)
		}
		o := storage.Object{Path: fmt.Sprintf("training.%d.gz", 123000000+i*7919%(10*shards)), SizeBytes: 19000,
			Version: storage.Version{ModTimeNanos: int64(i), ChangeTimeNanos: int64(i), Inode: uint64(i)}}
		s.reading = map[string]storage.Object{o.Path: o}
		k, err := s.keep(index.Shard{Object: o, Codec: formats.CodecNumber(lc0.Game{}), Blob: blob})
		if err != nil {
			b.Fatal(err)
		}
		s.admit(k)
	}
	require.Equal(b, shards, s.Counts().Shards)
	return s, float64(heap()-before) / float64(shards)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkLiveIndex measures the work of starting an epoch.
func BenchmarkLiveIndex(b *testing.B) {
	for _, bm := range []struct {
		name          string
		shards, games int
	}{{"of 500000 games", 500_000, 1}, {"of 100 tars of 5000 games", 100, 5000}} {
		b.Run(bm.name, func(b *testing.B) {
			s, memory := stockOf(b, bm.shards, bm.games)
			shards := s.Shards()
			text, err := s.Text(shards)
			require.NoError(b, err)
			b.Run("Shards", func(b *testing.B) {
				for b.Loop() {
					shards = s.Shards()
				}
				b.ReportMetric(memory, "heap-B/shard")
				bytes, _, _ := s.journals.Size()
				b.ReportMetric(float64(bytes)/float64(bm.shards), "journal-B/shard")
			})
			b.Run("Text", func(b *testing.B) {
				defer busy(b)()
				for b.Loop() {
					text, err = s.Text(shards)
				}
				require.NoError(b, err)
			})
			seal := func(b *testing.B) {
				c, err := s.Seal(context.Background(), text)
				require.NoError(b, err)
				require.EqualValues(b, uint64(bm.shards*bm.games)*80, c.Records())
				require.NoError(b, c.Close())
			}
			b.Run("Seal", func(b *testing.B) {
				defer busy(b)()
				for b.Loop() {
					for _, p := range s.snapshotFiles(b) {
						require.NoError(b, os.Remove(p))
					}
					seal(b)
				}
			})
			b.Run("SealAgain", func(b *testing.B) {
				defer busy(b)()
				for b.Loop() {
					seal(b)
				}
			})
			b.Run("Open", func(b *testing.B) {
				defer busy(b)()
				for b.Loop() {
					other, err := OpenLiveIndex(context.Background(), s.config)
					require.NoError(b, err)
					require.Len(b, other.known, bm.shards)
					require.NoError(b, other.Close())
					require.NoError(b, other.storage.Close())
				}
			})
		})
	}
}

// busy reports CPU time: on a busy machine the other times are unreliable.
func busy(b *testing.B) (report func()) {
	seconds := func() float64 {
		var u unix.Rusage
		require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
		return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
	}
	before := seconds()
	return func() { b.ReportMetric((seconds()-before)/float64(b.N), "cpu-s/op") }
}

func (s *LiveIndex) snapshotFiles(b *testing.B) (paths []string) {
	entries, err := os.ReadDir(s.IndexDir())
	require.NoError(b, err)
	for _, e := range entries {
		if len(e.Name()) > 6 && e.Name()[len(e.Name())-6:] == ".index" {
			paths = append(paths, s.IndexDir()+"/"+e.Name())
		}
	}
	return paths
}
