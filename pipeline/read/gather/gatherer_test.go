package gather

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lsiofs/lsiofs/pipeline/plan"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/choose"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/options"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/read/window"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/faulty"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testOptions has memory that is overwritten when it is released.
func testOptions(d *readtest.Dataset, bytes int64, s storage.Storage) *options.Options {
	o := &options.Options{MemoryBytes: bytes, ReadTimeout: 10 * time.Minute, Released: readtest.Poison}
	o.SetDefaults()
	o.SetInput(d.Index, s)
	o.Survey = &choose.Survey{Limits: choose.Limits{CacheBytes: bytes}}
	return o
}

func newTestGatherer(t testing.TB, d *readtest.Dataset, bytes int64) *Gatherer {
	t.Helper()
	return newGathererOver(t, d, bytes, readtest.OpenStorage(t, d.Dir))
}

func newGathererOver(t testing.TB, d *readtest.Dataset, bytes int64, s storage.Storage) *Gatherer {
	t.Helper()
	return newGathererWith(t, testOptions(d, bytes, s))
}

func newGathererWith(t testing.TB, c *options.Options) *Gatherer {
	t.Helper()
	return newGathererTold(t, c, nil)
}

func newGathererTold(t testing.TB, c *options.Options, told *window.Plan) *Gatherer {
	t.Helper()
	g, err := New(c, told)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, g.Close())
		require.Empty(t, g.leaving)
		require.Zero(t, g.pool.Held(), "all memory is given back")
	})
	return g
}

func TestPlannerUsesStorageProfile(t *testing.T) {
	require.Equal(t, plan.DefaultConfig(), planConfig(storage.Profile{}))
	require.Equal(t, plan.DefaultConfig(), planConfig(storage.DefaultProfile(storage.KindSSD)))
	for _, p := range readtest.ExtremeProfiles() {
		require.NoError(t, planConfig(p).Validate())
		require.Equal(t, p.GapBytes, planConfig(p).MergeGapBytes)
	}
}

func TestCloseWaitsForReadsAndIsIdempotent(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 2, Records: 300, MaxBytes: 1000})
	store, made := readtest.HoldReads(t, d)
	g := newGathererOver(t, d, 8<<20, store)
	r := g.Open(readtest.InOrder(d.Index))
	readtest.AskOn(t, r, 0)
	require.Positive(t, g.Stats().ReadsInFlight)
	go func() {
		for begun := false; !begun; runtime.Gosched() {
			g.work.mu.Lock()
			begun = g.work.closed
			g.work.mu.Unlock()
		}
		store.Release()
	}()
	g.Close()
	s := g.Stats()
	require.Zero(t, s.ReadsInFlight)
	require.NotEmpty(t, made.Reads)
	require.EqualValues(t, len(made.Reads), s.Reads)
	g.Close()
}

// failures collects the errors that a gatherer notes.
type failures struct {
	sync.Mutex
	all []error
}

func (f *failures) note(err error) {
	f.Lock()
	defer f.Unlock()
	f.all = append(f.all, err)
}

// Whichever read fails, its error is noted, and the waiting reader gets an error that names the
// record. The next call succeeds.
func TestFailedReadIsRecordedAndNextCallWorks(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 2, Records: 60, MaxBytes: 2000, Checksummed: true})
	seq := readtest.RandomOrder(1, d.Index)
	for n := int64(0); ; n++ {
		store := readtest.OpenStorage(t, d.Dir)
		nth, injected := faulty.Nth(n), false
		var mu sync.Mutex
		store.Before = func(r *storage.Read) error {
			err := nth(r)
			mu.Lock()
			defer mu.Unlock()
			injected = injected || err != nil
			return err
		}
		var noted failures
		c := testOptions(d, 100<<10, store)
		c.Note = noted.note
		g := newGathererWith(t, c)
		r := g.Open(seq)
		var l budget.Records
		for k := 0; k < len(seq); {
			if err := r.Read(context.Background(), uint64(k), 5, &l); err != nil {
				record, ok := errors.AsType[*chunkmap.RecordError](err)
				require.True(t, ok, "%v", err)
				require.ErrorIs(t, err, faulty.ErrInjected)
				require.Equal(t, d.Index.ExtentTable[seq[k]].OffsetBytes, record.OffsetBytes)
				require.Empty(t, l.Records, "a failed call lends nothing")
				continue
			}
			for i, b := range l.Records {
				require.Equal(t, string(d.Records[seq[k+i]]), string(b))
			}
			k += len(l.Records)
			l.Release()
		}
		r.Close()
		g.Close()
		if !injected {
			require.Empty(t, noted.all)
			break
		}
		require.Len(t, noted.all, 1)
		require.ErrorIs(t, noted.all[0], faulty.ErrInjected)
	}
}

func TestOverlongWaitIsReported(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 1, Records: 9, MaxBytes: 2000})
	store, _ := readtest.HoldReads(t, d)
	var noted failures
	c := testOptions(d, 1<<20, store)
	c.ReadTimeout, c.Note = time.Millisecond, noted.note
	g := newGathererWith(t, c)
	defer store.Release()
	r := g.Open(readtest.InOrder(d.Index))
	defer r.Close()
	var l budget.Records
	err := r.Read(context.Background(), 4, 1, &l)
	require.ErrorIs(t, err, options.ErrTimeout)
	require.ErrorContains(t, err, "shard-000: record 4 at [")
	require.Equal(t, []error{err}, noted.all)
	require.ErrorContains(t, r.Read(context.Background(), 9, 1, &l), "the sequence has 9")
}
