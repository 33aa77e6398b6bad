package remote

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// mayHedge holds the lock of hedges while it counts in the statistics: a read that begins at the
// same time must not hold the lock of the statistics while it waits for that of hedges.
func TestStartingReadsDoNotBlockHedges(t *testing.T) {
	c := DefaultConfig()
	c.Hedge = true
	s, err := New(nowhere{}, c)
	require.NoError(t, err)
	const rounds = 2000
	for range rounds {
		var all sync.WaitGroup
		s.hedges.mu.Lock()
		for range 4 {
			all.Go(func() { s.hedges.begin(1<<10, &s.stats) })
		}
		for range 10 {
			runtime.Gosched()
		}
		s.stats.hedge()
		s.hedges.mu.Unlock()
		all.Wait()
	}
	require.EqualValues(t, rounds, s.Stats().Hedges)
}
