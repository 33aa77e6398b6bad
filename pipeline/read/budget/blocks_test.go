package budget

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBlocksStayWithinTheirBudget(t *testing.T) {
	const budget = 8 * minBlockBytes
	p := NewBlocks(budget)
	var taken []Block
	take := func(n int64, beyond bool) error {
		b, err := p.Take(n, beyond)
		if err == nil {
			taken = append(taken, b)
		}
		return err
	}
	for range 7 {
		require.NoError(t, take(1, false))
	}
	require.ErrorIs(t, take(2*minBlockBytes, false), ErrNoRoom, "one block is left")
	require.NoError(t, take(minBlockBytes, false))
	require.ErrorIs(t, take(1, false), ErrNoRoom)
	require.EqualValues(t, budget, p.Held())
	require.NoError(t, take(1, true), "a reader waits for it")
	require.EqualValues(t, budget+minBlockBytes, p.Held())
	for _, b := range taken {
		require.NoError(t, p.Give(b))
	}
	require.EqualValues(t, budget, p.Held(), "what was beyond the budget is unmapped")
	require.NoError(t, p.Close())
	require.Zero(t, p.Held())
}
