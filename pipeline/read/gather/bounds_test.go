package gather

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
)

// Readers alternate, so that none waits while another one is checked: each gets memory, for which
// what others hold is dropped.
func TestSixtyFourGatheringReadersKeepWithinTheBudget(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 4, Records: 32, MaxBytes: 200 << 10})
	for _, limit := range []int64{1 << 20, 16 << 20} {
		g := newTestGatherer(t, d, limit)
		order := readtest.RandomOrder(1, d.Index)
		long := g.Open(order) // fills its window before there are others
		readtest.ReadAll(t, d, long, order[:40], 3)
		// How much is ahead depends on the scheduler, as below: perhaps nothing.
		for k := uint64(40); !readsAhead(long); k++ {
			readtest.LendOne(t, d, long, order, k)
		}
		readers, seqs := make([]*Reader, 64), make([]readtest.List, 64)
		for w := range readers {
			seqs[w] = order.Deal(w, 64)
			readers[w] = g.Open(seqs[w])
		}
		var l budget.Records
		for k := range seqs[0] {
			for w, r := range readers {
				require.NoError(t, r.Read(context.Background(), uint64(k), 1, &l))
				require.Equal(t, string(d.Records[seqs[w][k]]), string(l.Records[0]))
				largest := g.pool.Round(200 << 10)
				require.LessOrEqual(t, g.Stats().HeldBytes, limit+largest)
				l.Release()
			}
		}
		require.Positive(t, g.Stats().DroppedBytes, "the first one gave up what it had read ahead")
		for _, r := range append(readers, long) {
			r.Close()
		}
	}
}

// readsAhead reports whether a reader holds a batch that it has not reached.
func readsAhead(r *Reader) bool {
	run := r.runs[len(r.runs)-1]
	return run.batches[len(run.batches)-1].from >= run.next
}

func TestConcurrentGatheringReadersStayWithinBudget(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 4, Records: 100, MaxBytes: 100 << 10})
	const limit, readers = 8 << 20, 8
	g := newTestGatherer(t, d, limit)
	order := readtest.RandomOrder(1, d.Index)
	most := int64(0)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range readers {
		seq := order.Deal(w, readers)
		r := g.Open(seq)
		wg.Go(func() {
			defer r.Close()
			var l budget.Records
			for k := 0; k < len(seq); k += len(l.Records) {
				l.Release()
				if err := r.Read(context.Background(), uint64(k), 7, &l); err != nil {
					t.Error(err)
					return
				}
				held := g.Stats().HeldBytes
				mu.Lock()
				most = max(most, held)
				mu.Unlock()
			}
			l.Release()
		})
	}
	wg.Wait()
	require.LessOrEqual(t, most, limit+readers*g.pool.BlockBytes, "each may wait for one batch more")
}

// gatherTo returns a reader that has read up to record k, in tens, and its storage.
func gatherTo(t *testing.T, d *readtest.Dataset, limit int64, seq readtest.List, k int) (*Gatherer, *Reader, *readtest.CountedStorage) {
	store := &readtest.CountedStorage{Storage: readtest.OpenStorage(t, d.Dir)}
	g := newGathererOver(t, d, limit, store)
	r := g.Open(seq)
	t.Cleanup(r.Close)
	readtest.ReadAll(t, d, r, seq[:k], 10)
	return g, r, store
}

func TestGatheringFollowsReader(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 4, Records: 2000, MaxBytes: 4000}) // 16 MB
	seq := readtest.RandomOrder(1, d.Index)
	end := uint64(len(seq))
	total := int64(0)
	for _, b := range d.Records {
		total += int64(len(b))
	}
	window := func(r *Reader) uint64 { return r.runs[len(r.runs)-1].end() }

	t.Run("a step back reads nothing again", func(t *testing.T) {
		_, r, store := gatherTo(t, d, 64<<20, seq, 800)
		before := store.Reads.Load()
		readtest.LendOne(t, d, r, seq, 799)
		readtest.LendOne(t, d, r, seq, 795)
		require.Equal(t, before, store.Reads.Load())
	})
	t.Run("a seek forward inside the window drops nothing", func(t *testing.T) {
		g, r, _ := gatherTo(t, d, 64<<20, seq, 800)
		to := window(r)
		require.Greater(t, to, uint64(1200))
		readtest.LendOne(t, d, r, seq, to-1)
		require.Zero(t, g.Stats().DroppedBytes)
		require.GreaterOrEqual(t, window(r), to)
	})
	t.Run("who samples gets what is asked for", func(t *testing.T) {
		_, r, store := gatherTo(t, d, 64<<20, seq, 0)
		for _, k := range []uint64{5000, 300, 7000, 20, 6000, 310} {
			readtest.LendOne(t, d, r, seq, k)
		}
		require.EqualValues(t, 6, store.Reads.Load())
	})
	t.Run("who begins ahead of itself reads nothing twice", func(t *testing.T) {
		store := &readtest.CountedStorage{Storage: readtest.OpenStorage(t, d.Dir)}
		c := testOptions(d, 64<<20, store)
		c.Profile.GapBytes = 0
		g := newGathererWith(t, c)
		r := g.Open(seq)
		for _, k := range []uint64{0, 700} {
			readtest.LendOne(t, d, r, seq, k)
		}
		readtest.ReadAll(t, d, r, seq[:700], 9)
		var l budget.Records
		for k := uint64(700); k < end; k += uint64(len(l.Records)) {
			l.Release()
			require.NoError(t, r.Read(t.Context(), k, 9, &l))
		}
		l.Release()
		require.Equal(t, total, store.Bytes.Load())
		require.Zero(t, g.Stats().DroppedBytes)
		r.Close()
	})
	t.Run("two places in turn keep what each has ahead", func(t *testing.T) {
		_, r, store := gatherTo(t, d, 64<<20, seq, 0)
		half := end / 2
		for k := range half {
			readtest.LendOne(t, d, r, seq, k)
			readtest.LendOne(t, d, r, seq, half+k)
		}
		require.Less(t, store.Bytes.Load(), 4*total, "what lies ahead of the first is perhaps read again")
	})
	t.Run("a jump gives up what lies ahead", func(t *testing.T) {
		g, r, _ := gatherTo(t, d, 8<<20, seq, 800)
		// How much is ahead depends on the scheduler: perhaps nothing, if the memory of reads that
		// have just been copied is not free yet.
		for k := uint64(800); window(r) <= k+1; k++ {
			readtest.LendOne(t, d, r, seq, k)
		}
		require.Less(t, window(r), end-8)
		for k := end - 1; k > end-8; k -= 2 {
			readtest.LendOne(t, d, r, seq, k)
			// Cancelled reads keep their memory until they end: a reader without memory drops its
			// other places.
			require.Eventually(t, func() bool { return g.pool.RoomBytes() >= g.pool.BlockBytes }, time.Minute, time.Millisecond)
		}
		require.Positive(t, g.Stats().DroppedBytes)
		require.Len(t, r.runs, maxRuns)
	})
}

