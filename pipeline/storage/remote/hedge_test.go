package remote_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/faultserver"
)

func hedging(c *remote.Config) { c.Hedge = true }

// warm makes the engine learn that first bytes take 30 ms.
func (w *world) warm() {
	w.server.On(faultserver.Method("GET"), faultserver.Delay(30*time.Millisecond))
	require.Zero(w.t, w.all(w.a, 64, kib))
}

// A request that is lost is overtaken by another, long before its deadline.
func TestLostRequestsAreHedged(t *testing.T) {
	for name, fault := range map[string]faultserver.Fault{"no answer": faultserver.Hang(), "a late one": faultserver.Delay(5 * time.Second), "a stall after the header": faultserver.Stall(0)} {
		t.Run(name, func(t *testing.T) {
			in(t, hedging, func(t *testing.T, w *world) {
				w.warm()
				w.server.On(faultserver.Method("GET"), fault).Times(1)
				began := time.Now()
				require.NoError(t, w.read(w.a, mib, 100*kib))
				require.LessOrEqual(t, time.Since(began), 200*time.Millisecond)
				s := w.Stats()
				require.EqualValues(t, 1, s.Hedges)
				require.EqualValues(t, 1, s.HedgesWon)
				require.Empty(t, s.Retries)
				require.Zero(t, s.InUse)
			})
		})
	}
}

// A third request is made if two are lost, but not a fourth.
func TestHedgeMayBeLostToo(t *testing.T) {
	in(t, hedging, func(t *testing.T, w *world) {
		w.warm()
		w.server.On(faultserver.Method("GET"), faultserver.Hang()).Times(2)
		began := time.Now()
		require.NoError(t, w.read(w.a, mib, kib))
		require.LessOrEqual(t, time.Since(began), 300*time.Millisecond)
		require.EqualValues(t, 2, w.Stats().Hedges)

		w.server.On(faultserver.Method("GET"), faultserver.Hang()).Times(3)
		require.NoError(t, w.read(w.a, mib, kib))
		require.GreaterOrEqual(t, time.Since(began), 10*time.Second, "the deadline ends the first")
		require.Less(t, w.Stats().Hedges, uint64(6))
	})
}

// A hedge that fails, or whose answer is wrong, does no harm; nor does such a first request if a
// hedge is good.
func TestHedgesAreVerified(t *testing.T) {
	for name, faults := range map[string][2]faultserver.Fault{
		"a hedge of another range":           {faultserver.Delay(time.Second), faultserver.OtherRange(7)},
		"a hedge that is refused":            {faultserver.Delay(time.Second), faultserver.Status(403, "")},
		"a hedge that is throttled":          {faultserver.Delay(time.Second), faultserver.Status(503, "")},
		"a first request that breaks":        {faultserver.Together(faultserver.Delay(150*time.Millisecond), faultserver.Reset(0)), faultserver.Delay(300 * time.Millisecond)},
		"a first request of another range":   {faultserver.Together(faultserver.Delay(150*time.Millisecond), faultserver.OtherRange(9)), faultserver.Delay(300 * time.Millisecond)},
		"both, at nearly the same time":      {faultserver.Delay(140 * time.Millisecond), faultserver.Delay(30 * time.Millisecond)},
		"a first one that stalls in between": {faultserver.Together(faultserver.Delay(120*time.Millisecond), faultserver.Stall(500)), faultserver.Delay(300 * time.Millisecond)},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, hedging, func(t *testing.T, w *world) {
				w.warm()
				w.server.On(faultserver.Method("GET"), faults[0]).Times(1)
				w.server.On(faultserver.Method("GET"), faults[1]).After(1).Times(1)
				began := time.Now()
				require.NoError(t, w.read(w.a, mib, kib))
				require.LessOrEqual(t, time.Since(began), 2*time.Second)
				hedges := w.Stats().Hedges // a second one if the first failed
				require.True(t, hedges == 1 || hedges == 2, "%d", hedges)
				require.Zero(t, w.Stats().InUse)
			})
		})
	}
}

// Hedges of an object that has changed give ErrChanged as well.
func TestHedgesOfChangedObjects(t *testing.T) {
	in(t, hedging, func(t *testing.T, w *world) {
		w.warm()
		w.server.On(nil, faultserver.NoPrecondition())
		w.server.On(faultserver.Method("GET"), faultserver.Hang()).Times(1)
		w.server.Change("a.tar")
		require.ErrorIs(t, storage.ReadAt(t.Context(), w, w.a, make([]byte, kib), 0), storage.ErrChanged)
	})
}

