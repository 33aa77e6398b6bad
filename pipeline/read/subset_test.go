package read

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// phasesOf returns the n parts of a sample: record r is in part (r·7 div 3) mod n.
func phasesOf(x *readtest.Index, n int) []Subset {
	all := make([]Subset, n)
	for p := range all {
		part := make(readtest.Some, x.Records())
		for r := range part {
			part[r] = r*7/3%n == p
		}
		all[p] = Subset{Number: uint64(p), Part: part}
	}
	return all
}

func ofPhase(p Subset, seq readtest.List) readtest.List { return p.Part.(readtest.Some).Of(seq) }

// newSampled returns a fetcher of a dataset whose epochs take 1/n of it.
func newSampled(t testing.TB, d *readtest.Dataset, c Options, first Subset, n int) *Fetcher {
	t.Helper()
	c.Order.Sample = spec.Subsample{Of: uint64(n)}
	c.Part, c.Phase, c.Released = first.Part, first.Number, readtest.Poison
	f, err := newFetcher(d.Index, readtest.OpenStorage(t, d.Dir), c)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, f.Close())
		requireNothingLeft(t, f)
	})
	return f
}

// eachWay calls do for datasets of all kinds, scanned, gathered and spooled, with little memory and
// with much.
func eachWay(t *testing.T, do func(t *testing.T, d *readtest.Dataset, c Options)) {
	for name, s := range readtest.Shapes() {
		d := readtest.Make(t, s)
		for _, budget := range budgets[:lessIfShort(3, 1)] {
			scanned := Options{MemoryBytes: budget, ReadTimeout: time.Minute, PieceBytes: 16 << 10, PieceRecords: 32, Read: d.Read, Order: spoolReservoir}
			t.Run(fmt.Sprintf("%s/budget=%d", name, budget), func(t *testing.T) { do(t, d, scanned) })
			if s.Codec != "" {
				t.Run(fmt.Sprintf("%s/spool/budget=%d", name, budget), func(t *testing.T) { do(t, d, spoolConfig(t, budget, spoolReservoir)) })
			}
		}
	}
}

// One epoch after the other, through all phases and once more.
func TestEpochsOfASampleAreReadInTurn(t *testing.T) {
	const n = 3
	eachWay(t, func(t *testing.T, d *readtest.Dataset, c Options) {
		phases := phasesOf(d.Index, n)
		f := newSampled(t, d, c, phases[1], n)
		for epoch := range n + 2 {
			p := phases[epoch%n]
			seq := ofPhase(p, readtest.ReservoirOrder(uint64(epoch), d.Index, 3, 90))
			if len(seq) == 0 {
				continue
			}
			for w := range 2 { // the second one after the first was closed
				mine := seq.Deal(w, 2)
				if len(mine) == 0 {
					continue
				}
				r := f.OpenPhase(mine, p)
				readtest.ReadAll(t, d, r, mine, 1+epoch*13)
				r.Close()
			}
		}
	})
}

// Pieces that hold records of several epochs are loaded for all that are open, whichever is first.
func TestEpochsOfASampleAreReadAtTheSameTime(t *testing.T) {
	const n = 3
	eachWay(t, func(t *testing.T, d *readtest.Dataset, c Options) {
		phases := phasesOf(d.Index, n)
		f := newSampled(t, d, c, phases[0], n)
		var wg sync.WaitGroup
		for epoch := range 2 * n {
			p := phases[epoch%n]
			seq := ofPhase(p, readtest.ReservoirOrder(uint64(epoch), d.Index, 3, 90))
			if len(seq) == 0 {
				continue
			}
			wg.Go(func() {
				for from := 0; from < len(seq); from += len(seq)/3 + 1 { // phases come and go
					some := seq[from:min(from+len(seq)/3+1, len(seq))]
					r := f.OpenPhase(some, p)
					assert.NoError(t, readtest.ReadEqual(d, r, some, 1+epoch*7))
					r.Close()
				}
			})
		}
		wg.Wait()
	})
}