func TestGatheringReaderHandlesJumpsAndConcurrentCalls(t *testing.T) {
	for _, limit := range []int64{1, 2 << 20, 64 << 20} {
		d := readtest.Make(t, readtest.Shape{Shards: 4, Records: 300, MaxBytes: 4000})
		seq := readtest.RandomOrder(1, d.Index)
		g := newTestGatherer(t, d, limit)
		r := g.Open(seq)
		var wg sync.WaitGroup
		for g := range 6 {
			rng := rand.New(rand.NewPCG(uint64(g), 7))
			wg.Go(func() {
				for range 40 {
					k := rng.IntN(len(seq))
					var l budget.Records
					for range 1 + rng.IntN(12) { // go on for a while
						n := min(1+rng.IntN(20), len(seq)-k)
						if n == 0 {
							break
						}
						if err := r.Read(context.Background(), uint64(k), n, &l); err != nil {
							t.Error(err)
							return
						}
						for i, b := range l.Records {
							if string(b) != string(d.Records[seq[k+i]]) {
								t.Errorf("record %d is wrong", k+i)
							}
						}
						k += len(l.Records)
						l.Release()
					}
				}
			})
		}
		wg.Wait()
		r.Close()
		require.ErrorIs(t, r.Read(context.Background(), 0, 1, new(budget.Records)), errClosed)
	}
}

func TestReadingGatheredRecordsAllocatesNothing(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 4, Records: 500, MaxBytes: 1000})
	seq := readtest.RandomOrder(1, d.Index)
	_, r, _ := gatherTo(t, d, 64<<20, seq, 1000)
	for _, run := range r.runs {
		for _, b := range run.batches {
			if wake := b.wait(); wake != nil {
				<-wake
			}
		}
	}
	var l budget.Records
	k := uint64(1000)
	require.Zero(t, testing.AllocsPerRun(200, func() {
		if err := r.Read(context.Background(), k, 3, &l); err != nil {
			t.Fatal(err)
		}
		k += uint64(len(l.Records))
		l.Release()
	}))
}

// cycle is a sequence that repeats.
type cycle struct{ readtest.List }

func (c cycle) Len() uint64 { return 1 << 40 }
func (c cycle) Records(k uint64, dst []uint64) int {
	return c.List.Records(k%uint64(len(c.List)), dst)
}

// BenchmarkGather reads epochs of random records, one after the other, with memory for half of
// them: batches, stretches and reads are reused. One op is an epoch. Measured (November 2026, the
// first 20): 1518 allocations in an epoch of 32 000 records in 31 112 reads, 100 for 1600 records
// in 1516 reads. None is for a record or a read: they are for stretches (a list of requests,
// goroutines that look reads up), for stretches that grow for the first time, and for what the
// garbage collector took out of pools.
func BenchmarkGather(b *testing.B) {
	for _, maxBytes := range []int{1000, 20_000} {
		b.Run(fmt.Sprintf("record=%d", maxBytes/2), func(b *testing.B) {
			d := readtest.Make(b, readtest.Shape{Shards: 4, Records: 8_000_000 / maxBytes, MaxBytes: maxBytes})
			seq := cycle{readtest.RandomOrder(1, d.Index)}
			g := newGathererOver(b, d, 8<<20, readtest.OpenFiles(b, d.Dir))
			r := g.Open(seq)
			defer r.Close()
			var l budget.Records
			k := uint64(0)
			epoch := func() {
				for n := 0; n < len(seq.List); n += len(l.Records) {
					l.Release()
					require.NoError(b, r.Read(context.Background(), k, 64, &l))
					k += uint64(len(l.Records))
				}
				l.Release()
			}
			for range 3 {
				epoch()
			}
			before := g.Stats().Reads
			b.ReportAllocs()
			b.SetBytes(d.DecodedBytes())
			for b.Loop() {
				epoch()
			}
			b.ReportMetric(float64(len(seq.List)), "records/op")
			b.ReportMetric(float64(g.Stats().Reads-before)/float64(b.N), "reads/op")
		})
	}
}
