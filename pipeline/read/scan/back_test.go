package scan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
)

// A reader of short records may go back by thousands of them and still counts as reading on. The
// records that it asks for there, and that are no longer in memory, are read at the same time, not
// one piece after the other.
func TestStepBackReadsAllRequestedPiecesAtOnce(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 2, Records: 30_000, MaxBytes: 100, SameSize: true})
	seq := readtest.InOrder(d.Index)
	store := readtest.OpenStorage(t, d.Dir)
	sc := newScannerOver(t, d, 2<<20, store)
	require.Greater(t, sc.nearRecords(), uint64(30_000))
	r := sc.Open(seq)
	defer r.Close()
	readtest.ReadAll(t, d, r, seq[:50_000], 100)
	const k, n = 25_000, 1000
	for _, record := range seq[k : k+n] {
		require.Nil(t, sc.slots.at(sc.pieces.Of(record)), "it is not in memory any more")
	}
	require.Eventually(t, func() bool { return sc.Stats().LoadsInFlight == 0 }, time.Minute, time.Millisecond,
		"what was read ahead is there, so that it can't come while loads are counted")
	store.Hold()
	defer store.Release()
	readtest.Ask(t, r, k, n)
	pieces, _ := piecesOf(sc, seq, k, k+n)
	require.GreaterOrEqual(t, sc.Stats().LoadsInFlight, int64(pieces))
}
