package fileset

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/format/tar"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// The kernel is asked to drop every other file from memory.
func TestFilesNotInMemoryAreRead(t *testing.T) {
	root := t.TempDir()
	contents := map[string][]byte{}
	for i := range 300 {
		path := fmt.Sprintf("d/%04d", i)
		contents[path] = bytes.Repeat([]byte{byte(i)}, 1+i*37%9000)
		write(t, root, path, contents[path])
	}
	for path := range contents {
		f, err := os.Open(filepath.Join(root, path))
		require.NoError(t, err)
		require.NoError(t, f.Sync())
		if path[len(path)-1]%2 == 0 {
			require.NoError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
		}
		require.NoError(t, f.Close())
	}
	s := open(t, root, tar.FileFraming{})
	s.most = 2
	o := list(t, s)["d"]
	whole, _ := archive(contents, tar.FileFraming{})
	p := make([]byte, o.SizeBytes)
	require.NoError(t, storage.ReadAt(background(), s, o, p, 0))
	require.True(t, bytes.Equal(whole, p))
	requireRanges(t, s, o, whole)
}

// The file was never looked up, and is missed.
func TestMissedFileIsLeftToWaiters(t *testing.T) {
	root := t.TempDir()
	write(t, root, "d/a", []byte("content"))
	s := open(t, root, bare{})
	o := list(t, s)["d"]
	done := make(chan error, 1)
	r := &storage.Read{Object: o, Buf: make([]byte, 7), Done: func(err error) { done <- err }}
	x := &reading{read: r, table: s.table}
	x.table.hold()
	var err error
	x.segment, err = s.table.find(o)
	require.NoError(t, err)
	require.True(t, s.inflight.Begin(1))
	x.pending.Store(1)
	s.miss(job{reading: x, from: 0, to: 1, missed: true})
	s.end(x) // the looker's part
	require.NoError(t, <-done)
	require.Equal(t, "content", string(r.Buf))
}

// Each of the waiters waits only for its own part.
func TestWaitersShareMissedFiles(t *testing.T) {
	s := &Storage{taken: takenJobs, most: 4, waiters: workers{waits: true, members: 4}}
	for i := range 8 {
		s.missed.push(job{from: i, to: i + 1, missed: true})
	}
	w := &worker{crew: &s.waiters}
	for _, want := range []int{2, 1, 1, 1, 1, 1, 1} {
		require.True(t, s.take(w, false))
		require.Equal(t, want, w.n)
	}
	require.Zero(t, s.missed.len())
}
