package scan

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// piecesOf returns how many pieces records [from, to) of a sequence are in, and the bytes of these
// pieces.
func piecesOf(sc *testScanner, seq readtest.List, from, to int) (pieces int, bytes uint64) {
	seen := map[int]bool{}
	for _, record := range seq[from:to] {
		piece := sc.pieces.Of(record)
		if !seen[piece] {
			seen[piece] = true
			_, l := sc.layoutWith(sc.o.Survey.Places.Part, piece)
			bytes += uint64(l.SizeBytes)
		}
	}
	return len(seen), bytes
}

func TestJumpDropsReadsNotYetStarted(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 2, Records: 3000, MaxBytes: 1000, SameSize: true})
	seq := readtest.InOrder(d.Index)
	store, m := readtest.HoldReads(t, d)
	sc := newScannerOver(t, d, 64<<20, store)
	defer store.Release()
	r := sc.Open(seq)
	defer r.Close()
	readtest.AskOn(t, r, 0)
	before := sc.Stats()
	require.Greater(t, before.LoadsInFlight, int64(5), "much is read ahead")
	readtest.Ask(t, r, 5000, 1)

	after := sc.Stats()
	require.EqualValues(t, 1, after.LoadsInFlight, "what the reader has come to")
	require.EqualValues(t, before.LoadsInFlight, after.ReadsCancelled)
	_, far := piecesOf(sc, seq, 5000, 5001)
	sc.Scanner.mu.Lock()
	out := sc.aheadOut
	sc.Scanner.mu.Unlock()
	require.Less(t, out, int64(2*far), "there is room to read ahead again: what is out is one piece, with its table")

	store.Release()
	readtest.LendOne(t, d, r, seq, 5000)
	require.Len(t, m.Reads, 1, "no read of the old place is made")
	require.Equal(t, far, sc.Stats().BytesRead)
	readtest.ReadAll(t, d, r, seq, 7) // what was cancelled is read when it is needed
	require.Empty(t, sc.errors())
}

func TestJumpKeepsReadsOfOtherReaders(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 2, Records: 3000, MaxBytes: 4200, SameSize: true})
	seq := readtest.InOrder(d.Index)
	store, m := readtest.HoldReads(t, d)
	sc := newScannerOver(t, d, 64<<20, store)
	defer store.Release()
	jumps, stays, waits := sc.Open(seq), sc.Open(seq), sc.Open(readtest.List{20})
	defer jumps.Close()
	readtest.AskOn(t, jumps, 0)
	readtest.Ask(t, stays, 0, 70)
	var wg sync.WaitGroup
	wg.Go(func() { readtest.ReadAll(t, d, waits, readtest.List{20}, 1) })
	readtest.Ask(t, jumps, 5000, 1)
	pieces, _ := piecesOf(sc, seq, 0, 70)
	require.EqualValues(t, pieces+1, sc.Stats().LoadsInFlight)
	require.Positive(t, sc.Stats().ReadsCancelled)
	readtest.Ask(t, jumps, 2500, 1)
	require.EqualValues(t, pieces+1, sc.Stats().LoadsInFlight, "nor does another jump take it")

	store.Release()
	wg.Wait()
	readtest.ReadAll(t, d, stays, seq[:70], 70)
	m.Lock()
	require.LessOrEqual(t, len(m.Reads), pieces+1, "each is read once")
	m.Unlock()
	stays.Close()
	waits.Close()
}

func TestJumpCancelsLoadsNotYetDecoding(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Codec: "gz", Shards: 2, Records: 3000, MaxBytes: 1000, SameSize: true})
	seq := readtest.InOrder(d.Index)
	store, _ := readtest.HoldReads(t, d)
	sc := newScannerOver(t, d, 2<<20, store)
	defer store.Release()
	r := sc.Open(seq)
	defer r.Close()
	readtest.AskOn(t, r, 0)
	before := sc.Stats().LoadsInFlight
	require.Greater(t, before, int64(4))
	readtest.Ask(t, r, 4500, 1)
	after := sc.Stats()
	require.LessOrEqual(t, after.LoadsInFlight, int64(2), "the one that a decoder may be at, and the new one")
	require.EqualValues(t, before+1-after.LoadsInFlight, after.ReadsCancelled)
	store.Release()
	readtest.ReadAll(t, d, r, seq, 7)
}

func TestJumpCancelsShardsNotYetSpooling(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Codec: "gz", Shards: 12, Records: 200, MaxBytes: 4200, SameSize: true})
	seq := readtest.InOrder(d.Index)
	store, _ := readtest.HoldReads(t, d)
	c := configFor(t, d, settings{memory: 64 << 20, read: spec.ReadSpool, order: spoolFull, decoders: 1}, store)
	sc := newScanner(t, c)
	defer store.Release()
	r := sc.Open(seq)
	defer r.Close()
	for k := range uint64(6) {
		readtest.Ask(t, r, k*200, 200) // six shards and more, one of which is being decoded
	}
	require.GreaterOrEqual(t, sc.Stats().Spool.Shards, 6)
	readtest.Ask(t, r, 2399, 1)
	s := sc.Stats()
	require.EqualValues(t, 2, s.Spool.Shards)
	require.EqualValues(t, 1, s.LoadsInFlight)
	require.Positive(t, s.ReadsCancelled)
	store.Release()
	readtest.ReadAll(t, d, r, seq, 7)
	require.Zero(t, sc.Stats().Spool.DecodedAgain)
}

func TestSeekWithinWindowRereadsAndDropsNothing(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 2, Records: 8000, MaxBytes: 100, SameSize: true})
	seq := readtest.InOrder(d.Index)
	store := readtest.OpenStorage(t, d.Dir)
	var mu sync.Mutex
	times := map[int64]int{}
	store.Before = func(r *storage.Read) error {
		mu.Lock()
		defer mu.Unlock()
		times[r.OffsetBytes<<8|int64(r.Object.Path[len(r.Object.Path)-1])]++
		return nil
	}
	sc := newScannerOver(t, d, 64<<20, store)
	r := sc.Open(seq)
	defer r.Close()
	readtest.ReadAll(t, d, r, seq[:200], 10)
	r.mu.Lock()
	w := r.ahead.Windows()[0]
	to := w.Scanned - 1
	require.Greater(t, to, w.Next+1024)
	r.mu.Unlock()
	readtest.LendOne(t, d, r, seq, to)
	require.Len(t, r.ahead.Windows(), 1)
	s := sc.Stats()
	require.Zero(t, s.ReadsCancelled)
	require.Zero(t, s.PiecesDropped)
	readtest.ReadAll(t, d, r, seq, 10) // what was skipped, and the rest
	require.Zero(t, sc.Stats().PiecesReread)
	for _, n := range times {
		require.Equal(t, 1, n)
	}
}

func TestAlternatingPositionsAreBothPrefetched(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 2, Records: 3000, MaxBytes: 1000, SameSize: true})
	seq := readtest.InOrder(d.Index)
	sc := newScannerOver(t, d, 64<<20, readtest.OpenStorage(t, d.Dir))
	r := sc.Open(seq)
	defer r.Close()
	for k := range uint64(200) {
		readtest.LendOne(t, d, r, seq, k)
		readtest.LendOne(t, d, r, seq, 5000+k)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Len(t, r.ahead.Windows(), 2)
	for _, w := range r.ahead.Windows() {
		require.Greater(t, w.Records, 64)
	}
}
