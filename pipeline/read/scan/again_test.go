package scan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
)

// fourRecords is a piece of four records of one byte each, some of which were delivered.
func fourRecords(gone ...int) *entry {
	spans := make([]chunkmap.Span, 4)
	for i := range spans {
		spans[i] = chunkmap.Span{OffsetBytes: int64(i), SizeBytes: 1}
	}
	e := newEntry(&budget.Memory{}, 7, spans)
	for _, i := range gone {
		e.deliver(i)
	}
	return e
}

// A piece that is read again keeps the records that the reader still needs. Those that were
// delivered are kept again only for another pass; otherwise memory would fill with records that are
// not needed.
func TestRereadPieceRetainsOnlyRecordsStillWanted(t *testing.T) {
	for _, c := range []struct {
		name   string
		wanted int
		live   int64
	}{
		{"for a record that has not gone out", 2, 2},
		{"for a record that has: another pass has begun", 1, 4},
		{"for a record that was lent to its reader before", lentBefore, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := cache{gone: map[int][]uint64{}}
			x.remember(fourRecords(0, 1))
			e := fourRecords()
			x.recall(e, c.wanted)
			require.Equal(t, c.live, e.liveBytes(), "it was dropped")
			require.Empty(t, x.gone)

			var sc Scanner
			e = fourRecords()
			sc.takeOver(e, fourRecords(0, 1), c.wanted)
			require.Equal(t, c.live, e.liveBytes(), "some of it is in memory")
		})
	}
}

// A piece that is kept in passing was not asked for by another pass, whichever of its records had
// been delivered before it was dropped.
func TestPieceKeptInPassingRetainsOnlyRecordsStillWanted(t *testing.T) {
	d := readtest.MakeOverlapping(t, 1, 200, 96, 64, 1<<30)
	sc := newScannerOver(t, d, 1<<30, readtest.OpenStorage(t, d.Dir))
	require.True(t, sc.holdsAll)
	l := owner{sc.Scanner}.Passing(1)
	require.NotNil(t, l)
	defer owner{sc.Scanner}.Came(l)
	sc.Scanner.mu.Lock()
	defer sc.Scanner.mu.Unlock()
	ld := sc.loads[1]
	x := cache{gone: map[int][]uint64{}}
	x.remember(fourRecords(0, 1))
	e := fourRecords()
	x.recall(e, ld.wanted)
	require.EqualValues(t, 2, e.liveBytes())
}

func TestAnotherPassWantsPieceButRereadRecordDoesNot(t *testing.T) {
	var sc Scanner
	e := fourRecords(0, 1, 2, 3)
	sc.deliver(e, 2, true)
	require.Zero(t, e.liveBytes())
	sc.deliver(e, 2, false)
	require.EqualValues(t, 3, e.liveBytes())
}
