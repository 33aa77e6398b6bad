package scan

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/mapped"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
)

// duringEviction is an owner whose regions are read after their pins are dead and before they are
// forgotten.
type duringEviction struct {
	mapsOwner
	read func(piece int)
}

func (o *duringEviction) Forget(regions []*mapped.Region) {
	for _, x := range regions {
		o.read(x.Piece())
	}
	o.mapsOwner.Forget(regions)
}

func TestReaderReloadsPieceFoundDuringUnmapping(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 6, Records: 400, MaxBytes: 3000}) // 3.6 MB
	store := openMapper(t, d)
	sc := newMappedScanner(t, d, 1<<20, store)
	seq := readtest.InOrder(d.Index)
	other := sc.Open(seq)
	// Both the scanner and the storage, which opens files on its own, unmap pieces, possibly at the
	// same time; and reading here may unmap others.
	var reading sync.Mutex
	found := 0
	c := sc.mapsConfig()
	c.LeastBytes, c.Patience = 0, time.Hour
	sc.maps = mapped.New(c, &duringEviction{mapsOwner{sc.Scanner}, func(piece int) {
		e := sc.slots.at(piece)
		if e == nil || !reading.TryLock() {
			return
		}
		defer reading.Unlock()
		found++
		require.False(t, e.mem.Pins.Pin(), "it is about to go")
		var l budget.Records
		k := sc.pieces.Starts[piece]
		require.NoError(t, other.Read(context.Background(), k, 1, &l))
		require.Equal(t, string(d.Records[k]), string(l.Records[0]))
		require.NotSame(t, e, sc.slots.at(piece))
		require.Positive(t, sc.slots.at(piece).mem.Pins.Count())
		l.Release()
	}})
	r := sc.Open(seq)
	readtest.ReadAll(t, d, r, seq, 30)
	reading.Lock() // no reads from here on
	require.Positive(t, found)
	r.Close()
	other.Close()
}
