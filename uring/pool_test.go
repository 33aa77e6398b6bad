package uring

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// call is a job: a call about a file that returns when gate is closed, or at once if gate is nil.
type call struct {
	file int // the key
	gate chan struct{}
	gone func(stuck bool)
}

// owner is the owner of a pool with one crew.
type owner struct {
	mu      sync.Mutex
	pool    *Pool[int, call]
	crew    *Crew[int, call]
	begun   chan int // the file of each call, before it hangs
	ended   chan int
	running atomic.Int64 // calls
	most    atomic.Int64 // that running has been
}

// far is longer than any test takes.
const far = time.Hour

func openPool(t *testing.T, most int, stuckAfter time.Duration, stays bool, batch int) *owner {
	o := &owner{begun: make(chan int, 10_000), ended: make(chan int, 10_000)}
	o.pool = NewPool[int, call](&o.mu)
	o.pool.StuckAfter = stuckAfter
	o.crew = o.pool.AddCrew(&Crew[int, call]{Most: func() int { return most }, Do: o.do, Batch: batch, Stays: stays, Yields: batch > 1})
	return o
}

func (o *owner) do(w *Worker[int, call], c call) {
	if w.Park(c.file, c) {
		return
	}
	w.Begin(c.file, c.gone)
	running := o.running.Add(1)
	for before := o.most.Load(); running > before && !o.most.CompareAndSwap(before, running); before = o.most.Load() {
	}
	o.begun <- c.file
	if c.gate != nil {
		<-c.gate
	}
	o.running.Add(-1)
	w.End()
	o.ended <- c.file
}

func (o *owner) push(calls ...call) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.crew.Push(calls...)
	o.pool.Start()
}

func (o *owner) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pool.Close()
}

// counts returns the crew's members and idle members.
func (o *owner) counts() (members, idle int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.crew.members, o.crew.idle
}

// receive returns the next n values.
func receive(t *testing.T, from chan int, n int) (got []int) {
	t.Helper()
	for range n {
		select {
		case x := <-from:
			got = append(got, x)
		case <-time.After(90 * time.Second):
			require.Fail(t, "a call is missing")
		}
	}
	slices.Sort(got)
	return got
}

func requireEventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 90*time.Second, time.Millisecond, what)
}

// forEach runs a test with pools whose workers stay or end, and take one job or several.
func forEach(t *testing.T, test func(t *testing.T, open func(most int, stuckAfter time.Duration) *owner)) {
	for name, kind := range map[string]struct {
		stays bool
		batch int
	}{"stay": {true, 1}, "end": {false, 1}, "batches": {false, MaxBatch}, "stay, batches": {true, MaxBatch}} {
		t.Run(name, func(t *testing.T) {
			test(t, func(most int, stuckAfter time.Duration) *owner {
				return openPool(t, most, stuckAfter, kind.stays, kind.batch)
			})
		})
	}
}

func calls(n, file int, gate chan struct{}) []call {
	return slices.Repeat([]call{{file: file, gate: gate}}, n)
}

func TestAsManyCallsAtOnceAsMostAllows(t *testing.T) {
	forEach(t, func(t *testing.T, open func(int, time.Duration) *owner) {
		o, gate := open(5, far), make(chan struct{})
		for range 5 {
			o.push(call{gate: gate})
		}
		receive(t, o.begun, 5)
		o.push(calls(100, 0, nil)...)
		close(gate)
		receive(t, o.ended, 105)
		require.LessOrEqual(t, o.most.Load(), int64(5))
		o.close()
		members, idle := o.counts()
		require.Zero(t, members)
		require.Zero(t, idle)
	})
}

func TestStuckCallsFreeTheirPlaces(t *testing.T) {
	forEach(t, func(t *testing.T, open func(int, time.Duration) *owner) {
		o, gate := open(2, 4*time.Millisecond), make(chan struct{})
		var hanging []call
		for file := range 50 {
			hanging = append(hanging, call{file: 1 + file, gate: gate})
		}
		o.push(hanging...)
		receive(t, o.begun, 50)
		requireEventually(t, "all are stuck", func() bool { return o.pool.Stuck() == 50 })
		o.push(calls(100, 0, nil)...)
		receive(t, o.ended, 100)
		requireEventually(t, "nothing is looked at while all calls are stuck", func() bool { return !o.pool.ticking.Load() })
		close(gate)
		receive(t, o.ended, 50)
		for range 100 { // of the workers, 50 more than may stay
			o.push(call{file: 1})
			receive(t, o.ended, 1)
		}
		o.push(calls(100, 1, nil)...)
		receive(t, o.ended, 100)
		o.close()
		require.Zero(t, o.pool.Stuck())
		require.Empty(t, o.pool.stalls)
		members, idle := o.counts()
		require.Zero(t, members)
		require.Zero(t, idle)
	})
}

// While as many calls are stuck as may be, further ones keep their places until one returns.
func TestStuckCallsAreBounded(t *testing.T) {
	forEach(t, func(t *testing.T, open func(int, time.Duration) *owner) {
		o, first, gate := open(30, 4*time.Millisecond), make(chan struct{}), make(chan struct{})
		o.push(call{gate: first})
		o.push(calls(MaxStuck-1, 0, gate)...)
		receive(t, o.begun, MaxStuck)
		requireEventually(t, "all are stuck", func() bool { return o.pool.Stuck() == MaxStuck })
		o.push(calls(31, 0, gate)...) // number 513 and so on
		receive(t, o.begun, 30)
		o.mu.Lock()
		for range 10 * ticks { // long after they would have been stuck
			for w := range o.pool.workers {
				require.False(t, w.becomesStuck())
			}
		}
		o.mu.Unlock()
		require.EqualValues(t, MaxStuck, o.pool.Stuck())
		require.Empty(t, o.begun, "the last one waits")
		close(first)
		require.Len(t, receive(t, o.begun, 1), 1)
		close(gate)
		receive(t, o.ended, MaxStuck+31)
		o.close()
		require.Zero(t, o.pool.Stuck())
	})
}

