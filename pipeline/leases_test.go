package pipeline

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

const leasedBytes = 20_000 // of a record

// openLeased opens a dataset of two shards of 100 records each, and reads all of it:
// from the page cache, where what is at once mapped is.
func openLeased(t *testing.T, o Options) (d *Dataset, h *stream.Handle, first string, content []byte) {
	dir := t.TempDir()
	content = make([]byte, 200*leasedBytes)
	for i := range content {
		content[i] = byte(1 + i/leasedBytes)
	}
	first = filepath.Join(dir, "a.bin")
	require.NoError(t, os.WriteFile(first, content[:len(content)/2], 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b.bin"), content[len(content)/2:], 0o600))
	s := testSpec(t, dir)
	s.Format.Name, s.Format.RecordBytes = "fixed", leasedBytes
	s.Order.Shuffle, s.Order.ChunkBytes, s.Order.ChunkRecords = spec.ShuffleNone, 1<<20, 50
	s.Deal.Workers = 1
	for range 100 {
		var err error
		d, err = Open(context.Background(), s, o)
		require.NoError(t, err)
		set, err := d.Set(context.Background(), 0, nil, s.Deal)
		require.NoError(t, err)
		h = set.Open(0, stream.Data)
		for off := 0; off < len(content); off += stream.MaxReadBytes {
			var r stream.Reply
			require.NoError(t, h.ReadAt(context.Background(), &r, int64(off), stream.MaxReadBytes))
			r.Release()
		}
		// On a machine that is busy an opening may take so long that a piece is read.
		if stats := d.Status().Fetch; stats.BytesRead == 0 || stats.RecordsMapped == 0 {
			break
		}
		h.Close()
		require.NoError(t, d.Close())
	}
	t.Cleanup(func() {
		h.Close()
		require.NoError(t, d.Close())
	})
	return d, h, first, content
}

// sleeper is a storage whose process stands still when a test says so, for so long
// that its leases are lost: what is held holds nobody up.
type sleeper struct {
	*local.Storage
	slept atomic.Bool
}

func (s *sleeper) Standing() bool              { return !s.slept.Load() }
func (s *sleeper) Unbroken(breaks uint64) bool { return s.Standing() && s.Breaks() == breaks }
func (s *sleeper) Hold(breaks uint64) bool     { return s.Breaks() == breaks }
func (s *sleeper) Unhold()                     {}

// lentWhileAsleep reads some records that are lent as they lie.
func lentWhileAsleep(t *testing.T) (s *sleeper, r *stream.Reply, h *stream.Handle, first string, want []byte) {
	o := Options{Faults: func(below storage.Storage) storage.Storage {
		s = &sleeper{Storage: below.(*local.Storage)}
		return s
	}}
	d, h, first, content := openLeased(t, o)
	before := d.Status().Fetch.RecordsLent
	r = &stream.Reply{Brief: true}
	t.Cleanup(r.Release)
	require.NoError(t, h.ReadAt(context.Background(), r, 10, 100_000))
	if stats := d.Status().Fetch; stats.RecordsLent == before {
		t.Skipf("nothing was lent: %v; %d records mapped", stats.Leases.Refused, stats.RecordsMapped)
	}
	return s, r, h, first, content[10:100_010]
}

func TestWhatIsLentIsCopiedWhereTheProcessStoodStill(t *testing.T) {
	s, r, _, _, want := lentWhileAsleep(t)
	require.Greater(t, len(r.Final()), 1)
	require.True(t, bytes.Equal(want, bytes.Join(r.Final(), nil)))
	s.slept.Store(true)
	require.Len(t, r.Final(), 1)
	require.True(t, bytes.Equal(want, r.Final()[0]))
	require.NoError(t, r.Sent())
}

// A writer gets through before the reply is handed over.
func TestWhatIsLentCannotBeReadWhereItsFileChangedWhileTheProcessStoodStill(t *testing.T) {
	for name, change := range map[string]func(path string) error{
		"cut":         func(path string) error { return os.Truncate(path, 30_000) },
		"overwritten": func(path string) error { return os.WriteFile(path, make([]byte, 100*leasedBytes), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			s, r, h, first, _ := lentWhileAsleep(t)
			require.NoError(t, change(first))
			s.slept.Store(true)
			read, write, err := os.Pipe()
			require.NoError(t, err)
			defer read.Close()
			defer write.Close()
			_, err = unix.Writev(int(write.Fd()), r.Final())
			require.ErrorIs(t, err, unix.EFAULT)
			require.Equal(t, 100_000, r.Len())
			require.ErrorIs(t, r.Sent(), storage.ErrChanged)
			r.Release()
			require.ErrorIs(t, h.ReadAt(context.Background(), r, 10, 100_000), storage.ErrChanged)
		})
	}
}

// A writer gets through in the moment in which it is handed over.
func TestWhatWasLentIsKnownToBeWrongWhereTheProcessStoodStillWhileItWasSent(t *testing.T) {
	s, r, _, first, want := lentWhileAsleep(t)
	require.True(t, bytes.Equal(want, bytes.Join(r.Final(), nil)))
	s.slept.Store(true)
	require.NoError(t, os.WriteFile(first, make([]byte, 100*leasedBytes), 0o600))
	err := r.Sent()
	require.ErrorIs(t, err, storage.ErrChanged)
	require.ErrorContains(t, err, "sent before, may be wrong")
}

func TestWhatWasLentIsRightWhereTheProcessStoodStillAndNobodyWrote(t *testing.T) {
	s, r, _, _, want := lentWhileAsleep(t)
	require.True(t, bytes.Equal(want, bytes.Join(r.Final(), nil)))
	s.slept.Store(true)
	require.NoError(t, r.Sent())
}

func TestAWriterWaitsForRepliesWithSlicesOfItsFileWhileOthersGetCopies(t *testing.T) {
	d, h, first, content := openLeased(t, Options{})
	at := func(r *stream.Reply, off int64) {
		require.NoError(t, h.ReadAt(context.Background(), r, off, 100_000))
		require.True(t, bytes.Equal(content[off:off+100_000], bytes.Join(r.Slices, nil)))
	}
	held, other := stream.Reply{Brief: true}, stream.Reply{Brief: true}
	at(&held, 0)
	if stats := d.Status().Fetch; stats.RecordsLent == 0 {
		held.Release()
		t.Skipf("nothing was lent: %v; %d records mapped", stats.Leases.Refused, stats.RecordsMapped)
	}
	truncated := make(chan error)
	go func() { truncated <- os.Truncate(first, 0) }()

	require.Eventually(t, func() bool { return d.Status().Fetch.Leases.Broken > 0 }, time.Minute, time.Millisecond)
	at(&other, 500_000) // of the file that is about to be written to
	other.Release()
	at(&other, 3_000_000) // of one that nobody wants to write to
	other.Release()
	require.True(t, bytes.Equal(content[:100_000], bytes.Join(held.Slices, nil)))
	select {
	case err := <-truncated:
		require.Fail(t, "truncated while slices of it were out", "%v", err)
	default:
	}
	held.Release()
	require.NoError(t, <-truncated)
	require.ErrorIs(t, h.ReadAt(context.Background(), &other, 0, 100_000), storage.ErrChanged)
	at(&other, 3_000_000)
	other.Release()
}

func TestRepliesOfCallersWhoMayWaitHaveNoSlicesOfFiles(t *testing.T) {
	d, h, _, content := openLeased(t, Options{})
	var r stream.Reply
	require.NoError(t, h.ReadAt(context.Background(), &r, 0, stream.MaxReadBytes))
	require.Zero(t, d.Status().Fetch.RecordsLent)
	require.True(t, bytes.Equal(content[:r.Len()], bytes.Join(r.Slices, nil)))
	r.Release()
}
