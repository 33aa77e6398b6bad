package integration

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// The promise: a server's memory, apart from files, stays below --memory plus this.
const promisedSlack = 150 << 20

// watched is a mount whose memory is sampled continuously from its start on.
type watched struct {
	*mount
	budget int
	stop   chan struct{}
	done   sync.WaitGroup
	most   int // bytes, the largest sample
	looks  int
}

// watchMount mounts d with budget bytes of --memory.
func watchMount(t *testing.T, d dataset, s settings, budget int, more ...string) *watched {
	t.Helper()
	flags := append(append(s.flags(), "--memory", fmt.Sprint(budget)), more...)
	w := &watched{mount: startMount(t, d, t.TempDir(), flags...), budget: budget, stop: make(chan struct{})}
	w.done.Go(w.look)
	require.NoError(t, w.waitUntilMounted())
	return w
}

func (w *watched) look() {
	// Not to wait for anything, but so that sampling takes only a part of one core.
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if held, err := serve.MemoryOf(w.cmd.Process.Pid); err == nil {
			w.most = max(w.most, held)
			w.looks++
		}
		select {
		case <-tick.C:
		case <-w.stop:
			return
		case <-w.exited:
			return
		}
	}
}

// requirePromise ends the sampling and checks that the promise was kept.
func (w *watched) requirePromise() {
	w.t.Helper()
	w.requireAlive()
	close(w.stop)
	w.done.Wait()
	stats := w.fetchStats()
	w.t.Logf("at most %d MiB with --memory of %d MiB, in %d looks; %d MiB read for %d MiB of records, by %s",
		w.most>>20, w.budget>>20, w.looks, stats.BytesRead>>20, stats.BytesOut>>20, stats.Strategy)
	require.NotZero(w.t, w.looks)
	require.Less(w.t, w.most, w.budget+promisedSlack, "RssAnon and RssShmem of the server, with --memory %d", w.budget)
}

// heldBy returns the memory that a live process holds apart from files, in bytes.
func heldBy(t *testing.T, pid int) int {
	n, err := serve.MemoryOf(pid)
	require.NoError(t, err)
	return n
}

func withoutRace(t *testing.T) {
	if raceBuilt {
		t.Skip("the race detector has a memory of its own")
	}
}

// stampBytes is the length of a stamp, with which a stamped record begins: the shard's number and
// the record's number in it.
const stampBytes = 16

// stamped makes shards of records that are zero except for the stamps: sparse files that take one
// page per record.
func stamped(t *testing.T, shards, records, recordBytes int) dataset {
	t.Helper()
	d := dataset{dir: t.TempDir(), flags: []string{"--format", "fixed", "--record-bytes", fmt.Sprint(recordBytes)}, ext: ".bin"}
	for shard := range shards {
		f, err := os.Create(filepath.Join(d.dir, fmt.Sprintf("%04d.bin", shard)))
		require.NoError(t, err)
		require.NoError(t, f.Truncate(int64(records)*int64(recordBytes)))
		var stamp [stampBytes]byte
		for i := range records {
			binary.BigEndian.PutUint64(stamp[:], uint64(shard+1))
			binary.BigEndian.PutUint64(stamp[8:], uint64(i))
			_, err := f.WriteAt(stamp[:], int64(i)*int64(recordBytes))
			require.NoError(t, err)
		}
		require.NoError(t, f.Close())
	}
	return d
}

// stampReader reads a worker's file of stamped records from start to end. It checks the stamp of
// each record against the file of IDs, and that the rest is zero.
type stampReader struct {
	path   string
	f      *bufio.Reader
	ids    []string
	record []byte
	zeros  []byte
	k      int
	shards map[string]uint64 // number of the shard, by the first part of its IDs
}

func (m *mount) stampReader(recordBytes, readBytes, worker int) *stampReader {
	m.t.Helper()
	r := &stampReader{
		path: m.path("worker-%d.bin", worker), ids: splitIDs(m.read("worker-%d.ids", worker)),
		record: make([]byte, recordBytes), zeros: make([]byte, recordBytes), shards: map[string]uint64{},
	}
	f, err := os.Open(r.path)
	require.NoError(m.t, err)
	m.t.Cleanup(func() { f.Close() })
	r.f = bufio.NewReaderSize(f, readBytes)
	return r
}