func TestKeyWithStuckCallsUsesFewWorkers(t *testing.T) {
	forEach(t, func(t *testing.T, open func(int, time.Duration) *owner) {
		o, gate := open(2, 4*time.Millisecond), make(chan struct{})
		o.push(calls(1000, 7, gate)...)
		receive(t, o.begun, MaxStuckOfKey)
		for range 20 {
			o.push(call{})
			receive(t, o.ended, 1)
		}
		require.LessOrEqual(t, o.pool.Stuck(), int64(MaxStuckOfKey+1), "no more are begun than were before they were stuck")
		close(gate)
		require.Equal(t, slices.Repeat([]int{7}, 1000), receive(t, o.ended, 1000))
		o.close()
		require.Empty(t, o.pool.stalls)
	})
}

func TestJobsTakenWithStuckOneArePassedOn(t *testing.T) {
	o, gate := openPool(t, 1, 4*time.Millisecond, false, MaxBatch), make(chan struct{})
	o.push(append(calls(1, 1, gate), calls(MaxBatch, 2, nil)...)...)
	require.Equal(t, slices.Repeat([]int{2}, MaxBatch), receive(t, o.ended, MaxBatch))
	close(gate)
	receive(t, o.ended, 1)
	o.close()
}

// A worker takes its share of the jobs, not as many as it may.
func TestWorkersShareJobs(t *testing.T) {
	o := openPool(t, 4, far, false, MaxBatch)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.crew.Push(calls(8, 0, nil)...)
	o.crew.members = 4
	w := &Worker[int, call]{crew: o.crew}
	for _, want := range []int{2, 1, 1, 1, 1, 1, 1} {
		require.True(t, w.take())
		require.Equal(t, want, w.n)
	}
	require.Zero(t, o.crew.left())
}

func TestPushFirstComesBeforePush(t *testing.T) {
	o, gate := openPool(t, 1, far, false, 1), make(chan struct{})
	o.push(call{file: 1, gate: gate})
	receive(t, o.begun, 1)
	o.mu.Lock()
	o.crew.Push(calls(10, 2, nil)...)
	o.crew.PushFirst(call{file: 3})
	o.pool.Start()
	o.mu.Unlock()
	close(gate)
	require.Equal(t, 1, <-o.ended)
	require.Equal(t, 3, <-o.ended)
	receive(t, o.ended, 10)
	o.close()
}

func TestOwnerLearnsThatCallsAreStuckAndHaveReturned(t *testing.T) {
	o, gate := openPool(t, 1, 4*time.Millisecond, false, 1), make(chan struct{})
	gone := make(chan bool, 2)
	o.push(call{gate: gate, gone: func(stuck bool) {
		o.mu.Lock() // it may be taken
		defer o.mu.Unlock()
		gone <- stuck
	}})
	require.True(t, <-gone)
	close(gate)
	require.False(t, <-gone)
	o.push(call{gone: func(bool) { panic("this call is not stuck") }})
	o.close()
}

// Close waits for calls that hang, and for jobs that are parked; nothing is left running.
func TestCloseWaitsForAllJobs(t *testing.T) {
	forEach(t, func(t *testing.T, open func(int, time.Duration) *owner) {
		o, gate := open(2, 4*time.Millisecond), make(chan struct{})
		o.push(calls(100, 7, gate)...)
		receive(t, o.begun, MaxStuckOfKey)
		requireEventually(t, "they are stuck", func() bool { return o.pool.Stuck() >= MaxStuckOfKey })
		closed := make(chan struct{})
		go func() {
			o.close()
			close(closed)
		}()
		requireEventually(t, "Close was called", func() bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			return o.pool.closed
		})
		select {
		case <-closed:
			require.Fail(t, "Close returned while calls hang")
		default:
		}
		close(gate)
		<-closed
		require.Len(t, o.ended, 100)
		o.push(calls(10, 0, nil)...) // as local does, which closes files last
		o.close()
		require.Len(t, o.ended, 110)
	})
}

func TestJobsOfManySubmitters(t *testing.T) {
	forEach(t, func(t *testing.T, open func(int, time.Duration) *owner) {
		o := open(3, 4*time.Millisecond)
		var submitters sync.WaitGroup
		for file := range 8 {
			submitters.Go(func() {
				for range 500 {
					o.push(call{file: file})
				}
			})
		}
		submitters.Wait()
		o.close()
		require.Len(t, o.ended, 4000)
	})
}

func BenchmarkJob(b *testing.B) {
	var mu sync.Mutex
	p := NewPool[int, chan struct{}](&mu)
	c := p.AddCrew(&Crew[int, chan struct{}]{Most: func() int { return 4 }, Batch: 1, Stays: true, Do: func(w *Worker[int, chan struct{}], end chan struct{}) {
		w.Begin(1, nil)
		w.End()
		end <- struct{}{}
	}})
	end := make(chan struct{}, 1)
	b.ReportAllocs()
	for b.Loop() {
		mu.Lock()
		c.Push(end)
		p.Start()
		mu.Unlock()
		<-end
	}
	mu.Lock()
	p.Close()
	mu.Unlock()
}
