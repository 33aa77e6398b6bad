package integration

import (
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// manyRecords returns a dataset of 4.2 million records of 16 bytes, all zero.
func manyRecords(t *testing.T) (d dataset, records int) {
	t.Helper()
	const shards, bytes, recordBytes = 4, 16 << 20, 16
	d = dataset{dir: t.TempDir(), flags: []string{"--format", "fixed", "--record-bytes", fmt.Sprint(recordBytes)}, ext: ".bin"}
	for shard := range shards {
		name := filepath.Join(d.dir, fmt.Sprintf("%d.bin", shard))
		require.NoError(t, os.WriteFile(name, nil, 0o644))
		require.NoError(t, os.Truncate(name, bytes))
	}
	return d, shards * bytes / recordBytes
}

// readPlaces reads one byte at each of places positions of a file, from start to end.
func readPlaces(f *os.File, places int) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	one := make([]byte, 1)
	for i := range places {
		if _, err := f.ReadAt(one, info.Size()/int64(places)*int64(i)); err != nil {
			return fmt.Errorf("%s: %w", f.Name(), err)
		}
	}
	return nil
}

// viewSettings returns the default order, for which a walker has 64 KiB.
func viewSettings() settings {
	s := usual()
	s.ShuffleSize, s.Lanes, s.ChunkBytes, s.ChunkRecords, s.Workers = 16384, 32, 256<<10, 128, 1
	return s
}

// This is the only test of views that the gate mounts:
// TestViewsSharingMemoryStayWithinItsBound in package order counts what they
// keep. Those below take 30 to 50 s of processor time each and run nightly.
func TestMemoryPromiseHoldsForManyViewsOpenAtOnce(t *testing.T) {
	serve.Tier(t, serve.CI)
	withoutRace(t)
	const budget, views, places = 64 << 20, 60, 64
	d, _ := manyRecords(t)
	w := watchMount(t, d, viewSettings(), budget)
	for i := range views {
		f, err := os.Open(w.path("epoch-0/from-%d/worker-0-of-1.bin", i*1000))
		require.NoError(t, err)
		defer f.Close()
		require.NoError(t, readPlaces(f, places))
	}
	w.requirePromise()
}

func TestMemoryPromiseHoldsForManyViewsInTurn(t *testing.T) {
	serve.Tier(t, serve.Night)
	withoutRace(t)
	const budget, views, places = 64 << 20, 60, 64
	d, _ := manyRecords(t)
	w := watchMount(t, d, viewSettings(), budget)
	for i := range views {
		f, err := os.Open(w.path("epoch-0/from-%d/worker-0-of-1.bin", i*1000))
		require.NoError(t, err)
		require.NoError(t, readPlaces(f, places))
		require.NoError(t, f.Close())
	}
	w.requirePromise()
}

// The IDs' files have the same pages and need no layout. In each of 150 views, single bytes are
// read at 240 places.
func TestMemoryPromiseHoldsForReadsOfSingleBytesInManyViews(t *testing.T) {
	serve.Tier(t, serve.Night)
	withoutRace(t)
	const budget, views, places, readers = 64 << 20, 150, 240, 4
	d, _ := manyRecords(t)
	w := watchMount(t, d, viewSettings(), budget)
	var group errgroup.Group
	for reader := range readers {
		group.Go(func() error {
			for i := reader; i < views; i += readers {
				f, err := os.Open(w.path("epoch-0/from-%d/worker-0-of-1.ids", i*1000))
				if err != nil {
					return err
				}
				defer f.Close()
				if err := readPlaces(f, places); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	w.requirePromise()
}

// For each epoch the permuted chunks and the states of its reservoirs are kept, and for each view a
// layout, which has 32 bytes per worker.
func TestMemoryPromiseHoldsForManyEpochsAndNumbersOfWorkers(t *testing.T) {
	serve.Tier(t, serve.Night)
	withoutRace(t)
	const budget, epochs, numbers = 64 << 20, 64, 32
	d, _ := manyRecords(t)
	s := viewSettings()
	s.ChunkRecords = 8 // 2 MiB per epoch
	w := watchMount(t, d, s, budget)
	for i := range epochs {
		f, err := os.Open(w.path("epoch-%d/worker-0-of-1.ids", i))
		require.NoError(t, err)
		defer f.Close()
		require.NoError(t, readPlaces(f, 8))
	}
	for i := range numbers {
		f, err := os.Open(w.path("epoch-0/worker-0-of-%d.bin", 65536-i))
		require.NoError(t, err)
		defer f.Close()
		require.NoError(t, readPlaces(f, 8))
	}
	w.requirePromise()
}

func TestMemoryPromiseHoldsForManyOpenFiles(t *testing.T) {
	serve.Tier(t, serve.CI)
	withoutRace(t)
	const budget, openings = 64 << 20, 900
	d, _ := manyRecords(t)
	w := watchMount(t, d, viewSettings(), budget)
	for i := range openings {
		f, err := os.Open(w.path("epoch-0/worker-%d-of-64.bin", i%64))
		require.NoError(t, err)
		defer f.Close()
		require.NoError(t, readPlaces(f, 8))
	}
	w.requirePromise()
}

// The records are shorter than their entries in tables.
func TestMemoryPromiseHoldsForRecordsSmallerThanTheirTables(t *testing.T) {
	serve.Tier(t, serve.CI)
	withoutRace(t)
	const shards, lines, lineBytes = 8, 320 << 10, 12
	d := dataset{dir: t.TempDir(), ext: ".jsonl"}
	rng := rand.New(rand.NewPCG(1, 1))
	for shard := range shards {
		f, err := os.Create(filepath.Join(d.dir, fmt.Sprintf("%d.jsonl.gz", shard)))
		require.NoError(t, err)
		w, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
		require.NoError(t, err)
		for range lines {
			_, err := fmt.Fprintf(w, "\"%09d\"\n", rng.Uint64N(1e9))
			require.NoError(t, err)
		}
		require.NoError(t, w.Close())
		require.NoError(t, f.Close())
	}
	for _, budget := range []int{40 << 20, 64 << 20, 200 << 20} {
		t.Run(fmt.Sprint(budget>>20), func(t *testing.T) {
			w := watchMount(t, d, viewSettings(), budget, "--spool-dir", spoolDir(t))
			f, err := os.Open(w.path("worker-0.jsonl"))
			require.NoError(t, err)
			defer f.Close()
			n, err := io.Copy(io.Discard, f)
			require.NoError(t, err)
			require.Equal(t, int64(shards*lines*lineBytes), n)
			stats := w.fetchStats()
			t.Logf("%.2f times decoded", float64(stats.DecodedBytes)/float64(n))
			require.LessOrEqual(t, stats.DecodedBytes, uint64(3*n), "decoded for %d bytes", n)
			w.requirePromise()
		})
	}
}
