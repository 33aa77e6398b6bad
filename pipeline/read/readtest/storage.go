package readtest

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/faulty"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/faultserver"
	"github.com/lsiofs/lsiofs/uring"
)

// OpenStorage returns a storage of a dataset's files that a test can make fail, hold or alter
// reads. It is closed when the test ends.
func OpenStorage(t testing.TB, dir string) *faulty.Storage {
	t.Helper()
	return faulty.New(OpenFiles(t, dir))
}

// OpenFiles returns only the storage, which can map.
func OpenFiles(t testing.TB, dir string) *local.Storage {
	t.Helper()
	engine, err := uring.Open(uring.ModePread)
	require.NoError(t, err)
	files, err := local.Open(dir, engine)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, files.Close())
		require.NoError(t, engine.Close())
	})
	return files
}

// Listed returns an object as the storage lists it.
func Listed(t testing.TB, dir, path string) storage.Object {
	t.Helper()
	o, err := OpenStorage(t, dir).Stat(context.Background(), path)
	require.NoError(t, err)
	return o
}

// CountedStorage counts the reads that are submitted to it.
type CountedStorage struct {
	storage.Storage
	Reads, Bytes atomic.Int64
}

// Caps implements storage.Storage: all reads are counted.
func (s *CountedStorage) Caps() storage.Caps { return s.Storage.Caps().OnlySubmit() }

// Submit implements storage.Storage.
func (s *CountedStorage) Submit(reads []*storage.Read) {
	for _, r := range reads {
		s.Reads.Add(1)
		s.Bytes.Add(int64(len(r.Buf)))
	}
	s.Storage.Submit(reads)
}

// ExtremeProfiles returns storages with extreme preferences.
func ExtremeProfiles() map[string]storage.Profile {
	return map[string]storage.Profile{
		"tiny reads, one at a time, no gaps": {Kind: storage.KindDisk, GapBytes: 0, ReadBytes: 4 << 10, Depth: 1, InFlightBytes: 4 << 10, AlignBytes: 1},
		"tiny reads, many at a time":         {Kind: storage.KindSSD, GapBytes: 1 << 20, ReadBytes: 4 << 10, Depth: 128, InFlightBytes: 512 << 10, AlignBytes: 4 << 10},
		"large reads, one at a time": {Kind: storage.KindNetwork, GapBytes: 0, ReadBytes: 4 << 20, Depth: 1, InFlightBytes: 4 << 20, AlignBytes: 512,
			Ahead: storage.Ahead{Bytes: 4 << 10, QueuedBytes: 4 << 10, FirstStretchBytes: 4 << 10, StretchBytes: 4 << 10, DecodeBytes: 4 << 10}},
		"large reads, many at a time": {Kind: storage.KindVirtual, GapBytes: 1 << 20, ReadBytes: 4 << 20, Depth: 128, InFlightBytes: 512 << 20, AlignBytes: 4 << 10,
			Ahead: storage.Ahead{Bytes: 4 << 30, QueuedBytes: 2 << 30, FirstStretchBytes: 64 << 20, StretchBytes: 64 << 20, DecodeBytes: 64 << 20}},
	}
}

// Poison overwrites memory that is released, so that a later use shows. Pages that were never
// written to are left out: they hold no records, and touching them would make the kernel allocate
// them.
func Poison(b []byte) {
	page := os.Getpagesize()
	resident := make([]byte, (len(b)+page-1)/page)
	if uintptr(unsafe.Pointer(unsafe.SliceData(b)))%uintptr(page) != 0 || mincore(b, resident) != nil {
		poison(b)
		return
	}
	for i, r := range resident {
		if r&1 != 0 {
			poison(b[i*page : min((i+1)*page, len(b))])
		}
	}
}

// poison overwrites b with 0xDB, at the speed of copying.
func poison(b []byte) {
	if len(b) == 0 {
		return
	}
	b[0] = 0xDB
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// mincore sets the lowest bit of each byte of resident if that page of b is in memory.
func mincore(b, resident []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), uintptr(unsafe.Pointer(unsafe.SliceData(resident))))
	if errno != 0 {
		return errno
	}
	return nil
}

// Served is a dataset on a web server.
type Served struct {
	*Dataset
	Server  *faultserver.Server
	Storage *remote.Storage
}

// Serve puts a dataset on a web server. From then on its index refers to the server's objects.
func Serve(t testing.TB, d *Dataset) Served {
	t.Helper()
	s := Served{Dataset: d, Server: faultserver.New()}
	for _, shard := range d.Index.ShardTable {
		b, err := os.ReadFile(filepath.Join(d.Dir, shard.Object.Path))
		require.NoError(t, err)
		s.Server.PutBytes(shard.Object.Path, b)
	}
	var err error
	s.Storage, err = remote.New(faultserver.Connect(t, s.Server), remote.DefaultConfig())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Storage.Close()) })
	listed := map[string]storage.Object{}
	require.NoError(t, s.Storage.List(context.Background(), func(string, bool) bool { return true }, func(o storage.Object) error {
		listed[o.Path] = o
		return nil
	}))
	for i := range d.Index.ShardTable {
		o := &d.Index.ShardTable[i].Object
		require.Contains(t, listed, o.Path)
		*o = listed[o.Path]
	}
	return s
}

// Asked returns how many requests for bytes the server has received so far, and for how many bytes.
func (s *Served) Asked() (requests int, bytes int64) {
	for _, r := range s.Server.Log() {
		if r.Method != "GET" {
			continue
		}
		requests++
		if r.Begin < 0 {
			bytes += s.size(r.Path)
			continue
		}
		bytes += r.End - r.Begin
	}
	return requests, bytes
}

func (s *Served) size(path string) int64 {
	for _, shard := range s.Index.ShardTable {
		if shard.Object.Path == path {
			return shard.Object.SizeBytes
		}
	}
	return 0
}

// DiskDir returns a directory that is not on a tmpfs.
func DiskDir(t testing.TB) string {
	t.Helper()
	for _, base := range []string{os.TempDir(), "/var/tmp"} {
		dir, err := os.MkdirTemp(base, "lsiofs-test-*")
		if err != nil {
			continue
		}
		t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
		var st unix.Statfs_t
		if require.NoError(t, unix.Statfs(dir, &st)); st.Type != unix.TMPFS_MAGIC {
			return dir
		}
	}
	t.Skip("no temporary directory on a disk")
	return ""
}

// Alter changes a file without changing its mtime.
func Alter(t *testing.T, d *Dataset, shard int, change func(b []byte)) {
	path := filepath.Join(d.Dir, d.Index.ShardTable[shard].Object.Path)
	info, err := os.Stat(path)
	require.NoError(t, err)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	change(b)
	require.NoError(t, os.WriteFile(path, b, 0o644))
	require.NoError(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
}
