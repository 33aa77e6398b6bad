package scan

import (
	"errors"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/read/size"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
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

type all struct{}

func (all) Has(uint64) bool              { return true }
func (all) Count(from, to uint64) uint64 { return to - from }

// mapperOf returns the Mapper of a storage, nil if it has none.
func mapperOf(store Storage) storage.Mapper {
	if s, ok := store.(storage.Storage); ok {
		return s.Caps().Mapper
	}
	return nil
}

// configFor configures a scanner as a fetcher does, with pieces of up to 16 KiB and 32 records, and
// with a spool's file and engine if it spools.
func configFor(t testing.TB, d *readtest.Dataset, s settings, store Storage) Config {
	t.Helper()
	if s.part == nil {
		s.part = all{}
	}
	if s.decoders == 0 {
		s.decoders = 64
	}
	p := profile.Profile{}.Or()
	v, err := size.New(d.Index, s.part, size.Settings{MemoryBytes: s.memory, PieceBytes: 16 << 10, PieceRecords: 32, Decoders: s.decoders, Order: s.order, Storage: p})
	require.NoError(t, err)
	sizes := v.Sizes()
	choice, err := sizes.Choose(s.read)
	require.NoError(t, err)
	if choice.Spooled != nil && s.order.Shuffle == spec.ShuffleFull {
		v, err = v.WithPieces(choice.FinePieceBytes(s.memory, 16<<10), false)
		require.NoError(t, err)
		sizes = v.Sizes()
	}
	verifier, _ := d.Index.Format.(format.Verifier)
	c := Config{
		Mapper: mapperOf(store),
		Index:  d.Index, Storage: store, Places: v.Places, Verifier: verifier,
		MemoryBytes: s.memory, Limits: v.Limits, Held: v.Held, HoldsAll: v.Compressed && sizes.Fits(), Choice: choice,
		Decoders: s.decoders, LookaheadRecords: 64 << 10, ReadTimeout: 10 * time.Minute, Profile: p, Released: readtest.Poison,
	}
	c.MostWanted, c.Sweeps = sizes.Lookahead(choice)
	if choice.Spooled != nil {
		engine, err := uring.Open(uring.ModePread)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, engine.Close()) })
		if s.disk != nil {
			engine = &failingEngine{engine, s.disk}
		}
		c.Spool, err = diskcache.NewSpool(readtest.DiskDir(t), choice.SpoolBytes, s.memory/16, engine, nil)
		require.NoError(t, err)
	}
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
func newScanner(t testing.TB, c Config) *testScanner {
	t.Helper()
	s := new(testScanner)
	c.Note = func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.noted = append(s.noted, err.Error())
	}
	sc, err := New(c)
	require.NoError(t, err)
	s.Scanner = sc
	var dir string
	if sc.spool != nil {
		dir = sc.spool.Stats().Dir
	}
	t.Cleanup(func() {
		require.NoError(t, sc.Close())
		require.Zero(t, sc.cache.mapped, "all memory is given back")
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
func newScannerOver(t testing.TB, d *readtest.Dataset, memory int64, store Storage) *testScanner {
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

func TestInvalidConfigReportsAllProblems(t *testing.T) {
	_, err := New(Config{MemoryBytes: -1, Spool: new(diskcache.Shelf)})
	for _, want := range []string{
		"an index", "pieces", "memory (-1 bytes) must be > 0", "decoders (0)",
		"records looked at in advance (0)", "read timeout (0 ns)", "storage profile",
	} {
		require.ErrorContains(t, err, want)
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
		v, err := size.New(d.Index, all{}, size.Settings{MemoryBytes: 1 << 20, PieceBytes: 16 << 10, PieceRecords: 32})
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
		sc.finishLocked(&load{layout: chunkmap.Layout{Ranges: []chunkmap.Range{{SizeBytes: 10}}}, err: err, done: make(chan struct{})})
		sc.Scanner.mu.Unlock()
	}
	require.Equal(t, []string{"shard-000: bytes [0, 10): lost"}, sc.errors())
}
