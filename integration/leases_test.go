package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// long returns a dataset of records that are long enough to be lent, in 8 shards of 1.2 MB.
func long(t testing.TB) dataset {
	t.Helper()
	dir := t.TempDir()
	const recordBytes, records = 9000, 130
	for i := range 8 {
		b := make([]byte, recordBytes*records)
		for k := range b {
			b[k] = byte(1 + (i*31+k/recordBytes*7+k*13)%255) // no zeros, since truncation produces those
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.bin", i)), b, 0o644))
	}
	return dataset{name: "long", dir: dir, flags: []string{"--format", "fixed", "--record-bytes", fmt.Sprint(recordBytes)}, ext: ".bin"}
}

// readAgain reads a stream repeatedly from start to end until stop is closed, and then once more.
// Each read must return EIO or the right bytes.
func readAgain(t *testing.T, want []byte, path string, readBytes int, stop <-chan struct{}) (failed int) {
	buf := make([]byte, readBytes)
	for last := false; !last; {
		select {
		case <-stop:
			last = true
		default:
		}
		failed = 0
		f, err := os.Open(path)
		if err != nil {
			t.Error(err)
			return failed
		}
		for off := 0; off < len(want); off += readBytes {
			n, err := f.ReadAt(buf[:min(readBytes, len(want)-off)], int64(off))
			if err != nil && err != io.EOF {
				if pe := err.(*os.PathError); pe.Err != syscall.EIO || n != 0 {
					t.Errorf("%s at %d: %d bytes, %v", path, off, n, err)
				}
				failed++
				continue
			}
			if string(buf[:n]) != string(want[off:off+n]) {
				t.Errorf("%s at %d: other bytes than before", path, off)
				last = true
			}
		}
		f.Close()
	}
	return failed
}

// lendings returns what status.json reports about leases.
func lendings(t *testing.T, m *mount) (lent uint64, held int, refused map[string]int) {
	var report struct {
		Pipeline struct {
			Fetch struct {
				RecordsLent uint64 `json:"records_lent"`
				Leases      struct {
					Held    int            `json:"held"`
					Refused map[string]int `json:"refused"`
				} `json:"leases"`
			} `json:"fetch"`
		} `json:"pipeline"`
	}
	b := m.read("status.json")
	require.NoError(t, json.Unmarshal(b, &report), string(b))
	f := report.Pipeline.Fetch
	return f.RecordsLent, f.Leases.Held, f.Leases.Refused
}

// Files that are mapped and leased are opened for writing, truncated, changed in place, replaced
// and removed while four readers go through them.
func TestWhoeverWritesToAShardWhileItIsReadGetsThroughAndNoReaderSeesIt(t *testing.T) {
	d := long(t)
	s := bigSettings()
	s.ChunkBytes, s.ChunkRecords = 256<<10, 32 // smaller pieces are not mapped
	ref := newReference(t, d)
	m := mountDataset(t, d, s)
	stop := make(chan struct{})
	failed := make([]int, s.Workers)
	var readers sync.WaitGroup
	for w := range s.Workers {
		want := ref.data(s, w)
		requireFile(t, want, m.path("worker-%d.bin", w))
		readers.Go(func() { failed[w] = readAgain(t, want, m.path("worker-%d.bin", w), 100_000+w*300_000, stop) })
	}
	lent, held, refused := lendings(t, m)
	require.True(t, held > 0 || len(refused) > 0)
	require.Zero(t, lent, "what goes out was copied, and looked at after that")

	shard := func(i int) string { return filepath.Join(d.dir, fmt.Sprintf("%d.bin", i)) }
	for range 2 {
		for i := range 8 {
			f, err := os.OpenFile(shard(i), os.O_RDWR, 0)
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}
	}
	for i, damage := range damages {
		require.NoError(t, damage.do(shard(i)), damage.name)
	}
	close(stop)
	readers.Wait()
	m.requireAlive()
	// Data that was read into memory, because mapping took too long, stays as it was.
	inMemory := m.fetchStats().BytesRead
	t.Logf("%d bytes were read into memory, reads that failed: %d", inMemory, failed)
	for w := range s.Workers {
		require.True(t, failed[w] > 0 || inMemory > 0, "shards that were cut can't be read any more")
	}
	if inMemory == 0 {
		require.Contains(t, string(m.read("status")), "0.bin")
	}
}