// next reads and checks n records, or returns io.EOF at the end.
func (r *stampReader) next(n int) error {
	for range n {
		if r.k == len(r.ids) {
			return io.EOF
		}
		if _, err := io.ReadFull(r.f, r.record); err != nil {
			return fmt.Errorf("%s: record %d: %w", r.path, r.k, err)
		}
		shard, ordinal := binary.BigEndian.Uint64(r.record), binary.BigEndian.Uint64(r.record[8:])
		id := r.ids[r.k]
		known, seen := r.shards[id[:8]]
		if !seen {
			known, r.shards[id[:8]] = shard, shard
		}
		if shard == 0 || shard != known || ordinal != binary.BigEndian.Uint64([]byte(id[8:])) {
			return fmt.Errorf("%s: record %d has the stamp of %d of shard %d: not the one that its ID says", r.path, r.k, ordinal, shard)
		}
		if !bytes.Equal(r.record[stampBytes:], r.zeros[stampBytes:]) {
			return fmt.Errorf("%s: record %d is not zero behind its stamp", r.path, r.k)
		}
		r.k++
	}
	return nil
}

// all reads the remaining records.
func (r *stampReader) all() error {
	for {
		if err := r.next(1 << 10); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func TestMemoryPromiseHoldsForLargeRecordsInLargeShuffleBuffer(t *testing.T) {
	serve.Tier(t, serve.CI)
	withoutRace(t)
	// As references the buffer is small; as records it would have 3.2 GB.
	const recordBytes, shuffleSize = 200_000, 16384
	d := stamped(t, 20, 1000, recordBytes)
	s := usual()
	s.ShuffleSize, s.Lanes, s.ChunkRecords, s.Workers = shuffleSize, 32, 128, 2
	for _, c := range []struct {
		name       string
		chunkBytes int
		budget     int
		records    int // read by each worker
	}{
		{"the default chunks, of one record", 256 << 10, 64 << 20, 1500},
		{"chunks of twenty records, of which nineteen wait", 4 << 20, 256 << 20, 150},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.ChunkBytes = c.chunkBytes
			w := watchMount(t, d, s, c.budget)
			var group errgroup.Group
			for worker := range s.Workers {
				r := w.stampReader(recordBytes, 1<<20, worker)
				group.Go(func() error { return r.next(c.records) })
			}
			require.NoError(t, group.Wait())
			w.requirePromise()
		})
	}
}

func TestMemoryPromiseHoldsForWorkersAtVeryDifferentSpeeds(t *testing.T) {
	serve.Tier(t, serve.CI)
	withoutRace(t)
	// The buffer would have 256 MiB, eight times the budget.
	const recordBytes, budget = 32 << 10, 32 << 20
	d := stamped(t, 16, 1024, recordBytes)
	s := usual()
	s.ShuffleSize, s.Lanes, s.ChunkBytes, s.ChunkRecords, s.Workers = 8192, 16, 256<<10, 128, 4
	w := watchMount(t, d, s, budget)
	stops, slow, medium, fast := w.stampReader(recordBytes, recordBytes, 0), w.stampReader(recordBytes, recordBytes, 1), w.stampReader(recordBytes, recordBytes, 2), w.stampReader(recordBytes, recordBytes, 3)
	require.NoError(t, stops.next(128), "4 MiB, and it never goes on")
	// Fifty records to one, whatever the machine's speed.
	for medium.k < len(medium.ids) {
		for range 10 {
			if err := fast.next(5); err != io.EOF {
				require.NoError(t, err)
			}
		}
		require.NoError(t, slow.next(1))
		if err := medium.next(10); err != io.EOF {
			require.NoError(t, err)
		}
	}
	require.Equal(t, len(fast.ids), fast.k)
	w.requirePromise()
}

func TestMemoryPromiseHoldsForSixtyFourFilesReadAtOnce(t *testing.T) {
	serve.Tier(t, serve.CI)
	withoutRace(t)
	// Just below the size from which records are sent without copying, so that each of 64 replies
	// of 1 MiB is a copy.
	const recordBytes, budget, files = 24_000, 64 << 20, 64
	d := stamped(t, 16, 1024, recordBytes)
	s := usual()
	s.ShuffleSize, s.Lanes, s.ChunkBytes, s.ChunkRecords, s.Workers = 8192, 16, 256<<10, 128, files
	w := watchMount(t, d, s, budget)
	var group errgroup.Group
	for worker := range files {
		r := w.stampReader(recordBytes, 1<<20, worker)
		group.Go(r.all)
	}
	require.NoError(t, group.Wait())
	w.requirePromise()
}

