package mounting

import (
	"math"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHeapLimitRisesOnlyForLiveData(t *testing.T) {
	const limit = 128 << 20
	require.EqualValues(t, limit, raised(limit, 10<<20))
	require.EqualValues(t, limit, raised(limit, limit-heapStepBytes))
	for _, live := range []int64{limit - heapStepBytes + 1, limit, 4 * limit} {
		now := raised(limit, live)
		require.Greater(t, now, live+heapStepBytes)
		require.Equal(t, now, raised(now, live), "once is enough")
	}
}

// Go aims at 97 % of the bound minus its own needs. If that is less than the live heap, it collects
// all the time.
func TestHeapLimitAlwaysLeavesRoomForCollector(t *testing.T) {
	for _, live := range []int64{50 << 20, 500 << 20, 2 << 30, 20 << 30} {
		for _, limit := range []int64{0, live, live + 40<<20, live + live/16} {
			require.Greater(t, raised(limit, live)*97/100, live+live/16, "%d of %d MiB live", live>>20, limit>>20)
		}
	}
}

func TestMountHeapIsBoundedByItsMemory(t *testing.T) {
	before, percent := debug.SetMemoryLimit(-1), debug.SetGCPercent(100)
	defer debug.SetMemoryLimit(before)
	defer debug.SetGCPercent(percent)
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	small := boundHeap(16 << 20)
	require.Equal(t, small.limit, debug.SetMemoryLimit(-1))
	require.Greater(t, small.limit, int64(servedHeapBytes+8<<20))
	require.Equal(t, servedHeapPercent, debug.SetGCPercent(servedHeapPercent))

	kept := make([]byte, small.limit) // as if the user had caused it
	runtime.GC()
	small.look()
	require.Greater(t, debug.SetMemoryLimit(-1), int64(len(kept)))
	runtime.KeepAlive(kept)
}

func TestPooledBuffersDoNotRaiseHeapLimit(t *testing.T) {
	before, percent := debug.SetMemoryLimit(-1), debug.SetGCPercent(100)
	defer debug.SetMemoryLimit(before)
	defer debug.SetGCPercent(percent)
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	h := boundHeap(16 << 20)
	limit := h.limit
	debug.SetGCPercent(-1) // no collections except the test's own
	debug.SetMemoryLimit(math.MaxInt64)
	pool := sync.Pool{}
	for range 2 * limit >> 20 { // twice as many, because the race detector's pool drops some
		b := make([]byte, 1<<20)
		pool.Put(&b)
	}
	runtime.GC() // they stay live until the next one
	require.Greater(t, liveHeap(), limit-heapStepBytes)
	h.look()
	require.Equal(t, limit, h.limit)
	runtime.KeepAlive(&pool)
}

func TestUserHeapSettingsTakePrecedence(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetMemoryLimit(before)
	percent := debug.SetGCPercent(77)
	defer debug.SetGCPercent(percent)
	t.Setenv("GOGC", "77")
	t.Setenv("GOMEMLIMIT", "1GiB")
	boundHeap(16 << 20).look()
	require.EqualValues(t, math.MaxInt64, debug.SetMemoryLimit(-1))
	require.Equal(t, 77, debug.SetGCPercent(77))
}