// A stopped reader of one epoch does not make readers of others read pieces again and again, if
// there is memory for them.
func TestPieceSharedByTwoEpochsIsReadOnceForEach(t *testing.T) {
	for name, s := range map[string]readtest.Shape{
		"plain": {Shards: 6, Records: 200, MaxBytes: 3000}, "gz": {Codec: "gz", Shards: 6, Records: 200, MaxBytes: 3000, Member: 20},
	} {
		t.Run(name, func(t *testing.T) {
			d := readtest.Make(t, s)
			phases := phasesOf(d.Index, 2)
			f := newSampled(t, d, Options{MemoryBytes: 64 << 20, ReadTimeout: time.Minute, PieceBytes: 16 << 10, PieceRecords: 32, Order: spoolReservoir}, phases[0], 2)
			a, b := ofPhase(phases[0], readtest.InOrder(d.Index)), ofPhase(phases[1], readtest.InOrder(d.Index))
			first, second := f.OpenPhase(a, phases[0]), f.OpenPhase(b, phases[1])
			defer first.Close()
			defer second.Close()
			pieces := uint64(f.o.Survey.Places.Table.Len())
			for k := range min(len(a), len(b)) { // in step: what one has loaded serves the other
				readtest.LendOne(t, d, first, a, uint64(k))
				readtest.LendOne(t, d, second, b, uint64(k))
			}
			s := f.Stats()
			require.LessOrEqual(t, s.PiecesRead, pieces+pieces/4, "of %d pieces", pieces)
			require.Zero(t, s.PiecesDropped)
		})
	}
}

// A piece that is being loaded for one epoch lacks the records that another one needs of it, so it
// is read again: no reader gets a record that is missing, or waits forever.
func TestPieceInFlightForOneEpochIsReadAgainForAnother(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 1, Records: 40, MaxBytes: 3000})
	store, made := readtest.HoldReads(t, d)
	phases := phasesOf(d.Index, 2)
	c := Options{MemoryBytes: 64 << 20, ReadTimeout: time.Minute, PieceBytes: 1 << 20, PieceRecords: 64, Order: spoolReservoir}
	c.Order.Sample = spec.Subsample{Of: 2}
	c.Part, c.Released = phases[0].Part, readtest.Poison
	f, err := newFetcher(d.Index, store, c)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	seqs := [2]readtest.List{ofPhase(phases[0], readtest.InOrder(d.Index)), ofPhase(phases[1], readtest.InOrder(d.Index))}
	var wg sync.WaitGroup
	for i, seq := range seqs {
		r := f.OpenPhase(seq, phases[i])
		wg.Go(func() {
			assert.NoError(t, readtest.ReadEqual(d, r, seq, 7))
			r.Close()
		})
		// The second one arrives while the first one's piece is being loaded, and waits for it.
		require.Eventually(t, func() bool { return f.Stats().Waits == uint64(i+1) }, time.Minute, time.Millisecond)
	}
	require.EqualValues(t, 1, f.Stats().LoadsInFlight)
	store.Release()
	wg.Wait()
	require.EqualValues(t, 2, f.Stats().PiecesRead)
	require.NotEmpty(t, made.Reads)
}

// Pieces are loaded for the epochs that are open. A call on a closed reader fails: otherwise pieces
// without the record would be loaded again and again.
func TestClosedSubsampleReaderIsNotServed(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 3, Records: 200, MaxBytes: 3000})
	phases := phasesOf(d.Index, 3)
	c := Options{MemoryBytes: 64 << 20, ReadTimeout: time.Minute, PieceBytes: 16 << 10, PieceRecords: 32, Order: spoolReservoir}
	f := newSampled(t, d, c, phases[0], 3)
	closed := f.OpenPhase(ofPhase(phases[1], readtest.InOrder(d.Index)), phases[1])
	closed.Close()
	seq := ofPhase(phases[2], readtest.InOrder(d.Index))
	r := f.OpenPhase(seq, phases[2])
	defer r.Close()
	var l Loan
	require.ErrorContains(t, closed.Read(t.Context(), 0, 1, &l), "the reader is closed")
	readtest.ReadAll(t, d, r, seq, 7)
}
