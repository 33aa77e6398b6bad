package pipeline

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

const leasedBytes = 20_000 // of a record

// openLeased opens a dataset of two shards of 100 records each.
func openLeased(t *testing.T) (d *Dataset, h *stream.Handle, first string, content []byte) {
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
	d = open(t, s)
	set, err := d.Set(context.Background(), 0, nil, s.Deal)
	require.NoError(t, err)
	h = set.Open(0, stream.Data)
	t.Cleanup(h.Close)
	return d, h, first, content
}

func TestAWriterWaitsForRepliesWithSlicesOfItsFileWhileOthersGetCopies(t *testing.T) {
	d, h, first, content := openLeased(t)
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
	d, h, _, content := openLeased(t)
	var r stream.Reply
	require.NoError(t, h.ReadAt(context.Background(), &r, 0, stream.MaxReadBytes))
	require.Zero(t, d.Status().Fetch.RecordsLent)
	require.True(t, bytes.Equal(content[:r.Len()], bytes.Join(r.Slices, nil)))
	r.Release()
}
