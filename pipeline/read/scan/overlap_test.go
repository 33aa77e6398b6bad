package scan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/read/readtest"
)

func TestOverlappingRecordsInOrderAreDecodedOnce(t *testing.T) {
	d := readtest.MakeOverlapping(t, 3, 2000, 96, 64, 1<<30)
	sc := newScannerOver(t, d, 1<<30, readtest.OpenStorage(t, d.Dir))
	seq := readtest.InOrder(d.Index)
	r := sc.Open(seq)
	readtest.ReadAll(t, d, r, seq, 50)
	r.Close()
	require.Zero(t, sc.decoders.Stats().PassedBytes, "nothing was passed over again")
}