// When nothing is answered, or all bodies stall, few hedges are made: 16, and then 5 %.
func TestHedgesDoNotDoubleLoadInOutage(t *testing.T) {
	for name, fault := range map[string]faultserver.Fault{"no answers": faultserver.Hang(), "no bodies": faultserver.Stall(0), "half of a body": faultserver.Stall(500)} {
		t.Run(name, func(t *testing.T) {
			in(t, hedging, func(t *testing.T, w *world) {
				w.warm()
				outage := w.server.On(faultserver.Method("GET"), fault)
				requests := len(w.server.Log())
				go func() { time.Sleep(4 * time.Minute); outage.Off() }()
				require.Zero(t, w.all(w.a, 300, kib))
				s := w.Stats()
				require.LessOrEqual(t, s.Hedges, uint64(16)+uint64(len(w.server.Log())-requests)/20)
				require.Greater(t, s.Hedges, uint64(16))
			})
		})
	}
}

// Reads that no reader waits for, now or soon, are not hedged.
func TestOnlyAwaitedReadsAreHedged(t *testing.T) {
	in(t, hedging, func(t *testing.T, w *world) {
		w.warm()
		w.server.On(faultserver.Method("GET"), faultserver.Hang()).Times(2)
		w.Want(1, []storage.Block{{Object: w.a, OffsetBytes: mib, SizeBytes: kib, DueBytes: 1 << 40}})
		require.NoError(t, w.read(w.a, mib, kib))
		done := make(chan error)
		w.Fill([]*storage.Read{{Object: w.a, OffsetBytes: 2 * mib, Buf: make([]byte, kib), Done: func(err error) { done <- err }}})
		require.NoError(t, <-done)
		require.Zero(t, w.Stats().Hedges)
	})
}

// A planned read whose request is lost is hedged when its reader comes near it.
func TestPlannedReadsAreHedgedWhenDue(t *testing.T) {
	in(t, hedging, func(t *testing.T, w *world) {
		w.warm()
		w.server.On(faultserver.Method("GET"), faultserver.Hang()).Times(1)
		want := storage.Block{Object: w.a, OffsetBytes: mib, SizeBytes: kib, DueBytes: 1 << 40}
		w.Want(1, []storage.Block{want})
		done := make(chan error)
		w.Submit([]*storage.Read{{Object: w.a, OffsetBytes: mib, Buf: make([]byte, kib), Done: func(err error) { done <- err }}})
		time.Sleep(4 * time.Second)
		require.Zero(t, w.Stats().Hedges)
		want.DueBytes = 0
		w.Want(1, []storage.Block{want})
		began := time.Now()
		require.NoError(t, <-done)
		require.LessOrEqual(t, time.Since(began), 400*time.Millisecond)
		require.EqualValues(t, 1, w.Stats().Hedges)
	})
}

// A request that is lost before the usual latency is known is hedged within 2 s.
func TestFirstReadsOfRunAreHedged(t *testing.T) {
	for name, fault := range map[string]faultserver.Fault{"no answer": faultserver.Hang(), "a stall after the header": faultserver.Stall(0), "a stall in the body": faultserver.Stall(500)} {
		t.Run(name, func(t *testing.T) {
			in(t, hedging, func(t *testing.T, w *world) {
				w.server.On(faultserver.Method("GET"), fault).Times(1)
				began := time.Now()
				require.NoError(t, w.read(w.a, mib, kib))
				require.LessOrEqual(t, time.Since(began), 2100*time.Millisecond)
				require.EqualValues(t, 1, w.Stats().HedgesWon)
			})
		})
	}
}

// A body that stalls, or arrives far more slowly than others, is overtaken by a request for the
// missing part, if enough has arrived to make that worthwhile.
func TestStalledBodiesAreHedged(t *testing.T) {
	for name, c := range map[string]struct {
		fault  faultserver.Fault
		asked  string // by the hedge, in KiB
		within time.Duration
	}{
		"after the header":    {faultserver.Stall(0), "1024+1024", 200 * time.Millisecond},
		"after 1 KiB":         {faultserver.Stall(kib), "1024+1024", 200 * time.Millisecond},
		"after 64 KiB":        {faultserver.Stall(64 * kib), "1088+960", 200 * time.Millisecond},
		"before its last KiB": {faultserver.Stall(1023 * kib), "2047+1", 200 * time.Millisecond},
		"before its end":      {faultserver.Together(faultserver.Unannounced(), faultserver.Stall(mib)), "1024+1024", 200 * time.Millisecond},
		"1 KiB a second":      {faultserver.Drip(time.Second), "1024+1024", 700 * time.Millisecond},
		"196 KiB a second":    {faultserver.Drip(5100 * time.Microsecond), "1116+932", 700 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, hedging, func(t *testing.T, w *world) {
				w.server.On(faultserver.Method("GET"), faultserver.Delay(30*time.Millisecond))
				require.Zero(t, w.all(w.a, 64, mib))
				before := len(w.reads())
				w.server.On(faultserver.Method("GET"), c.fault).Times(1)
				began := time.Now()
				require.NoError(t, w.read(w.a, mib, mib))
				require.LessOrEqual(t, time.Since(began), c.within)
				require.Equal(t, []string{"1024+1024", c.asked}, w.reads()[before:])
				require.EqualValues(t, 1, w.Stats().HedgesWon)
				require.Empty(t, w.Stats().Retries)
				require.Zero(t, w.Stats().InUse)
			})
		})
	}
}

