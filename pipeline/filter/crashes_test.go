package filter

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// Another process of the run may ask before the one that crashed last has reported it.
func TestFirstCallerSeesLastCrash(t *testing.T) {
	c, died := newCrashes(1), errors.New("exit status 1")
	for range leastCrashes - 1 {
		require.Equal(t, died, c.add("a.txt/7", died))
		require.NoError(t, c.tooMany())
	}
	c.end()
	for range leastCrashes - 1 {
		require.Equal(t, died, c.add("a.txt/8", died))
	}
	require.NoError(t, c.tooMany())
	said := c.add("a.txt/9", died)
	require.ErrorContains(t, said, "100 times in a row, the last time on a.txt/9: exit status 1")
	require.ErrorIs(t, said, errCrashes)
	require.Equal(t, said, c.tooMany())
	require.Equal(t, c.add("a.txt/9", died), c.tooMany())
	c.end()
	require.NoError(t, c.tooMany())
}
