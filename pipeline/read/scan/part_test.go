package scan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
)

func TestPartLeavesNoWaitingRequests(t *testing.T) {
	for name, s := range readtest.Scanned() {
		d := readtest.Make(t, s)
		for which, part := range readtest.Parts(d.Index) {
			for order, seq := range map[string]readtest.List{"none": readtest.InOrder(d.Index), "reservoir": readtest.ReservoirOrder(3, d.Index, 3, 90)} {
				t.Run(name+"/"+which+"/"+order, func(t *testing.T) {
					sc := newScanner(t, configFor(t, d, settings{memory: 64 << 20, part: part}, readtest.OpenStorage(t, d.Dir)))
					readEpochs(t, d, sc, part.Of(seq), 2)
					require.Zero(t, sc.slots.missing.Load(), "what is wanted is all there")
					for _, seg := range sc.cache.segs {
						require.Zero(t, seg.Live.Load())
					}
				})
			}
		}
	}
}

func TestRecordOutsidePartIsAnError(t *testing.T) {
	d := readtest.Make(t, readtest.Shape{Shards: 2, Records: 50, MaxBytes: 100})
	part := make(readtest.Some, d.Index.Records())
	for i := range part {
		part[i] = i%2 == 0 // each piece has records of the part, and others
	}
	sc := newScanner(t, configFor(t, d, settings{memory: 64 << 20, part: part}, readtest.OpenStorage(t, d.Dir)))
	r := sc.Open(readtest.InOrder(d.Index))
	defer r.Close()
	var l budget.Records
	require.NoError(t, r.Read(t.Context(), 0, 1, &l))
	l.Release()
	require.ErrorIs(t, r.Read(t.Context(), 1, 1, &l), errNotInPart)
	require.Zero(t, l.Pinned())
}
