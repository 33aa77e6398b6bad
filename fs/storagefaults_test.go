package fs

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/faulty"
)

const (
	realRecord  = 4096
	realRecords = 24 // per shard
	realShards  = 2
)

// realDataset makes shards of numbered records.
func realDataset(t *testing.T, read spec.Read, compressed bool) spec.Spec {
	t.Helper()
	dir := t.TempDir()
	for i := range realShards {
		var b strings.Builder
		for j := range realRecords {
			fmt.Fprintf(&b, "%d/%d %s\n", i, j, strings.Repeat(string(rune('a'+(i*7+j)%26)), realRecord-20))
		}
		f, err := os.Create(filepath.Join(dir, shardName(i, compressed)))
		require.NoError(t, err)
		if compressed {
			w := gzip.NewWriter(f)
			_, err = w.Write([]byte(b.String()))
			err = errors.Join(err, w.Close())
		} else {
			_, err = f.WriteString(b.String())
		}
		require.NoError(t, errors.Join(err, f.Close()))
	}
	s := spec.Default()
	s.Dataset, s.IndexDir = dir, t.TempDir()
	s.Format.Name, s.Read = "lines", read
	s.Order.SizeRecords, s.Order.Lanes, s.Order.ChunkBytes, s.Order.ChunkRecords = 8, 2, 16<<10, 4
	s.Deal.Workers = 1
	s.MemoryBytes, s.IO = 1<<20, spec.IOPread
	s.ReadTimeout = time.Minute
	return s
}

func shardName(i int, compressed bool) string {
	if compressed {
		return fmt.Sprintf("shard-%d.txt.gz", i)
	}
	return fmt.Sprintf("shard-%d.txt", i)
}

// served is a mount of a real dataset over a storage with injected faults.
type served struct {
	*Mount
	t       *testing.T
	client  *agent
	dataset *pipeline.Dataset
	log     lockedLog
	fd      int
	size    int64
	ended   bool
}

type lockedLog struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func serveReal(t *testing.T, client *agent, s spec.Spec, set func(*faulty.Storage)) *served {
	t.Helper()
	d, err := pipeline.Open(t.Context(), s, pipeline.Options{Faults: func(below storage.Storage) storage.Storage {
		f := faulty.New(below)
		set(f)
		return f
	}})
	require.NoError(t, err)
	m := &served{t: t, client: client, dataset: d}
	m.Mount, err = New(t.Context(), Config{Dataset: d, Rings: ringed, MountPoint: newPoint(t), Position: checkpoint.Position{}, Log: slog.New(slog.NewTextHandler(&m.log, nil))})
	require.NoError(t, err)
	t.Cleanup(m.end)
	m.fd = client.open(m.path("worker-0.txt"), unix.O_RDONLY)
	m.size = client.must(call{Op: "stat", Path: m.path("worker-0.txt")}).Size
	return m
}

func (m *served) path(name string) string { return filepath.Join(m.MountPoint(), name) }

// end unmounts, once all readers have closed their files.
func (m *served) end() {
	if m.ended {
		return
	}
	m.ended = true
	m.client.must(call{Op: "close", FD: m.fd})
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	require.NoError(m.t, m.Unmount(ctx))
	require.NoError(m.t, m.dataset.Close())
	require.NoError(m.t, os.Remove(m.MountPoint()))
}

// whole reads the file, a record at a time; failures are counted, and if again is set those reads
// are repeated.
func (m *served) whole(again bool) (content []byte, failed int) {
	m.t.Helper()
	for off := int64(0); off < m.size; {
		a := m.client.do(call{Op: "pread", FD: m.fd, Off: off, N: realRecord})
		if a.Errno != 0 {
			require.Equal(m.t, syscall.EIO, a.Errno)
			if failed++; again {
				continue
			}
			a.Data = make([]byte, min(realRecord, m.size-off))
		}
		content = append(content, a.Data...)
		off += int64(len(a.Data))
	}
	return content, failed
}

// descriptors counts the descriptors of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(fds)
}

// settled waits until nothing that the mounts of a test have used is left.
func settled(t *testing.T, goroutines, fds int) {
	t.Helper()
	// Not with Eventually, which checks from a goroutine of its own.
	for end := time.Now().Add(callTimeout); runtime.NumGoroutine() > goroutines || descriptors(t) > fds; time.Sleep(time.Millisecond) {
		require.False(t, time.Now().After(end), "%d goroutines and %d descriptors, that were %d and %d", runtime.NumGoroutine(), descriptors(t), goroutines, fds)
	}
}

var realShapes = []struct {
	name       string
	read       spec.Read
	compressed bool
}{
	{"scan", spec.ReadScan, false},
	{"gather", spec.ReadGather, false},
	{"scan of gzip", spec.ReadScan, true},
	{"spool", spec.ReadSpool, true},
}