func TestMemoryPromiseHoldsForReadsOfEveryLength(t *testing.T) {
	serve.Tier(t, serve.CI)
	withoutRace(t)
	d := big(t)
	// FUSE's library has buffers for each of them. With many more than there are processors, the
	// collector's threads wait for each other, and buffers grow meanwhile: 48 on two busy
	// processors take up to 300 MiB.
	for _, cores := range []string{"", "16"} {
		t.Run("GOMAXPROCS="+cores, func(t *testing.T) {
			if cores == "" {
				serve.Tier(t, serve.Night) // other tests use the default, too
			} else {
				t.Setenv("GOMAXPROCS", cores)
			}
			readInEveryLength(t, d)
		})
	}
}

func readInEveryLength(t *testing.T, d dataset) {
	const budget, longest = 16 << 20, 1 << 20
	s := bigSettings()
	w := watchMount(t, d, s, budget)
	var group errgroup.Group
	for worker := range s.Workers {
		f, err := os.Open(w.path("worker-%d.bin", worker))
		require.NoError(t, err)
		defer f.Close()
		group.Go(func() error {
			buf := make([]byte, longest)
			for range 6 {
				for n := 4096; n <= longest; n += 4096 {
					if _, err := f.ReadAt(buf[:n], 0); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	w.requirePromise()
}

// lineBytes is the length of a line of numbered, and numberedShards times numberedLines their
// number.
const (
	lineBytes      = 1024
	numberedShards = 8
	numberedLines  = 80 << 10
)

type compressor func(io.Writer) (io.WriteCloser, error)

// numbered makes shards of lines that hardly differ, each shard one member or frame: 640 MiB of
// them take some MB.
func numbered(t *testing.T, ext string, compress compressor) dataset {
	t.Helper()
	d := dataset{dir: t.TempDir(), ext: ".txt"}
	line := append(bytes.Repeat([]byte("x"), lineBytes-1), '\n')
	for shard := range numberedShards {
		f, err := os.Create(filepath.Join(d.dir, fmt.Sprintf("%d.txt%s", shard, ext)))
		require.NoError(t, err)
		w, err := compress(f)
		require.NoError(t, err)
		for i := range numberedLines {
			copy(line, fmt.Appendf(nil, "%08d", shard*numberedLines+i))
			_, err := w.Write(line)
			require.NoError(t, err)
		}
		require.NoError(t, errors.Join(w.Close(), f.Close()))
	}
	return d
}

func TestMemoryPromiseHoldsForCompressedDatasetTenTimesBudget(t *testing.T) {
	serve.Tier(t, serve.CI)
	withoutRace(t)
	const budget = 64 << 20
	zst := func(windowBytes int) compressor {
		return func(w io.Writer) (io.WriteCloser, error) {
			return zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(windowBytes))
		}
	}
	for _, c := range []struct {
		name, ext string
		tier      string
		compress  compressor
	}{
		{"gzip", ".gz", serve.CI, func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriterLevel(w, gzip.BestSpeed) }},
		{"zstd", ".zst", serve.Night, zst(2 << 20)},
		{"zstd, its windows together as large as the budget", ".zst", serve.Night, zst(8 << 20)},
		{"zstd, each window twice the budget", ".zst", serve.CI, zst(128 << 20)},
	} {
		t.Run(c.name, func(t *testing.T) {
			serve.Tier(t, c.tier)
			d := numbered(t, c.ext, c.compress)
			s := usual()
			s.ShuffleSize, s.Lanes, s.ChunkBytes, s.ChunkRecords, s.Workers = 16384, 32, 256<<10, 128, 2
			w := watchMount(t, d, s, budget, "--spool-dir", spoolDir(t))
			seen := make([]bool, numberedShards*numberedLines)
			var mu sync.Mutex
			var group errgroup.Group
			for worker := range s.Workers {
				group.Go(func() error { return readNumbered(w.path("worker-%d.txt", worker), &mu, seen) })
			}
			require.NoError(t, group.Wait())
			require.NotContains(t, seen, false, "every line came")
			w.requirePromise()
		})
	}
}

// readNumbered reads a worker's file to the end and records which lines came.
func readNumbered(path string, mu *sync.Mutex, seen []bool) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 1024*lineBytes)
	rest := append(bytes.Repeat([]byte("x"), lineBytes-9), '\n')
	for {
		n, err := io.ReadFull(f, block)
		if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
			return err
		}
		ended := err != nil
		mu.Lock()
		for at := 0; at < n; at += lineBytes {
			line := block[at:min(at+lineBytes, n)]
			number, err := strconv.Atoi(string(line[:8]))
			if err != nil || seen[number] || !bytes.Equal(line[8:], rest) {
				mu.Unlock()
				return fmt.Errorf("%s: a line is damaged, or comes twice: %.20q: %v", path, line, err)
			}
			seen[number] = true
		}
		mu.Unlock()
		if ended {
			return nil
		}
	}
}
