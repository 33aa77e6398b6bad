package scan

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/fetch/fetchtest"
	"github.com/lsiofs/lsiofs/pipeline/fetch/loan"
	"github.com/lsiofs/lsiofs/pipeline/fetch/mapped"
)

// duringEviction is an owner whose regions are read once their pins are dead, before
// they are forgotten.
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

func TestAReaderThatFindsAPieceAsItIsUnmappedGetsItAnew(t *testing.T) {
	d := fetchtest.Make(t, fetchtest.Shape{Shards: 6, Records: 400, MaxBytes: 3000}) // 3.6 MB
	store := openMapper(t, d)
	sc := newMappedScanner(t, d, 1<<20, store)
	seq := fetchtest.InOrder(d.Index)
	other := sc.Open(seq)
	found, inside := 0, false
	c := sc.mapsConfig()
	c.LeastBytes, c.Patience = 0, time.Hour
	sc.maps = mapped.New(c, &duringEviction{mapsOwner{sc.Scanner}, func(piece int) {
		e := sc.slots.at(piece)
		if inside || e == nil {
			return
		}
		inside = true
		found++
		require.False(t, e.mem.Pins.Pin(), "it is about to go")
		var l loan.Loan
		k := sc.pieces.Starts[piece]
		require.NoError(t, other.Lend(context.Background(), k, 1, &l))
		require.Equal(t, string(d.Records[k]), string(l.Records[0]))
		require.NotSame(t, e, sc.slots.at(piece))
		require.Positive(t, sc.slots.at(piece).mem.Pins.Count())
		l.Release()
		inside = false
	}})
	r := sc.Open(seq)
	fetchtest.ReadAll(t, d, r, seq, 30)
	require.Positive(t, found)
	r.Close()
	inside = true
	other.Close()
}
