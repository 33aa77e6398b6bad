package meter

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// ms is a millisecond in nanoseconds.
const ms = 1000 * 1000

func TestLevelSumsTimesOfAllActiveWorkers(t *testing.T) {
	var l Level
	require.Zero(t, l.Sum(5*ms))
	l.Begin(10 * ms)
	require.EqualValues(t, 5*ms, l.Sum(15*ms), "one that has not ended counts")
	l.Begin(20 * ms)
	require.EqualValues(t, 10*ms+2*5*ms, l.Sum(25*ms))
	l.End(30 * ms)
	l.End(40 * ms)
	l.Add(7)
	require.EqualValues(t, 10*ms+2*10*ms+10*ms+7, l.Sum(1000*ms))
	l.Begin(39 * ms) // a clock that was read before another goroutine's
	l.End(41 * ms)
	require.EqualValues(t, 41*ms+7, l.Sum(1000*ms))
}

func TestConcurrentLevelUpdatesLoseNothing(t *testing.T) {
	var l Level
	var g sync.WaitGroup
	const goroutines, rounds = 8, 1000
	for range goroutines {
		g.Go(func() {
			for range rounds {
				l.Begin(0)
				l.End(ms)
			}
		})
	}
	g.Wait()
	l.Begin(10 * ms)
	l.End(11 * ms)
	after := l.Sum(20 * ms)
	require.Equal(t, after, l.Sum(30*ms), "nobody is at work")
	require.GreaterOrEqual(t, after, int64(ms))
}

func TestLevelNeverDecreases(t *testing.T) {
	var l Level
	var g sync.WaitGroup
	l.Begin(Now()) // so that much time is not added up yet
	for range 2 {
		g.Go(func() {
			for range 20_000 {
				l.Begin(Now())
				l.End(Now())
			}
		})
	}
	last := int64(0)
	for range 20_000 {
		sum := l.Sum(Now())
		require.GreaterOrEqual(t, sum, last)
		last = sum
	}
	g.Wait()
}

func TestBusyCountsTimeWithAnyActive(t *testing.T) {
	var b Busy
	require.False(t, b.Any())
	b.Begin(3)
	b.Begin(2)
	require.True(t, b.Any())
	_, n := b.Sum(Now())
	require.EqualValues(t, 5, n)
	for range 5 {
		b.End()
	}
	require.False(t, b.Any())
	nanos, n := b.Sum(Now())
	require.Zero(t, n)
	later, _ := b.Sum(Now() + 1000*ms)
	require.Equal(t, nanos, later, "nothing is under way")
}

func TestWaitsAreChargedToTheirCause(t *testing.T) {
	var readers, decoder WaitClock
	fromDecoder := decoder.Begin(0, Storage, nil, nil, 0)
	decoder.End(fromDecoder, 100) // before the reader waits: charged to none

	w := readers.Begin(1000, Decompress, &decoder, nil, 0)
	require.EqualValues(t, Totals{Decompress: 200}, readers.Sums(1200))
	d := decoder.Begin(1300, Storage, nil, object("a.zst"), 7)
	require.EqualValues(t, Totals{Decompress: 300, Storage: 200}, readers.Sums(1500))
	x, ok := readers.Oldest(1500)
	require.True(t, ok)
	require.Equal(t, Waiting{On: Storage, Nanos: 500}, x)
	decoder.End(d, 1600)
	require.EqualValues(t, 1000, readers.End(w, 2000))
	require.EqualValues(t, Totals{Decompress: 700, Storage: 300}, readers.Sums(9000))
	_, ok = readers.Oldest(9000)
	require.False(t, ok)
}

type object string

func (o object) Object(uint64) string { return string(o) }

func TestOldestWaitNamesItsCause(t *testing.T) {
	var l WaitClock
	young := l.Begin(50, Copy, nil, nil, 0)
	old := l.Begin(10, Storage, nil, object("shard-3.tar"), 1)
	x, ok := l.Oldest(60)
	require.True(t, ok)
	require.Equal(t, Waiting{On: Storage, Nanos: 50, Object: "shard-3.tar"}, x)
	l.End(old, 60)
	again := l.Begin(70, Gather, nil, nil, 0)
	require.Equal(t, old, again, "its place is used again")
	l.End(again, 80)
	l.End(young, 80)
	require.EqualValues(t, Totals{Copy: 30, Storage: 50, Gather: 10}, l.Sums(100))
}

func TestWaiterWithoutWaitClockRecordsNothing(t *testing.T) {
	var none *Waiter
	none.End(none.Begin(Storage, nil, nil, 0))
	w := Waiter{}
	w.End(w.Begin(Storage, nil, nil, 0))
	require.Zero(t, w.Nanos)
}

func TestCountingAllocatesNothing(t *testing.T) {
	var m Meter
	w := Waiter{Ledger: &m.Readers}
	w.End(w.Begin(Storage, nil, nil, 0))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		m.Working[Decompress].Begin(Now())
		m.Working[Decompress].End(Now())
		m.Reading.Begin(1)
		m.Reading.End()
		w.End(w.Begin(Storage, nil, nil, 0))
	}))
}
