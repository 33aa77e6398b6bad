package scan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/fetch/fetchtest"
)

func TestOfAPartNothingIsLeftThatWaitsForItsTurn(t *testing.T) {
	for name, s := range fetchtest.Scanned() {
		d := fetchtest.Make(t, s)
		for which, part := range fetchtest.Parts(d.Index) {
			for order, seq := range map[string]fetchtest.List{"none": fetchtest.InOrder(d.Index), "reservoir": fetchtest.ReservoirOrder(3, d.Index, 3, 90)} {
				t.Run(name+"/"+which+"/"+order, func(t *testing.T) {
					sc := newScanner(t, configFor(t, d, settings{memory: 64 << 20, part: part}, fetchtest.OpenStorage(t, d.Dir)))
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
