package scan

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/choose"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/decode"
	"github.com/lsiofs/lsiofs/pipeline/read/options"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// settings are the parameters of a test's scanner.
type settings struct {
	memory   int64
	read     spec.Read                                             // "" for scan
	disk     func(r *uring.Request, n int, err error) (int, error) // changes the results of reads of the spool; nil: doesn't
	order    spec.Order
	part     chunkmap.Part // nil for all
	decoders int           // 0 for 64
}

// config is what New gets.
type config struct {
	*options.Options
	shelf *diskcache.Shelf
}

// configFor configures a scanner as a fetcher does, with pieces of up to 16 KiB and 32 records, and
// with a spool's file and engine if it spools.
func configFor(t testing.TB, d *readtest.Dataset, s settings, store storage.Storage) config {
	t.Helper()
	o := &options.Options{
		MemoryBytes: s.memory, ReadTimeout: 10 * time.Minute, PieceBytes: 16 << 10, PieceRecords: 32, Decoders: s.decoders, Order: s.order, Part: s.part,
		Released: readtest.Poison,
	}
	o.SetDefaults()
	o.SetInput(d.Index, store)
	require.NoError(t, o.LookAtSizes(0, 0))
	sizes := o.Survey.Sizes()
	var err error
	o.Choice, err = sizes.Choose(s.read)
	require.NoError(t, err)
	c := config{Options: o}
	if o.Choice.Spooled == nil {
		return c
	}
	if s.order.Shuffle == spec.ShuffleFull {
		o.Survey, err = o.Survey.WithPieces(o.Choice.FinePieceBytes(s.memory, 16<<10), false)
		require.NoError(t, err)
	}
	engine, err := uring.Open(uring.ModePread)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	if s.disk != nil {
		engine = &failingEngine{engine, s.disk}
	}
	c.shelf, err = diskcache.NewSpool(readtest.DiskDir(t), o.Choice.SpoolBytes, s.memory/16, engine, nil)
	require.NoError(t, err)
	return c
}

// testScanner remembers the errors that it notes.
type testScanner struct {
	*Scanner
	mu    sync.Mutex
	noted []string
}

func (s *testScanner) errors() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.noted)
}

// newScanner returns a scanner whose released memory is overwritten, and checks when the test ends
// that nothing is left.
func newScanner(t testing.TB, c config) *testScanner {
	t.Helper()
	s := new(testScanner)
	c.Note = func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.noted = append(s.noted, err.Error())
	}
	sc := New(c.Options, c.shelf, nil)
	s.Scanner = sc
	var dir string
	if sc.spool != nil {
		dir = sc.spool.Stats().Dir
	}
	t.Cleanup(func() {
		require.NoError(t, sc.Close())
		require.Zero(t, sc.cache.mapped(), "all memory is given back")
		require.Zero(t, sc.decoders.Stats().HeldBytes)
		require.Zero(t, sc.decoders.Stats().Open)
		require.Empty(t, sc.loads)
		require.Zero(t, sc.aheadOut)
		if dir != "" {
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, entries, "nothing is left of the spool")
		}
	})
	return s
}

// newScannerOver returns a scanner over a storage.
func newScannerOver(t testing.TB, d *readtest.Dataset, memory int64, store storage.Storage) *testScanner {
	t.Helper()
	return newScanner(t, configFor(t, d, settings{memory: memory}, store))
}

// readEpochs reads a sequence several times, in different steps.
func readEpochs(t testing.TB, d *readtest.Dataset, sc *testScanner, seq readtest.List, epochs int) {
	for epoch := range epochs {
		r := sc.Open(seq)
		readtest.ReadAll(t, d, r, seq, 1+epoch*49)
		r.Close()
	}
}

func TestCloseIsIdempotent(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 2, Records: 60, MaxBytes: 1000})
	sc := newScannerOver(t, d, 1<<20, readtest.OpenStorage(t, d.Dir))
	readEpochs(t, d, sc, readtest.InOrder(d.Index), 1)
	require.NoError(t, sc.Close())
	require.NoError(t, sc.Close())
}

// A survey counts the tables of pieces before they exist: limits follow from them.
func TestSizingAccountsForTablesOfScanner(t *testing.T) {
	for name, s := range readtest.Scanned() {
		d := readtest.Make(t, s)
		v, err := choose.NewSurvey(d.Index, chunkmap.All{}, choose.Settings{MemoryBytes: 1 << 20, PieceBytes: 16 << 10, PieceRecords: 32})
		require.NoError(t, err)
		sc := newScannerOver(t, d, 1<<20, readtest.OpenStorage(t, d.Dir))
		require.Equal(t, v.TableBytes, sc.TableBytes(), name)
	}
}

// Only errors that a reader could have received are noted.
func TestCancelledReadsAreNotFailures(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 1, Records: 60, MaxBytes: 1000})
	store := readtest.OpenStorage(t, d.Dir)
	sc := newScannerOver(t, d, 1<<20, store)
	for _, err := range []error{errClosed, errCalledOff, errors.New("lost")} {
		sc.Scanner.mu.Lock()
		sc.finishLocked(&load{Load: decode.Load{Layout: chunkmap.Layout{Ranges: []chunkmap.Range{{SizeBytes: 10}}}}, err: err, done: make(chan struct{})})
		sc.Scanner.mu.Unlock()
	}
	require.Equal(t, []string{"shard-000: bytes [0, 10): lost"}, sc.errors())
}

// arriving is a context that is cancelled at the same moment as what is waited for arrives.
type arriving struct {
	context.Context
	arrive func()
}

func (c arriving) Done() <-chan struct{} {
	c.arrive()
	done := make(chan struct{})
	close(done)
	return done
}

func (arriving) Err() error { return context.Canceled }

// A call that is cancelled just when its piece has arrived keeps no memory pinned (newScanner checks
// that all is given back). Which of the two it finds first is up to the runtime, so there are many.
func TestCallCancelledAsItsPieceArrivesPinsNothing(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 1, Records: 64 * 32, MaxBytes: 100, SameSize: true})
	seq := readtest.InOrder(d.Index)
	store := readtest.OpenStorage(t, d.Dir)
	sc := newScannerOver(t, d, 64<<20, store)
	cancelled := 0
	for k := uint64(0); k < uint64(len(seq)); k += 32 {
		r := sc.Open(seq)
		store.Hold()
		ctx := arriving{context.Background(), func() {
			store.Release()
			for sc.Stats().LoadsInFlight > 0 {
				runtime.Gosched()
			}
		}}
		var l budget.Records
		if err := r.Read(ctx, k, 1, &l); err != nil {
			require.ErrorIs(t, err, context.Canceled)
			require.Empty(t, l.Records)
			cancelled++
		} else {
			require.Equal(t, string(d.Records[k]), string(l.Records[0]))
		}
		l.Release()
		r.Close()
	}
	require.Positive(t, cancelled)
}
