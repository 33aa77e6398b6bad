package identity

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDirectoryReentryIsBounded(t *testing.T) {
	var e Entered
	for i := range uint64(5000) { // other directories do not count
		require.NoError(t, e.Enter(1, i))
		require.NoError(t, e.Enter(2, i), "another device")
		if i%2 == 0 {
			e.Leave(2, i)
			require.NoError(t, e.Enter(2, i))
		}
	}
	for i := range uint64(mostAgain) {
		require.NoError(t, e.Enter(1, i%3))
	}
	require.ErrorIs(t, e.Enter(1, 0), ErrManyLinks)
	require.NoError(t, e.Enter(3, 0), "it is new")
	e.Leave(1, 0)
	require.NoError(t, e.Enter(1, 1))
	require.ErrorIs(t, e.Enter(1, 1), ErrManyLinks)
}
