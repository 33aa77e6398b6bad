package budget

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestChargesReduceSegmentsToHalfAtMost(t *testing.T) {
	b := New(1000)
	require.EqualValues(t, 1000, b.Rest())
	b.Charge(300)
	b.Charge(100)
	require.EqualValues(t, 400, b.Charged())
	require.EqualValues(t, 600, b.Rest())
	b.Charge(500)
	require.EqualValues(t, 500, b.Rest(), "half stays, whatever others hold")
	b.Charge(-900)
	require.EqualValues(t, 1000, b.Rest())
}
