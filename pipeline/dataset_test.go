package pipeline

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testRecords = 3000

// makeLines writes shards of numbered lines, half of them compressed.
func makeLines(t testing.TB) string {
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(1, 1))
	for shard := range 6 {
		var b bytes.Buffer
		for i := range testRecords / 6 {
			fmt.Fprintf(&b, "{\"n\": %d, \"pad\": \"%0*d\"}\n", shard*testRecords/6+i, 1+rng.IntN(300), 0)
		}
		name, data := fmt.Sprintf("s%d.jsonl", shard), b.Bytes()
		if shard%2 == 1 {
			var z bytes.Buffer
			w := gzip.NewWriter(&z)
			_, err := w.Write(data)
			require.NoError(t, err)
			require.NoError(t, w.Close())
			name, data = name+".gz", z.Bytes()
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
	}
	return dir
}

func testSpec(t testing.TB, dataset string) spec.Spec {
	s := spec.Default()
	s.Dataset, s.IndexDir = dataset, t.TempDir()
	s.Order.Seed, s.Order.SizeRecords, s.Order.Lanes, s.Order.ChunkRecords = 7, 300, 5, 20
	s.Deal.Workers = 3
	s.Cache.Off = true
	return s
}

func open(t testing.TB, s spec.Spec) *Dataset {
	d, err := Open(context.Background(), s, Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// readFile reads a file of a set to its end, n bytes at a time.
func readFile(t testing.TB, s *stream.Set, w uint64, k stream.Kind, n int) []byte {
	h := s.Open(w, k)
	defer h.Close()
	var all []byte
	var r stream.Reply
	for {
		require.NoError(t, h.ReadAt(context.Background(), &r, int64(len(all)), n))
		if r.Len() == 0 {
			return all
		}
		for _, b := range r.Slices {
			all = append(all, b...)
		}
		r.Release()
	}
}

func TestBytesDoNotDependOnBudgetEngineOrReadSize(t *testing.T) {
	dir := makeLines(t)
	want := map[string][32]byte{}
	for _, memory := range []int64{1 << 20, 4 << 20, 1 << 30} {
		for _, io := range []spec.IO{spec.IOPread, spec.IOAuto} {
			for _, n := range []int{4096 - 1, 100_000, stream.MaxReadBytes} {
				s := testSpec(t, dir)
				s.MemoryBytes, s.IO = memory, io
				d := open(t, s)
				done := []order.Done{order.First(100, s.Order)}
				set, err := d.Set(context.Background(), 2, done, s.Deal)
				require.NoError(t, err)
				for w := range s.Deal.Workers {
					for k := stream.Data; k <= stream.Offsets; k++ {
						name := fmt.Sprint(w, k)
						sum := sha256.Sum256(readFile(t, set, w, k, n))
						if _, known := want[name]; !known {
							want[name] = sum
						}
						require.Equal(t, want[name], sum, "worker %d, kind %d, memory %d, io %s, reads of %d", w, k, memory, io, n)
					}
				}
			}
		}
	}
}

func TestWorkersTogetherReadEveryRecordOnce(t *testing.T) {
	s := testSpec(t, makeLines(t))
	d := open(t, s)
	set, err := d.Set(context.Background(), 0, nil, s.Deal)
	require.NoError(t, err)
	seen := map[int]int{}
	for w := range s.Deal.Workers {
		for line := range bytes.Lines(readFile(t, set, w, stream.Data, 10_000)) {
			var record struct{ N int }
			require.NoError(t, json.Unmarshal(line, &record))
			seen[record.N]++
		}
	}
	require.Len(t, seen, testRecords)
	for n, times := range seen {
		require.Equal(t, 1, times, "record %d", n)
	}
}

func TestBoundedNumberOfSetsIsCached(t *testing.T) {
	s := testSpec(t, makeLines(t))
	d := open(t, s)
	first, err := d.Set(context.Background(), 0, nil, s.Deal)
	require.NoError(t, err)
	again, err := d.Set(context.Background(), 0, nil, s.Deal)
	require.NoError(t, err)
	require.Same(t, first, again)
	before := readFile(t, first, 0, stream.Data, 1<<20)
	for epoch := range uint64(3 * keptSets) {
		_, err := d.Set(context.Background(), epoch+1, nil, s.Deal)
		require.NoError(t, err)
	}
	require.LessOrEqual(t, d.current.sets.recent.Len(), keptSets)
	require.LessOrEqual(t, d.current.epochs.recent.Len(), keptEpochs)
	require.Equal(t, before, readFile(t, first, 0, stream.Data, 1<<20), "a set that was handed out stays good")
}

func TestImpossibleResumesAreErrorsAndAreNotCached(t *testing.T) {
	s := testSpec(t, makeLines(t))
	d := open(t, s)
	for range 2 {
		_, err := d.Set(context.Background(), 0, []order.Done{{Batch: 1, Consumed: []uint64{testRecords + 1}}}, s.Deal)
		require.Error(t, err)
	}
	require.Zero(t, d.current.sets.recent.Len())
}

func TestDescribeNamesInputsOfStreams(t *testing.T) {
	s := testSpec(t, makeLines(t))
	d := open(t, s)
	b, err := d.Describe()
	require.NoError(t, err)
	var got struct {
		Fingerprint     string
		Shards, Records int
		Extension       string
		Order           struct{ Seed, Size int }
		Deal            struct{ Workers int }
	}
	require.NoError(t, json.Unmarshal(b, &got))
	require.Equal(t, d.Fingerprint(), got.Fingerprint)
	require.Equal(t, 6, got.Shards)
	require.Equal(t, testRecords, got.Records)
	require.Equal(t, ".jsonl", got.Extension)
	require.Equal(t, 7, got.Order.Seed)
	require.Equal(t, 300, got.Order.Size)
	require.Equal(t, 3, got.Deal.Workers)
	again, err := d.Describe()
	require.NoError(t, err)
	require.Equal(t, b, again)
}

func TestDescribeListsDirectoriesOfSingleFilesLeftEmptyBySplit(t *testing.T) {
	dir := t.TempDir()
	write := func(path string) {
		path = filepath.Join(dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(path), 0o644))
	}
	for i := range 40 {
		write(fmt.Sprintf("cat/%d.jpg", i))
	}
	for _, path := range []string{"dog/1.jpg", "dog/1.cls", "a\xffb/x.jpg", "top.jpg"} {
		write(path)
	}
	describe := func(d *Dataset) (list []directory) {
		b, err := d.Describe()
		require.NoError(t, err)
		var got struct{ Directories []directory }
		require.NoError(t, json.Unmarshal(b, &got))
		return got.Directories
	}
	s := testSpec(t, dir)
	s.Format.Name = "files"
	want := []directory{{Path: ".", Records: 1}, {Path: "a\ufffdb", Hex: "61ff62", Records: 1}, {Path: "cat", Records: 40}, {Path: "dog", Records: 1}}
	require.Equal(t, want, describe(open(t, s)))
	s.Order.Split = spec.Split{Part: spec.Part{To: 100_000_000}, By: spec.SplitByRecord}
	part := open(t, s)
	require.Less(t, part.Records(), uint64(40))
	require.Equal(t, want, describe(part), "labels count all classes")

	require.Nil(t, describe(open(t, testSpec(t, makeLines(t)))), "other formats have none")
}

func TestOpenReportsEveryProblemOfSpecAndLeavesNothingOpen(t *testing.T) {
	s := testSpec(t, "")
	s.Order.Lanes = 0
	_, err := Open(context.Background(), s, Options{})
	require.ErrorContains(t, err, "no dataset given")
	require.ErrorContains(t, err, "--lanes (0)")
	_, err = Open(context.Background(), testSpec(t, filepath.Join(t.TempDir(), "nothing")), Options{})
	require.ErrorContains(t, err, "nothing")
}

func TestOpenReportsProgressAndStopsWithItsContext(t *testing.T) {
	dir := makeLines(t)
	var last catalog.Progress
	s := testSpec(t, dir)
	d, err := Open(context.Background(), s, Options{Progress: func(p catalog.Progress) { last = p }})
	require.NoError(t, err)
	require.NoError(t, d.Close())
	require.True(t, last.Done)
	require.EqualValues(t, testRecords, last.Records)

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = Open(ctx, testSpec(t, dir), Options{})
	require.ErrorIs(t, err, context.Canceled)
}

func TestStatusCountsDeliveredData(t *testing.T) {
	s := testSpec(t, makeLines(t))
	d := open(t, s)
	set, err := d.Set(context.Background(), 0, nil, s.Deal)
	require.NoError(t, err)
	n := len(readFile(t, set, 1, stream.Data, 1<<20))
	st := d.Status()
	require.GreaterOrEqual(t, st.Fetch.BytesOut, uint64(n))
	require.Positive(t, st.Engine.Reads)
	require.Positive(t, st.Uptime)
	require.Less(t, st.Uptime, time.Hour)
}

func TestCacheComputesValueOnceForConcurrentCallers(t *testing.T) {
	c := newCache[int, int](2)
	calls := make(chan int, 100)
	results := make(chan int, 10)
	for range 10 {
		go func() {
			v, _ := c.get(1, func() (int, error) { calls <- 1; return 42, nil })
			results <- v
		}()
	}
	for range 10 {
		require.Equal(t, 42, <-results)
	}
	require.Len(t, calls, 1)
	for key := range 5 {
		_, err := c.get(key, func() (int, error) { return key, nil })
		require.NoError(t, err)
	}
	require.Equal(t, 2, c.recent.Len())
	require.Len(t, c.entries, 2)
}
