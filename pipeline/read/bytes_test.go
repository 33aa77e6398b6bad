package read

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lsiofs/lsiofs/integration/serve"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newTestFetcher(t testing.TB, d *readtest.Dataset, budget int64) *Fetcher {
	t.Helper()
	return newFetcherOver(t, d, budget, readtest.OpenStorage(t, d.Dir))
}

func newFetcherOver(t testing.TB, d *readtest.Dataset, budget int64, s storage.Storage) *Fetcher {
	t.Helper()
	return newFetcherWith(t, d, testConfig(d, budget), s)
}

func testConfig(d *readtest.Dataset, budget int64) Options {
	return Options{MemoryBytes: budget, ReadTimeout: 10 * time.Minute, PieceBytes: 16 << 10, PieceRecords: 32, Read: d.Read}
}

func newFetcherWith(t testing.TB, d *readtest.Dataset, c Options, s storage.Storage) *Fetcher {
	t.Helper()
	c.Released = readtest.Poison
	f, err := newFetcher(d.Index, s, c)
	require.NoError(t, err)
	if d.Read == spec.ReadGather {
		require.NotNil(t, f.gatherer)
	}
	t.Cleanup(func() {
		require.NoError(t, f.Close())
		requireNothingLeft(t, f)
	})
	return f
}

// budgets are the memory that tests read small datasets with. Every budget gives the same bytes.
// With the first one pieces are evicted while others are needed, so it is the one to keep if only
// one is used. With the second each record is read again; with the third all are kept.
var budgets = []int64{300 << 10, 1, 64 << 20}

func TestAllBytesAreRight(t *testing.T) {
	for name, s := range readtest.Shapes() {
		t.Run(name, func(t *testing.T) {
			d := readtest.Make(t, s)
			orders := map[string]readtest.List{
				"none": readtest.InOrder(d.Index), "reservoir": readtest.ReservoirOrder(3, d.Index, 3, 90), "full": readtest.RandomOrder(4, d.Index),
			}
			for order, seq := range orders {
				if testing.Short() && order != "reservoir" {
					continue // one reader: the race detector sees the same fetcher in any order
				}
				for _, budget := range budgets[:lessIfShort(3, 1)] {
					seq := seqFor(seq, budget)
					if order == "full" && budget < 1<<20 && s.Codec != "" && s.Member == 0 {
						seq = seq[:30] // every record decodes a shard
					}
					t.Run(fmt.Sprintf("%s/budget=%d", order, budget), func(t *testing.T) {
						f := newTestFetcher(t, d, budget)
						readEpochs(t, d, f, seq, lessIfShort(2, 1))
					})
				}
			}
		})
	}
}

// seqFor returns the sequence that a test reads with a budget: all of it, but with -short only its
// first records if the budget holds next to nothing, so that each is read or decoded again.
func seqFor(seq readtest.List, budget int64) readtest.List {
	if testing.Short() && budget < 1<<20 {
		return seq[:min(len(seq), 100)]
	}
	return seq
}

// lessIfShort returns n, or with -short the other number.
func lessIfShort(n, short int) int {
	if testing.Short() {
		return short
	}
	return n
}

// lessBeforeNight returns n in the nightly tests, and otherwise the other number.
func lessBeforeNight(n, less int) int {
	if serve.Runs(serve.Night) {
		return n
	}
	return less
}

// countsInTurn skips a test with -short, that is with the race detector: only one goroutine reads
// in it, and what it counts is counted without the detector.
func countsInTurn(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine reads, and the race detector changes no count")
	}
}

// readEpochs reads a sequence several times, in different steps.
func readEpochs(t testing.TB, d *readtest.Dataset, f *Fetcher, seq readtest.List, epochs int) {
	for epoch := range epochs {
		r := f.Open(seq)
		readtest.ReadAll(t, d, r, seq, 1+epoch*49)
		r.Close()
	}
}

func TestConcurrentReaders(t *testing.T) {
	for name, s := range readtest.Shapes() {
		t.Run(name, func(t *testing.T) {
			d := readtest.Make(t, s)
			g := readtest.ReservoirOrder(3, d.Index, 3, 90)
			for _, budget := range budgets[:lessIfShort(3, 1)] {
				t.Run(fmt.Sprintf("budget=%d", budget), func(t *testing.T) {
					g := seqFor(g, budget)
					f := newTestFetcher(t, d, budget)
					stopped := f.Open(g)
					defer stopped.Close()
					var l Loan
					require.NoError(t, stopped.Read(context.Background(), 0, 1, &l))
					defer l.Release()
					dice := rand.New(rand.NewPCG(serve.Seed(t), 0))
					var wg sync.WaitGroup
					for w := range 4 {
						seq, step := g.Deal(w, 4), 1+dice.IntN(40)
						r := f.Open(seq)
						wg.Go(func() { readtest.ReadAll(t, d, r, seq, step); r.Close() })
					}
					wg.Wait()
					require.Equal(t, string(d.Records[g[0]]), string(l.Records[0]), "a loan outlives all eviction")
				})
			}
		})
	}
}

// requireNothingLeft checks that a closed fetcher holds nothing.
func requireNothingLeft(t testing.TB, f *Fetcher) {
	t.Helper()
	if f.gatherer != nil {
		require.Zero(t, f.gatherer.Stats().HeldBytes, "all memory is given back")
		return
	}
	s := f.scanner.Stats()
	if s.Spool != nil {
		s.HeldBytes -= s.Spool.TableBytes // the statistics of a spool stay
	}
	require.Equal(t, f.o.Survey.TableBytes, s.HeldBytes, "all memory is given back")
	require.Zero(t, s.LoadsInFlight)
	require.Zero(t, s.AheadBytes)
}
