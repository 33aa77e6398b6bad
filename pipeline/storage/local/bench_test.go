package local

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

// BenchmarkRead reads blocks of a file through the storage, 32 at a time: what it costs beyond the
// engine is the check of the file after each read.
func BenchmarkRead(b *testing.B) {
	const size, depth = 64 << 20, 32
	root := b.TempDir()
	require.NoError(b, os.WriteFile(filepath.Join(root, "shard"), make([]byte, size), 0o600))
	for _, direct := range []Direct{DirectOff, DirectOn} {
		for _, block := range []int{4 << 10, 128 << 10} {
			b.Run(fmt.Sprintf("direct=%s/read=%dKiB", direct, block>>10), func(b *testing.B) {
				engine, err := uring.Open(uring.ModeAuto)
				require.NoError(b, err)
				s, err := OpenDirect(root, engine, direct)
				require.NoError(b, err)
				o, err := s.Stat(b.Context(), "shard")
				require.NoError(b, err)
				memory, err := uring.Map(depth * block)
				require.NoError(b, err)
				b.SetBytes(int64(block))
				var next atomic.Int64
				var ended sync.WaitGroup
				total := int64(b.N)
				for i := range depth {
					r := &storage.Read{Object: o, Buf: memory[i*block:][:block]}
					again := []*storage.Read{r}
					step := func() bool {
						n := next.Add(1) - 1
						r.OffsetBytes = n * 7919 % (size / int64(block)) * int64(block)
						return n < total
					}
					r.Done = func(err error) {
						if err != nil {
							b.Error(err)
						}
						if !step() {
							ended.Done()
							return
						}
						s.Submit(again)
					}
					if step() {
						ended.Add(1)
						s.Submit(again)
					}
				}
				ended.Wait()
				b.StopTimer()
				require.NoError(b, s.Close())
				require.NoError(b, engine.Close())
				require.NoError(b, uring.Unmap(memory))
			})
		}
	}
}
