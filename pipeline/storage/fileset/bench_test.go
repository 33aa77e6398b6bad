package fileset

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/format/tar"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// BenchmarkRead opens, reads and closes files of 12 KiB that are in the page cache, a batch at a
// time, one file per read.
func BenchmarkRead(b *testing.B) {
	const n, batch = 20_000, 500
	root := b.TempDir()
	for i := range n {
		write(b, root, fmt.Sprintf("%02d/%06d.jpg", i%20, i), make([]byte, 12<<10))
	}
	s, err := Open(root, b.TempDir(), tar.FileFraming{})
	require.NoError(b, err)
	defer func() { require.NoError(b, s.Close()) }()
	objects := list(b, s)
	var ended sync.WaitGroup
	reads := make([]*storage.Read, batch)
	size := objects["00"].SizeBytes / (n / 20)
	for i := range reads {
		reads[i] = &storage.Read{Buf: make([]byte, size), Done: func(err error) {
			if err != nil {
				b.Error(err)
			}
			ended.Done()
		}}
	}
	b.SetBytes(size)
	b.ReportAllocs()
	for at := 0; at < b.N; at += batch {
		for i, r := range reads {
			k := (at + i) * 7919 % n
			r.Object, r.OffsetBytes = objects[fmt.Sprintf("%02d", k%20)], int64(k/20)*size
		}
		ended.Add(batch)
		s.Submit(reads)
		ended.Wait()
	}
}

// BenchmarkList lists directories that are in memory.
func BenchmarkList(b *testing.B) {
	const n = 20_000
	root := b.TempDir()
	for i := range n {
		write(b, root, fmt.Sprintf("%02d/%06d.jpg", i%20, i), nil)
	}
	s, err := Open(root, b.TempDir(), tar.FileFraming{})
	require.NoError(b, err)
	defer func() { require.NoError(b, s.Close()) }()
	for b.Loop() {
		require.Len(b, list(b, s), 20)
	}
	b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "files/s")
}
