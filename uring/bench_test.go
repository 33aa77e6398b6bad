package uring

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkEngine reads a file in the page cache at random, so many reads at a
// time: what is measured is what an engine costs, not a disk.
func BenchmarkEngine(b *testing.B) {
	const fileBytes = 64 << 20
	fd, _ := testFile(b, b.TempDir(), fileBytes)
	for _, mode := range []Mode{ModePread, ModeUring} {
		for _, size := range []int{4 << 10, 128 << 10, 1 << 20} {
			for _, depth := range []int{1, 32} {
				b.Run(fmt.Sprintf("engine=%s/read=%dKiB/depth=%d", mode, size>>10, depth), func(b *testing.B) {
					e, err := Open(mode)
					if err != nil {
						b.Skip(err)
					}
					defer func() { require.NoError(b, e.Close()) }()
					benchmarkEngine(b, e, fd, fileBytes, size, depth)
				})
			}
		}
	}
}

func benchmarkEngine(b *testing.B, e Engine, fd, fileBytes, size, depth int) {
	memory, err := Map(size * depth)
	require.NoError(b, err)
	defer func() { require.NoError(b, Unmap(memory)) }()
	b.SetBytes(int64(size))
	b.ReportAllocs()
	var next, wrong atomic.Int64
	ended := make(chan struct{}, depth)
	requests := make([]*Request, depth)
	for i := range requests {
		r := &Request{FD: fd, Buf: memory[i*size:][:size]}
		again := []*Request{r}
		r.Done = func(n int, err error) {
			if err != nil || n != size {
				wrong.Add(1)
			}
			k := next.Add(1)
			if k > int64(b.N) {
				ended <- struct{}{}
				return
			}
			r.OffsetBytes = k * 7919 % int64(fileBytes/size) * int64(size)
			e.Submit(again)
		}
		requests[i] = r
	}
	b.ResetTimer()
	e.Submit(requests)
	for range requests {
		<-ended
	}
	require.Zero(b, wrong.Load())
}
