package remote

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Who asks for a hedge holds the lock of hedges while it counts in the statistics: a read
// that begins meanwhile must not hold these while it waits for that lock.
func TestReadsThatBeginDoNotHoldUpHedges(t *testing.T) {
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
