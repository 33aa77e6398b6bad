package fetch

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/fetch/fetchtest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// piecesOf is how many pieces records [from, to) of a sequence lie in, and
// their bytes.
func piecesOf(f *Fetcher, seq fetchtest.List, from, to int) (pieces int, bytes uint64) {
	seen := map[int]bool{}
	for _, record := range seq[from:to] {
		piece := f.pieces.of(record)
		if !seen[piece] {
			seen[piece] = true
			_, l := f.layoutOf(piece)
			bytes += uint64(l.size)
		}
	}
	return len(seen), bytes
}

func TestReadsThatHaveNotBegunAreNotMadeAfterAJump(t *testing.T) {
	d := fetchtest.Make(t, fetchtest.Shape{Shards: 2, Records: 3000, MaxBytes: 1000, SameSize: true})
	seq := fetchtest.InOrder(d.Index)
	store, m := fetchtest.HoldReads(t, d)
	f := newFetcherOver(t, d, 64<<20, store)
	defer store.Release()
	r := f.Open(seq)
	defer r.Close()
	fetchtest.AskOn(t, r, 0)
	before := f.Stats()
	require.Greater(t, before.LoadsInFlight, int64(5), "much is read ahead")
	fetchtest.Ask(t, r, 5000, 1)

	after := f.Stats()
	require.EqualValues(t, 1, after.LoadsInFlight, "what the reader has come to")
	require.EqualValues(t, before.LoadsInFlight, after.ReadsCancelled)
	_, far := piecesOf(f, seq, 5000, 5001)
	f.mu.Lock()
	out := f.aheadOut
	f.mu.Unlock()
	require.Less(t, out, int64(2*far), "there is room to read ahead again: what is out is one piece, with its table")

	store.Release()
	fetchtest.LendOne(t, d, r, seq, 5000)
	require.Len(t, m.Reads, 1, "no read of the old place is made")
	require.Equal(t, far, f.Stats().BytesRead)
	fetchtest.ReadAll(t, d, r, seq, 7) // what was called off is read when it is wanted
	require.Zero(t, f.Stats().Errors)
}

func TestWhatAnotherReaderWantsIsReadAfterAJump(t *testing.T) {
	d := fetchtest.Make(t, fetchtest.Shape{Shards: 2, Records: 3000, MaxBytes: 1000, SameSize: true})
	seq := fetchtest.InOrder(d.Index)
	store, m := fetchtest.HoldReads(t, d)
	f := newFetcherOver(t, d, 64<<20, store)
	defer store.Release()
	jumps, stays, waits := f.Open(seq), f.Open(seq), f.Open(fetchtest.List{20})
	defer jumps.Close()
	fetchtest.AskOn(t, jumps, 0)
	fetchtest.Ask(t, stays, 0, 70)
	var wg sync.WaitGroup
	wg.Go(func() { fetchtest.ReadAll(t, d, waits, fetchtest.List{20}, 1) })
	fetchtest.Ask(t, jumps, 5000, 1)
	pieces, _ := piecesOf(f, seq, 0, 70)
	require.EqualValues(t, pieces+1, f.Stats().LoadsInFlight)
	require.Positive(t, f.Stats().ReadsCancelled)
	fetchtest.Ask(t, jumps, 2500, 1)
	require.EqualValues(t, pieces+1, f.Stats().LoadsInFlight, "nor does another jump take it")

	store.Release()
	wg.Wait()
	fetchtest.ReadAll(t, d, stays, seq[:70], 70)
	m.Lock()
	require.LessOrEqual(t, len(m.Reads), pieces+1, "each is read once")
	m.Unlock()
	stays.Close()
	waits.Close()
}

func TestAReaderThatIsClosedTakesBackWhatItAloneWanted(t *testing.T) {
	for name, s := range map[string]fetchtest.Shape{
		"scanned": {Shards: 2, Records: 3000, MaxBytes: 1000, SameSize: true}, "gathered": {Read: spec.ReadGather, Shards: 2, Records: 3000, MaxBytes: 1000, SameSize: true},
	} {
		t.Run(name, func(t *testing.T) {
			d := fetchtest.Make(t, s)
			store, m := fetchtest.HoldReads(t, d)
			f := newFetcherOver(t, d, 64<<20, store)
			defer store.Release()
			r, other := f.Open(fetchtest.InOrder(d.Index)), f.Open(fetchtest.InOrder(d.Index))
			fetchtest.AskOn(t, r, 0)
			fetchtest.AskOn(t, other, 0)
			r.Close()
			other.Close()
			require.Zero(t, f.Stats().LoadsInFlight)
			store.Release()
			require.NoError(t, f.Close()) // when all reads have ended
			require.Empty(t, m.Reads)
			require.Positive(t, f.Stats().ReadsCancelled)
			require.Positive(t, f.Stats().BytesCancelled)
			require.Zero(t, f.Stats().Errors)
		})
	}
}

func TestLoadsThatADecoderHasNotBegunAreTakenBackAfterAJump(t *testing.T) {
	d := fetchtest.Make(t, fetchtest.Shape{Codec: "gz", Shards: 2, Records: 3000, MaxBytes: 1000, SameSize: true})
	seq := fetchtest.InOrder(d.Index)
	store, _ := fetchtest.HoldReads(t, d)
	f := newFetcherOver(t, d, 2<<20, store)
	defer store.Release()
	r := f.Open(seq)
	defer r.Close()
	fetchtest.AskOn(t, r, 0)
	before := f.Stats().LoadsInFlight
	require.Greater(t, before, int64(4))
	fetchtest.Ask(t, r, 4500, 1)
	after := f.Stats()
	require.LessOrEqual(t, after.LoadsInFlight, int64(2), "the one that a decoder may be at, and the new one")
	require.EqualValues(t, before+1-after.LoadsInFlight, after.ReadsCancelled)
	store.Release()
	fetchtest.ReadAll(t, d, r, seq, 7)
}