// A body that is almost complete is not overtaken, however slow it is.
func TestNearlyCompleteBodiesAreWaitedFor(t *testing.T) {
	in(t, hedging, func(t *testing.T, w *world) {
		w.server.On(faultserver.Method("GET"), faultserver.Delay(30*time.Millisecond))
		require.Zero(t, w.all(w.a, 64, 100*kib))
		w.server.On(faultserver.Method("GET"), faultserver.Drip(4900*time.Microsecond)).Times(1)
		require.NoError(t, w.read(w.a, mib, 100*kib))
		require.Zero(t, w.Stats().Hedges)
	})
}

// The bytes before a hedge's must come from an answer that was right so far: an answer that is too
// long contributes none.
func TestHedgesOfWrongResponsesStartOver(t *testing.T) {
	in(t, hedging, func(t *testing.T, w *world) {
		w.server.On(faultserver.Method("GET"), faultserver.Delay(30*time.Millisecond))
		require.Zero(t, w.all(w.a, 64, 100*kib))
		before := len(w.reads())
		w.server.On(faultserver.Method("GET"), func(p *faultserver.Reply) {
			faultserver.Together(faultserver.Long(1), faultserver.Unannounced(), faultserver.Drip(5200*time.Microsecond))(p)
		}).Times(1)
		w.server.On(faultserver.Method("GET"), faultserver.Delay(80*time.Millisecond)).After(1).Times(1)
		require.NoError(t, w.read(w.a, mib, 100*kib))
		require.Equal(t, []string{"1024+100", "1114+10", "1024+100"}, w.reads()[before:])
		require.EqualValues(t, 1, w.Stats().Retries["wrong_answer"])
	})
}

// Once the first request has failed, the read does not wait for a hedge that is late as well.
func TestLateHedgesDoNotBlockAnotherAttempt(t *testing.T) {
	in(t, hedging, func(t *testing.T, w *world) {
		w.warm()
		w.server.On(faultserver.Method("GET"), faultserver.Together(faultserver.Delay(120*time.Millisecond), faultserver.Status(500, ""))).Times(1)
		w.server.On(faultserver.Method("GET"), faultserver.Hang()).After(1).Times(1)
		began := time.Now()
		require.NoError(t, w.read(w.a, mib, kib))
		require.LessOrEqual(t, time.Since(began), 500*time.Millisecond)
	})
}

// With the tail latencies of a real service (1 % of first bytes after 0.2 to 1 s, 0.1 % after 1 to
// 10 s) a consumer that reads 0.4 s ahead stalls for less than a tenth of the time that it stalls
// without hedges.
func TestTailLatencies(t *testing.T) {
	if testing.Short() {
		t.Skip("10 000 requests take long with the race detector")
	}
	stalled := map[bool]time.Duration{}
	for _, hedge := range []bool{false, true} {
		in(t, func(c *remote.Config) { c.Hedge = hedge }, func(t *testing.T, w *world) {
			w.server.On(faultserver.Method("GET"), faultserver.Delay(25*time.Millisecond))
			w.server.On(faultserver.Method("GET"), faultserver.Delay(600*time.Millisecond)).Share(0.01, 1)
			w.server.On(faultserver.Method("GET"), faultserver.Delay(5*time.Second)).Share(0.002, 2)
			const reads, each, ahead = 5000, 4 * time.Millisecond, 100
			done := make([]chan error, reads)
			submit := func(i int) {
				done[i] = make(chan error, 1)
				w.Submit([]*storage.Read{{Object: w.a, OffsetBytes: int64(i), Buf: make([]byte, kib), Done: func(err error) { done[i] <- err }}})
			}
			for i := range ahead {
				submit(i)
			}
			for i := range reads {
				began := time.Now()
				require.NoError(t, <-done[i])
				stalled[hedge] += time.Since(began)
				if i+ahead < reads {
					submit(i + ahead)
				}
				time.Sleep(each)
			}
			require.LessOrEqual(t, w.Stats().Hedges, uint64(16+reads/20))
		})
	}
	require.Greater(t, stalled[false], 10*time.Second)
	require.Less(t, stalled[true], stalled[false]/10)
}

// Hedges count towards the limit on connections.
func TestHedgesCountTowardsConnectionLimit(t *testing.T) {
	two := func(c *remote.Config) { c.Hedge, c.Connections = true, 2 }
	in(t, two, func(t *testing.T, w *world) {
		w.warm()
		var asked crowd
		w.server.On(faultserver.Method("GET"), func(*faultserver.Reply) {
			asked.enter()
			time.Sleep(time.Second)
			asked.leave()
		})
		var failed atomic.Int64
		done := make(chan struct{}, 20)
		w.submit(w.a, 20, kib, func(i int, err error) {
			if err != nil && !errors.Is(err, storage.ErrUnwanted) {
				failed.Add(1)
			}
			done <- struct{}{}
		})
		for range 20 {
			<-done
		}
		require.Zero(t, failed.Load())
		require.LessOrEqual(t, asked.most.Load(), int64(2))
	})
}
