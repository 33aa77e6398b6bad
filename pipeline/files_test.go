package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// makeFiles writes n files of some 700 bytes into 20 directories.
func makeFiles(t testing.TB, n int) string {
	dir := t.TempDir()
	for i := range n {
		at := filepath.Join(dir, fmt.Sprintf("class-%02d", i%20))
		if i < 20 {
			require.NoError(t, os.Mkdir(at, 0o755))
		}
		require.NoError(t, os.WriteFile(filepath.Join(at, fmt.Sprintf("%06d.jpg", i)), bytes.Repeat([]byte{byte(i)}, 600+i%200), 0o644))
	}
	return dir
}

// TestManyFilesLeakNothing opens and reads each of 20 000 files, epoch after epoch. The
// goroutines and descriptors of the process do not grow with their number, and in the long run no
// record costs an allocation.
func TestManyFilesLeakNothing(t *testing.T) {
	files, epochs := 20_000, 10
	if testing.Short() {
		files = 5_000
	}
	s := testSpec(t, makeFiles(t, files))
	s.Format.Name, s.Read, s.MemoryBytes, s.Deal.Workers = "files", spec.ReadGather, 64<<20, 1
	openFiles := func() *Dataset {
		d, err := Open(context.Background(), s, Options{})
		require.NoError(t, err)
		return d
	}
	require.NoError(t, openFiles().Close()) // the runtime opens what it keeps open
	goroutines, descriptors := runtime.NumGoroutine(), openDescriptors(t)
	d := openFiles()
	require.EqualValues(t, files, d.Records())
	opened := openDescriptors(t)
	var r stream.Reply
	perRecord := make([]float64, 0, epochs)
	for n := range uint64(epochs) {
		set, err := d.Set(context.Background(), n, nil, s.Deal)
		require.NoError(t, err)
		before := mallocs()
		h := set.Open(0, stream.Data)
		for off := int64(0); ; off += int64(r.Len()) {
			r.Release()
			if err := h.ReadAt(context.Background(), &r, off, stream.MaxReadBytes); err != nil {
				t.Fatal(err)
			}
			if r.Len() == 0 {
				break
			}
		}
		h.Close()
		perRecord = append(perRecord, float64(mallocs()-before)/float64(files))
		// Reading ahead comes to an end.
		require.Eventually(t, func() bool { return openDescriptors(t) <= opened }, time.Minute, time.Millisecond, "epoch %d", n)
		if perRecord[n] < 0.03 {
			break
		}
	}
	// What is kept for the next epoch grows to the size that it needs: 0.02 are left. A tenth is
	// caused by the race detector, under which pools drop items.
	require.Less(t, slices.Min(perRecord), 0.25, "allocations a record, by epoch: %v", perRecord)
	t.Logf("allocations a record, by epoch: %v", perRecord)
	require.NoError(t, d.Close())
	require.Eventually(t, func() bool {
		return runtime.NumGoroutine() <= goroutines+1 && openDescriptors(t) <= descriptors // this function has one of its own
	}, time.Minute, time.Millisecond)
}

// openDescriptors counts this process's descriptors, except the one used for counting.
func openDescriptors(t testing.TB) int {
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(entries) - 1
}

func mallocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