func TestShardsThatNobodyHasBegunToSpoolAreTakenBackAfterAJump(t *testing.T) {
	d := fetchtest.Make(t, fetchtest.Shape{Codec: "gz", Shards: 12, Records: 200, MaxBytes: 1000, SameSize: true})
	seq := fetchtest.InOrder(d.Index)
	store, _ := fetchtest.HoldReads(t, d)
	c := spoolConfig(t, 64<<20, spoolFull)
	c.Decoders = 1
	f := newSpoolingFetcher(t, d, c, store)
	defer store.Release()
	r := f.Open(seq)
	defer r.Close()
	for k := range uint64(6) {
		fetchtest.Ask(t, r, k*200, 200) // six shards and more, of which one is being decoded
	}
	require.GreaterOrEqual(t, f.Stats().Spool.Shards, 6)
	fetchtest.Ask(t, r, 2399, 1)
	s := f.Stats()
	require.EqualValues(t, 2, s.Spool.Shards)
	require.EqualValues(t, 1, s.LoadsInFlight)
	require.Positive(t, s.ReadsCancelled)
	store.Release()
	fetchtest.ReadAll(t, d, r, seq, 7)
	require.Zero(t, f.Stats().Spool.DecodedAgain)
}

func TestASeekForwardInsideTheWindowReadsNothingTwiceAndDropsNothing(t *testing.T) {
	d := fetchtest.Make(t, fetchtest.Shape{Shards: 2, Records: 8000, MaxBytes: 100, SameSize: true})
	seq := fetchtest.InOrder(d.Index)
	store := fetchtest.OpenStorage(t, d.Dir)
	var mu sync.Mutex
	times := map[int64]int{}
	store.Before = func(r *storage.Read) error {
		mu.Lock()
		defer mu.Unlock()
		times[r.OffsetBytes<<8|int64(r.Object.Path[len(r.Object.Path)-1])]++
		return nil
	}
	f := newFetcherOver(t, d, 64<<20, store)
	r := f.Open(seq)
	defer r.Close()
	fetchtest.ReadAll(t, d, r, seq[:200], 10)
	r.mu.Lock()
	w := r.windows[0]
	to := w.scanned - 1
	require.Greater(t, to, w.next+nearRecords)
	r.mu.Unlock()
	fetchtest.LendOne(t, d, r, seq, to)
	require.Len(t, r.windows, 1)
	s := f.Stats()
	require.Zero(t, s.ReadsCancelled)
	require.Zero(t, s.PiecesDropped)
	fetchtest.ReadAll(t, d, r, seq, 10) // what was passed over, and the rest
	require.Zero(t, f.Stats().PiecesReread)
	for _, n := range times {
		require.Equal(t, 1, n)
	}
}

// Scanned, a sample takes the piece that has it; gathered, its bytes.
func TestWhoSamplesReadsWhatItAsksForAndNoMore(t *testing.T) {
	for name, s := range map[string]fetchtest.Shape{
		"scanned": {Shards: 3, Records: 4000, MaxBytes: 1000}, "gathered": {Read: spec.ReadGather, Shards: 3, Records: 4000, MaxBytes: 1000},
	} {
		t.Run(name, func(t *testing.T) {
			d := fetchtest.Make(t, s)
			seq := fetchtest.RandomOrder(1, d.Index)
			store := &fetchtest.CountedStorage{Storage: fetchtest.OpenStorage(t, d.Dir)}
			f := newFetcherOver(t, d, 64<<20, store)
			r := f.Open(seq)
			defer r.Close()
			reads, bytes := int64(0), int64(0)
			seen := map[int]bool{}
			for i := range 50 {
				// Near the sample before it, and far from it.
				k := uint64(i/5*1100 + i%5*200)
				fetchtest.LendOne(t, d, r, seq, k)
				piece := f.pieces.of(seq[k])
				_, l := f.layoutOf(piece)
				switch {
				case s.Read == spec.ReadGather:
					reads, bytes = reads+1, bytes+int64(len(d.Records[seq[k]]))
				case !seen[piece]:
					reads, bytes = reads+1, bytes+l.size
				}
				seen[piece] = true
			}
			require.Equal(t, [2]int64{reads, bytes}, [2]int64{store.Reads.Load(), store.Bytes.Load()})
		})
	}
}

func TestTwoPlacesInTurnAreBothReadAheadOf(t *testing.T) {
	d := fetchtest.Make(t, fetchtest.Shape{Shards: 2, Records: 3000, MaxBytes: 1000, SameSize: true})
	seq := fetchtest.InOrder(d.Index)
	f := newTestFetcher(t, d, 64<<20)
	r := f.Open(seq)
	defer r.Close()
	for k := range uint64(200) {
		fetchtest.LendOne(t, d, r, seq, k)
		fetchtest.LendOne(t, d, r, seq, 4000+k)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Len(t, r.windows, 2)
	for _, w := range r.windows {
		require.Greater(t, w.records, firstWindowRecords)
	}
}
