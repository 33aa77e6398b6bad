package read_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/read"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/uring"
)

// worker is one worker's sequence of a view.
type worker struct {
	view *order.View
	w    uint64
}

func (s worker) Len() uint64                        { return s.view.Count(s.w) }
func (s worker) Records(k uint64, dst []uint64) int { return s.view.Records(s.w, k, dst) }

// realDataset is a dataset of files, opened as by a mount.
type realDataset struct {
	catalog *catalog.Catalog
	storage storage.Storage
	order   spec.Order
	view    *order.View
}

// openReal opens the catalog of a dataset, its storage, and a view of the first epoch.
func openReal(t *testing.T, config catalog.Config, o spec.Order, workers uint64) realDataset {
	t.Helper()
	engine, err := uring.Open(uring.ModeAuto)
	require.NoError(t, err)
	t.Cleanup(func() { engine.Close() })
	config.IndexDir = t.TempDir()
	var s storage.Storage
	config.OpenStorage = func(root, _ string) (storage.Storage, error) {
		s, err = local.Open(root, engine)
		return s, err
	}
	c, err := catalog.Open(context.Background(), config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()); require.NoError(t, c.Close()) })
	epoch, err := order.NewEpoch(o, 0, c.ChunkStarts(o.ChunkBytes, o.ChunkRecords), nil)
	require.NoError(t, err)
	view, err := order.NewView(epoch, nil, spec.Assignment{Workers: workers, Batch: 1, Dealing: spec.DealInterleaved, Tail: spec.TailKeep})
	require.NoError(t, err)
	return realDataset{c, s, o, view}
}

// fetcher is closed with the test.
func (d realDataset) fetcher(t *testing.T, memoryBytes int64) *read.Fetcher {
	t.Helper()
	s, err := read.NewSurvey(d.catalog, d.storage, read.Options{MemoryBytes: memoryBytes, ReadTimeout: time.Minute, PieceBytes: d.order.ChunkBytes, PieceRecords: d.order.ChunkRecords})
	require.NoError(t, err)
	f, err := s.NewFetcher()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

// lendFirst reads the first n records of a worker, or slightly more, up to the first error, which
// it returns.
func (d realDataset) lendFirst(f *read.Fetcher, w, n uint64, see func(record []byte)) error {
	r := f.Open(worker{d.view, w})
	defer r.Close()
	var l read.Loan
	for k := uint64(0); k < n; {
		if err := r.Read(context.Background(), k, 50, &l); err != nil {
			return err
		}
		for _, record := range l.Records {
			see(record)
		}
		k += uint64(len(l.Records))
		l.Release()
	}
	return nil
}
