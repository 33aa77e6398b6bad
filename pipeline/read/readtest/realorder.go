package readtest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Epoch returns the order of an epoch of a dataset's chunks, as in a mount.
func Epoch(t testing.TB, x *Index, o spec.Order, epoch uint64) List {
	t.Helper()
	e, err := order.NewEpoch(o, epoch, x.PieceStarts(o.ChunkBytes, o.ChunkRecords, 0), nil)
	require.NoError(t, err)
	out := make(List, x.Records())
	c := e.Cursor(0)
	for n := 0; n < len(out); {
		m := c.Next(out[n:])
		require.NotZero(t, m)
		n += m
	}
	return out
}
