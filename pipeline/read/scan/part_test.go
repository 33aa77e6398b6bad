package scan

import (
	"testing"

	"github.com/stretchr/testify/require"

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
