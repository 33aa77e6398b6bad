package diskcache

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/uring"
)

// BenchmarkRead reads ranges at any offset of a file that the page cache holds, 32 at a
// time: through a cache that has all of it, through package local, and with pread. CPU is
// the process's, the kernel's part included.
func BenchmarkRead(b *testing.B) {
	const fileBytes = 256 * mib
	engine, err := uring.Open(uring.ModeAuto)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, engine.Close()) })
	data := b.TempDir()
	path := filepath.Join(data, "a")
	require.NoError(b, os.WriteFile(path, random(1, fileBytes), 0o600))
	bare, err := local.Open(data, engine)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, bare.Close()) })
	o, err := bare.Stat(b.Context(), "a")
	require.NoError(b, err)
	below, err := local.Open(data, engine)
	require.NoError(b, err)
	c := DefaultConfig()
	c.Dir, c.Below, c.Engine, c.Identify, c.BoundBytes = filepath.Join(b.TempDir(), "cache"), below, engine, byPath, 1<<40
	s, err := Open(c)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	s.Fill([]storage.Object{o})
	require.NoError(b, s.Warm(b.Context()))
	settle(s)
	fd, err := unix.Open(path, unix.O_RDONLY, 0)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, unix.Close(fd)) })

	through := func(s storage.Storage) func(reads []*storage.Read) {
		return func(reads []*storage.Read) {
			var all sync.WaitGroup
			all.Add(len(reads))
			for _, r := range reads {
				r.Done = func(error) { all.Done() }
			}
			s.Submit(reads)
			all.Wait()
		}
	}
	for _, size := range []int{4 << 10, 117_000, 1 << 20} {
		for _, way := range []struct {
			name string
			read func([]*storage.Read)
		}{{"cached", through(s)}, {"local", through(bare)}, {"pread", func(reads []*storage.Read) {
			for _, r := range reads {
				_, _ = unix.Pread(fd, r.Buf, r.OffsetBytes)
			}
		}}} {
			b.Run(fmt.Sprintf("read=%d/%s", size, way.name), func(b *testing.B) {
				r := rand.New(rand.NewPCG(1, 1))
				reads := make([]*storage.Read, 32)
				for i := range reads {
					reads[i] = &storage.Read{Object: o, Buf: make([]byte, size)}
				}
				b.SetBytes(int64(size * len(reads)))
				before := used()
				n := 0
				for b.Loop() {
					for _, x := range reads {
						x.OffsetBytes = r.Int64N(fileBytes - int64(size))
					}
					way.read(reads)
					n += len(reads)
				}
				b.ReportMetric(float64(used()-before)/float64(n)/1e3, "cpu-us/read")
			})
		}
	}
	require.Zero(b, s.Stats().BadPages)
}

// used is the process's CPU time in nanoseconds.
func used() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}
