package scan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/fetch/fetchtest"
)

func TestOverlappingRecordsInOrderAreDecodedOnce(t *testing.T) {
	d := fetchtest.MakeOverlapping(t, 3, 2000, 96, 64, 1<<30)
	sc := newScannerOver(t, d, 1<<30, fetchtest.OpenStorage(t, d.Dir))
	seq := fetchtest.InOrder(d.Index)
	r := sc.Open(seq)
	fetchtest.ReadAll(t, d, r, seq, 50)
	r.Close()
	require.Zero(t, sc.decoders.Stats().PassedBytes, "nothing was passed over again")
}