func TestEveryReadOfStorageThatFailsIsEIOAndTheNextOneWorks(t *testing.T) {
	needFUSE(t)
	client := newAgent(t)
	for _, shape := range realShapes {
		t.Run(shape.name, func(t *testing.T) {
			s := realDataset(t, shape.read, shape.compressed)
			m := serveReal(t, client, s, func(*faulty.Storage) {})
			want, failed := m.whole(false)
			require.Zero(t, failed)
			require.Len(t, want, int(m.size))
			m.end()
			goroutines, fds := runtime.NumGoroutine(), descriptors(t)
			told := 0
			for n := int64(0); ; n++ {
				var injected atomic.Bool
				nth := faulty.Nth(n)
				m := serveReal(t, client, s, func(f *faulty.Storage) {
					f.Before = func(r *storage.Read) error {
						err := nth(r)
						if err != nil {
							injected.Store(true)
						}
						return err
					}
				})
				got, failed := m.whole(true)
				require.Equal(t, string(want), string(got))
				if !injected.Load() {
					require.Zero(t, failed)
					require.Positive(t, n)
					break
				}
				status := client.read(m.path("status"))
				if failed > 0 {
					told++
					object := `(?s)shard-\d\.txt.* \[\d+, \d+\): injected fault in read ` + fmt.Sprint(n)
					require.Regexp(t, object, m.log.String())
					require.Regexp(t, object, status)
					require.Contains(t, m.log.String(), "errno=EIO")
				}
				// Reading ahead may continue after the file has been read.
				for end := time.Now().Add(callTimeout); m.dataset.Status().Fetch.LoadsInFlight > 0; time.Sleep(time.Millisecond) {
					require.False(t, time.Now().After(end), "a load does not end")
				}
				require.LessOrEqual(t, m.dataset.Status().Fetch.HeldBytes, s.MemoryBytes)
				m.end()
				settled(t, goroutines, fds)
			}
			// Failed reads ahead are repeated when a reader gets there.
			t.Logf("%d of the reads that failed were waited for", told)
		})
	}
}

func TestWhatStorageDoesIsEIOOrPassesUnseen(t *testing.T) {
	needFUSE(t)
	client := newAgent(t)
	for _, shape := range realShapes {
		first := shardName(0, shape.compressed)
		for _, c := range []struct {
			name  string
			set   func(f *faulty.Storage, dir string)
			fails bool
			// says is what the log and status contain.
			says string
		}{
			{"EIO for a range", func(f *faulty.Storage, _ string) { f.Before = faulty.Range(first, 100, 200, syscall.EIO) }, true, "input/output error"},
			{"cut short", func(f *faulty.Storage, _ string) { f.Before = faulty.Truncated(first, 150) }, true, "the file ended at 150"},
			{"another mtime in mid-read", func(f *faulty.Storage, dir string) {
				f.Before = once(first, func() error { return os.Chtimes(filepath.Join(dir, first), time.Time{}, time.Unix(1e9, 0)) })
			}, true, "modification time differs"},
			{"another size in mid-read", func(f *faulty.Storage, dir string) {
				f.Before = once(first, func() error { return os.Truncate(filepath.Join(dir, first), 50) })
			}, true, "size is 50 bytes"},
			{"transient, three times", func(f *faulty.Storage, _ string) {
				var n atomic.Int64
				f.Before = func(*storage.Read) error {
					if n.Add(1) <= 3 {
						return syscall.ETIMEDOUT
					}
					return nil
				}
			}, false, ""},
			{"slow", func(f *faulty.Storage, _ string) {
				f.Delay = func(*storage.Read) time.Duration { return 5 * time.Millisecond }
			}, false, ""},
		} {
			t.Run(shape.name+", "+c.name, func(t *testing.T) {
				s := realDataset(t, shape.read, shape.compressed)
				clean := serveReal(t, client, s, func(*faulty.Storage) {})
				want, _ := clean.whole(false)
				clean.end()
				goroutines, fds := runtime.NumGoroutine(), descriptors(t)

				m := serveReal(t, client, s, func(f *faulty.Storage) { c.set(f, s.Dataset) })
				got, failed := m.whole(false)
				require.Equal(t, c.fails, failed > 0)
				zeros := make([]byte, realRecord)
				for off := 0; off < len(want); off += realRecord {
					end := min(off+realRecord, len(want))
					if string(got[off:end]) != string(zeros[:end-off]) {
						require.Equal(t, string(want[off:end]), string(got[off:end]))
					}
				}
				status := client.read(m.path("status"))
				if c.fails {
					require.Less(t, failed, realShards*realRecords, "the other shard is read")
					require.Contains(t, m.log.String(), c.says)
					require.Contains(t, m.log.String(), "object="+first)
					require.Contains(t, status, c.says)
				}
				if strings.HasPrefix(c.name, "transient") {
					require.EqualValues(t, 3, m.dataset.Status().Retries.Retries)
					require.Contains(t, status, "3 reads retried")
				}
				m.end()
				settled(t, goroutines, fds)
			})
		}
	}
}

// once calls act before the first read of an object.
func once(path string, act func() error) func(*storage.Read) error {
	var n atomic.Int64
	return func(r *storage.Read) error {
		if r.Object.Path != path || n.Add(1) != 1 {
			return nil
		}
		return act()
	}
}
