package pipeline

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

const leasedBytes = 20_000 // size of a record

// openLeased opens a dataset of two shards of 100 records each, and reads all of it from the page
// cache, so that records are mapped.
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
		// On a busy machine opening may take so long that a piece is read.
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

func TestWriterDoesNotWaitForRepliesAndTheyStayCorrect(t *testing.T) {
	d, h, first, content := openLeased(t, Options{})
	at := func(r *stream.Reply, off int64) {
		require.NoError(t, h.ReadAt(context.Background(), r, off, 100_000))
		require.True(t, bytes.Equal(content[off:off+100_000], bytes.Join(r.Slices, nil)))
	}
	var out, other stream.Reply
	before := d.Status().Fetch.RecordsMapped
	at(&out, 0)
	if stats := d.Status().Fetch; stats.RecordsMapped == before {
		out.Release()
		t.Skipf("nothing is mapped: %v", stats.Leases.Refused)
	}
	require.NoError(t, os.Truncate(first, 0), "nobody holds the writer up")
	require.True(t, bytes.Equal(content[:100_000], bytes.Join(out.Slices, nil)), "what is out was copied")
	out.Release()
	require.ErrorIs(t, h.ReadAt(context.Background(), &other, 0, 100_000), storage.ErrChanged)
	at(&other, 3_000_000) // in a file that is not written to
	other.Release()
}
