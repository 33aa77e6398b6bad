package storage

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestCloseWaitsForReadsAlsoForThoseSubmittedAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Inflight
		require.True(t, f.Begin(2))
		closed := false
		go func() {
			f.Close()
			closed = true
		}()
		synctest.Wait()
		require.True(t, f.Closed())
		require.False(t, f.Begin(1), "the storage is closed, and the read counts")
		for left := 3; left > 0; left-- {
			require.Equal(t, left, f.Reads())
			require.False(t, closed)
			f.End()
			synctest.Wait()
		}
		require.True(t, closed)
		f.Close()
	})
}

func TestReadsAreCheckedAgainstTheirObject(t *testing.T) {
	object := Object{Path: "a", SizeBytes: 10}
	for name, c := range map[string]struct {
		offset, size int64
		valid        bool
	}{
		"all": {0, 10, true}, "the last byte": {9, 1, true}, "no buffer": {0, 0, false}, "before the object": {-1, 2, false},
		"past its end": {9, 2, false}, "after it": {10, 1, false}, "an offset that overflows": {1<<63 - 1, 1, false},
	} {
		r := Read{Object: object, OffsetBytes: c.offset, Buf: make([]byte, c.size)}
		require.Equal(t, c.valid, r.Check() == nil, name)
	}
}

func TestFailureAddsObjectAndRange(t *testing.T) {
	r := Read{Object: Object{Path: "a", SizeBytes: 10}, OffsetBytes: 2, Buf: make([]byte, 3)}
	require.NoError(t, r.Failure(nil))
	require.Equal(t, ErrUnwanted, r.Failure(ErrUnwanted))
	err := r.Failure(ErrClosed)
	require.EqualError(t, err, "a: bytes [2, 5): the storage is closed: file already closed")
	require.True(t, errors.Is(err, fs.ErrClosed))
}

// Whatever a dataset and its cache keep open together, half of the limit is left.
func TestHalfOfDescriptorLimitStaysFree(t *testing.T) {
	for _, limit := range []uint64{64, 1024, 1 << 20} {
		for name, together := range map[string][]DescriptorShare{
			"on a disk":            {FilesShare, MappingsShare},
			"on a network, cached": {FilesShare, CacheShare, CopiesShare, CopyMappingsShare},
			"at a service, cached": {CacheShare, CopiesShare, CopyMappingsShare},
		} {
			sum := 0
			for _, s := range together {
				sum += s.of(limit, 0, math.MaxInt)
			}
			require.LessOrEqual(t, uint64(sum), limit/2, "%s, %d", name, limit)
		}
	}
	require.Equal(t, 8, FilesShare.of(16, 8, 512))
	require.Equal(t, 512, FilesShare.of(math.MaxUint64, 8, 512), "unlimited")
	require.Positive(t, FilesShare.Of(1, 1<<30))
}

// Memory of a file that has become shorter is gone. Our own mistakes look similar, and are not
// mistaken for that.
func TestOnlyMemoryThatIsGoneIsFaulted(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Truncate(1<<20))
	memory, err := unix.Mmap(int(f.Fd()), 0, 1<<20, unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(memory)) }()
	var to [10]byte
	touched := 0
	touch := func() {
		copy(to[:], memory[1<<19:])
		touched++
	}
	require.False(t, Faulted(touch))
	require.NoError(t, f.Truncate(0))
	require.True(t, Faulted(touch))
	require.Equal(t, 1, touched)

	var none []byte
	require.Panics(t, func() { Faulted(func() { none[0]++ }) })
	var nowhere *Object
	require.Panics(t, func() { Faulted(func() { nowhere.SizeBytes++ }) })
}
