package scan

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/mapped"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
)

// For each shard, opening it for a mapping hangs, while the same files can be read.
func TestShardIsReadWhileItsOpenHangs(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 4, Records: 400, MaxBytes: 3000})
	seq := readtest.ReservoirOrder(3, d.Index, 3, 300)
	store := openMapper(t, d)
	store.hangs = make(chan struct{})
	sc := newMappedScanner(t, d, 64<<20, store)
	configureMaps(sc, func(c *mapped.Config) { c.LeastBytes, c.Patience = 0, time.Microsecond })
	t.Cleanup(func() {
		select {
		case <-store.hangs:
		default:
			close(store.hangs)
		}
	})
	r := sc.Open(seq)
	defer r.Close()
	readtest.ReadAll(t, d, r, seq, 30)
	require.Zero(t, sc.Stats().RecordsMapped)
	require.LessOrEqual(t, store.calls.Load(), int64(4), "one opening a shard hangs at most")
	close(store.hangs)
}

// Loads that wait for a file to be opened are cancelled like other loads that have not begun.
func TestLoadsWaitingForOpenAreCancellable(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 4, Records: 400, MaxBytes: 3000})
	seq := readtest.ReservoirOrder(3, d.Index, 3, 300)
	store := openMapper(t, d)
	store.hangs = make(chan struct{})
	sc := newMappedScanner(t, d, 64<<20, store)
	r := sc.Open(seq)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var l budget.Records
	require.ErrorIs(t, r.Read(ctx, 0, 30, &l), context.Canceled)
	require.Positive(t, sc.Stats().LoadsInFlight)
	r.Close()
	require.Zero(t, sc.Stats().LoadsInFlight)
	close(store.hangs)
}

func TestUnmappableShardIsOpenedForMappingOnce(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 4, Records: 1000, MaxBytes: 3000})
	seq := readtest.ReservoirOrder(3, d.Index, 3, 300)
	store := openMapper(t, d)
	store.unmappable = true
	sc := newMappedScanner(t, d, 1<<20, store)
	for range 3 {
		r := sc.Open(seq)
		readtest.ReadAll(t, d, r, seq, 30)
		r.Close()
	}
	require.Equal(t, int64(4), store.calls.Load())
}

func TestWarnsOnceAboutShardOpenForWriting(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 3, Records: 100, MaxBytes: 3000})
	store := openMapper(t, d)
	for _, s := range d.Index.ShardTable {
		w, err := os.OpenFile(filepath.Join(d.Dir, s.Object.Path), os.O_RDWR, 0)
		require.NoError(t, err)
		defer w.Close()
	}
	var log bytes.Buffer
	sc := newMappedScanner(t, d, 64<<20, store)
	configureMaps(sc, func(c *mapped.Config) {
		c.LeastBytes, c.Patience = 0, time.Hour
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	r := sc.Open(readtest.InOrder(d.Index))
	defer r.Close()
	readtest.ReadAll(t, d, r, readtest.InOrder(d.Index), 30)
	r.Close()
	if store.LeaseStats().Refused["a program has the file open for writing (what it stores through a mapping may go unnoticed)"] == 0 {
		t.Skipf("there are no leases here: %v", store.LeaseStats())
	}
	require.NoError(t, sc.Close())
	require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("a program has a shard open for writing")), log.String())
}
