package mounting

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

func TestDropThatLeavesNothingWarns(t *testing.T) {
	deal := spec.Assignment{Workers: 4, Batch: 100, Dealing: spec.DealInterleaved, Tail: spec.TailDrop}
	require.Contains(t, emptyWorkers([]uint64{0, 0, 0, 0}, deal), "4 of 4 workers without records: a round of all workers takes 400")
	require.Empty(t, emptyWorkers([]uint64{100, 100, 100, 100}, deal))
	deal.Dealing = spec.DealContiguous
	require.Contains(t, emptyWorkers([]uint64{0, 0, 0, 0}, deal), "takes 4,")
	deal.Tail = spec.TailKeep
	require.Empty(t, emptyWorkers([]uint64{1, 0, 0, 0}, deal), "keep was asked for")
}
