package local

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

func TestCachedPartOfObjectIsReadAtOnce(t *testing.T) {
	root := t.TempDir()
	content := strings.Repeat("0123456789abcdef", 10_000)
	write(t, root, "shard", content)
	s := openAt(t, root, 10)
	r, err := s.OpenResident(stat(t, s, "shard"))
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()

	p := make([]byte, 5)
	if r.ReadAt(p, 12_347) { // otherwise the file system does not support such reads
		require.Equal(t, content[12_347:12_352], string(p))
	}
	require.False(t, r.ReadAt(p, int64(len(content))-3), "its end is not five bytes")

	// Pages that the kernel evicts, on file systems where it does so on request, are not held.
	f, err := os.Open(filepath.Join(root, "shard"))
	require.NoError(t, err)
	defer f.Close()
	before := r.Holds(0, int64(len(content)))
	require.NoError(t, f.Sync())
	require.NoError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	if r.Holds(0, int64(len(content))) {
		require.True(t, before)
	}
}

func TestChangedObjectIsNotOpenedForMemoryReads(t *testing.T) {
	root := t.TempDir()
	write(t, root, "shard", "content")
	s := openAt(t, root, 10)
	o := stat(t, s, "shard")
	require.NoError(t, os.Chtimes(filepath.Join(root, "shard"), time.Time{}, time.Unix(1, 0)))
	_, err := s.OpenResident(o)
	require.ErrorIs(t, err, storage.ErrChanged)
}

func TestDirectReadsDoNotQueryMemory(t *testing.T) {
	root := t.TempDir()
	write(t, root, "shard", "content")
	s := openDirectly(t, root, openEngine(t, uring.ModeAuto), DirectOn, 10)
	r, err := s.OpenResident(stat(t, s, "shard"))
	require.NoError(t, err)
	require.Nil(t, r)
}
