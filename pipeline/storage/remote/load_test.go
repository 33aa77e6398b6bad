package remote_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/faultserver"
)

// submit reads n ranges of size bytes of an object, and calls done with the index of each and its
// error.
func (w *world) submit(o storage.Object, n int, size int64, done func(i int, err error)) {
	reads := make([]*storage.Read, n)
	for i := range reads {
		r := &storage.Read{Object: o, OffsetBytes: int64(i) * size % (o.SizeBytes - size + 1), Buf: make([]byte, size)}
		r.Done = func(err error) {
			if err == nil && !bytes.Equal(w.server.Bytes(o.Path, r.OffsetBytes, size), r.Buf) {
				err = errors.New("wrong bytes")
			}
			done(i, err)
		}
		reads[i] = r
	}
	w.Submit(reads)
}

// all is submit, but waits, and returns how many reads failed.
func (w *world) all(o storage.Object, n int, size int64) (failed int) {
	var waits sync.WaitGroup
	var count atomic.Int64
	waits.Add(n)
	w.submit(o, n, size, func(_ int, err error) {
		if err != nil {
			count.Add(1)
		}
		waits.Done()
	})
	waits.Wait()
	return int(count.Load())
}

// rate returns how many reads per second 64 readers make during d.
func (w *world) rate(d time.Duration) float64 {
	var n, failed atomic.Int64
	var readers sync.WaitGroup
	end := time.Now().Add(d)
	for i := range 64 {
		readers.Go(func() {
			for time.Now().Before(end) {
				p := make([]byte, kib)
				if err := storage.ReadAt(w.t.Context(), w, w.a, p, int64(i)*kib); err != nil {
					failed.Add(1)
				}
				n.Add(1)
			}
		})
	}
	readers.Wait()
	require.Zero(w.t, failed.Load())
	return float64(n.Load()) / d.Seconds()
}

// During 30 s of 503 no reader gets an error and fewer requests are made, and soon after it the
// rate is back, with and without hedges.
func TestStorm(t *testing.T) {
	ways := []bool{true, false}
	if testing.Short() {
		ways = ways[:1]
	}
	for _, hedge := range ways {
		in(t, func(c *remote.Config) { c.Hedge = hedge }, func(t *testing.T, w *world) {
			w.server.On(faultserver.Method("GET"), faultserver.Delay(100*time.Millisecond))
			w.rate(20 * time.Second)
			before := w.rate(2 * time.Second)
			require.GreaterOrEqual(t, w.Stats().Slots, 47)

			storm := w.server.On(faultserver.Method("GET"), faultserver.Status(503, "SlowDown"))
			requests, slots := len(w.server.Log()), 0
			go func() {
				time.Sleep(30 * time.Second)
				requests, slots = len(w.server.Log())-requests, w.Stats().Slots
				storm.Off()
			}()
			w.rate(30 * time.Second)
			require.Equal(t, 4, slots)
			require.Less(t, requests, 30*int(before)/10)
			w.rate(6 * time.Second) // 10 s, including the waits of reads
			require.GreaterOrEqual(t, w.rate(time.Second), 0.9*before)
		})
	}
}

// Retry-After applies to all requests.
func TestRetryAfterStopsNewRequests(t *testing.T) {
	in(t, nil, func(t *testing.T, w *world) {
		w.server.On(faultserver.Method("GET"), faultserver.Status(429, "", "Retry-After", "20")).Times(1)
		began := time.Now()
		require.NoError(t, w.read(w.a, 0, mib))
		require.NoError(t, w.read(w.a, 0, mib))
		var at []time.Duration
		for _, r := range w.server.Log() {
			if r.Method == "GET" {
				at = append(at, r.At.Sub(began))
			}
		}
		require.Len(t, at, 3)
		require.GreaterOrEqual(t, at[1], 20*time.Second)
		require.LessOrEqual(t, at[1], 21*time.Second)
	})
}

// crowd counts how many are inside, and the most that were inside at a time.
type crowd struct{ now, most atomic.Int64 }

func (c *crowd) enter() {
	n := c.now.Add(1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); {
		most = c.most.Load()
	}
}

func (c *crowd) leave() { c.now.Add(-1) }

// The numbers of running requests and of their bytes are bounded; a single read may be larger.
func TestRequestsAndBytesAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		connections int
		bytes       int64
		most        int
	}{
		"by connections": {8, 1 << 30, 8},
		"by bytes":       {64, 3 * 64 * kib, 3},
		"by less bytes":  {64, kib, 1},
		"one connection": {1, 1 << 30, 1},
	} {
		t.Run(name, func(t *testing.T) {
			change := func(config *remote.Config) { config.Connections, config.InFlightBytes = c.connections, c.bytes }
			in(t, change, func(t *testing.T, w *world) {
				var asked crowd
				w.server.On(faultserver.Method("GET"), func(*faultserver.Reply) {
					asked.enter()
					time.Sleep(20 * time.Millisecond)
					asked.leave()
				})
				require.Zero(t, w.all(w.a, 100, 64*kib))
				require.EqualValues(t, c.most, asked.most.Load())
			})
		})
	}
}

// Reads that a reader waits for go first, then planned ones, nearest first, then fills.
func TestReadsAreOrderedByRank(t *testing.T) {
	one := func(c *remote.Config) { c.Connections = 1 }
	in(t, one, func(t *testing.T, w *world) {
		w.server.On(faultserver.Method("GET"), faultserver.Delay(time.Second))
		w.Want(1, []storage.Block{
			{Object: w.a, OffsetBytes: 1 * mib, SizeBytes: mib, DueBytes: 2000},
			{Object: w.a, OffsetBytes: 2 * mib, SizeBytes: mib, DueBytes: 1000},
			{Object: w.a, OffsetBytes: 3 * mib, SizeBytes: mib / 2, DueBytes: 3000},
		})
		var waits sync.WaitGroup
		read := func(off int64) *storage.Read {
			waits.Add(1)
			return &storage.Read{Object: w.a, OffsetBytes: off, Buf: make([]byte, 100*kib), Done: func(error) { waits.Done() }}
		}
		w.Submit([]*storage.Read{read(kib)}) // starts at once
		synctest.Wait()
		w.Fill([]*storage.Read{read(3*mib + 512*kib)})
		w.Submit([]*storage.Read{read(1 * mib), read(2 * mib), read(3 * mib), read(2 * kib)})
		time.Sleep(1500 * time.Millisecond)
		w.Want(2, []storage.Block{{Object: w.a, OffsetBytes: 3*mib + 400*kib, SizeBytes: 200 * kib, DueBytes: 10}}) // applies to the fill, too
		waits.Wait()
		require.Equal(t, []string{"1+100", "2+100", "3584+100", "2048+100", "1024+100", "3072+100"}, w.reads())
	})
}

// Fills use half of the slots, and none for 10 s after a throttle.
func TestFillLeavesSlotsFree(t *testing.T) {
	in(t, nil, func(t *testing.T, w *world) {
		w.server.On(faultserver.Method("GET"), faultserver.Delay(time.Second))
		var waits sync.WaitGroup
		fill := func(n int) {
			for range n {
				waits.Add(1)
				w.Fill([]*storage.Read{{Object: w.a, Buf: make([]byte, kib), Done: func(err error) { require.NoError(t, err); waits.Done() }}})
			}
		}
		fill(40)
		synctest.Wait()
		require.Equal(t, 8, w.Stats().InUse)
		require.NoError(t, w.read(w.a, 0, kib))
		waits.Wait()

		w.server.On(faultserver.Method("GET"), faultserver.Status(503, "SlowDown")).Times(1)
		require.NoError(t, w.read(w.a, 0, kib))
		began := time.Now()
		fill(4)
		waits.Wait()
		require.Greater(t, time.Since(began), 6*time.Second)
		require.Less(t, time.Since(began), 13*time.Second)
	})
}

// Close waits for reads that succeed; after it, failed reads are not retried, and reads that wait
// for their next attempt end.
func TestCloseDuringOutage(t *testing.T) {
	in(t, nil, func(t *testing.T, w *world) {
		w.server.On(faultserver.Method("GET"), faultserver.Together(faultserver.Delay(time.Second), faultserver.Status(500, "")))
		var ended, closed atomic.Int64
		w.submit(w.a, 500, kib, func(_ int, err error) {
			ended.Add(1)
			if errors.Is(err, fs.ErrClosed) {
				closed.Add(1)
			}
		})
		time.Sleep(20 * time.Second)
		began := time.Now()
		require.NoError(t, w.Close())
		require.EqualValues(t, 500, ended.Load())
		require.EqualValues(t, 500, closed.Load())
		require.LessOrEqual(t, time.Since(began), 2*time.Second)
	})
}

// A read that is cancelled while it waits for another attempt is not retried.
func TestFailingReadsAreCancellable(t *testing.T) {
	in(t, nil, func(t *testing.T, w *world) {
		w.server.On(faultserver.Method("GET"), faultserver.Status(500, ""))
		var wanted atomic.Bool
		wanted.Store(true)
		done := make(chan error, 1)
		w.Submit([]*storage.Read{{Object: w.a, Buf: make([]byte, 9), Wanted: wanted.Load, Done: func(err error) { done <- err }}})
		time.Sleep(time.Second)
		wanted.Store(false)
		began := time.Now()
		require.Equal(t, storage.ErrUnwanted, <-done)
		require.LessOrEqual(t, time.Since(began), 6*time.Second)
	})
}

// late is a source whose bodies keep writing to the buffer for a while after their context has
// ended.
type late struct {
	remote.Source
	lag time.Duration
}

type lateBody struct {
	ctx context.Context
	lag time.Duration
}

func (l late) Open(ctx context.Context, _ string, v remote.Validator, off, n int64) (remote.Answer, error) {
	return remote.Answer{
		Body: lateBody{ctx, l.lag}, Status: 206, Begin: off, End: off + n, Total: 4 * mib, LengthBytes: n, Validator: v,
	}, nil
}

func (b lateBody) Read(p []byte) (int, error) {
	<-b.ctx.Done()
	time.Sleep(b.lag)
	clear(p)
	return 0, b.ctx.Err()
}

func (lateBody) Close() error { return nil }

// A buffer is returned only when nothing writes to it any more.
func TestBuffersAreReturnedAfterLastWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := faultserver.New()
		server.Put("a.tar", 4*mib)
		s := engine(t, late{faultserver.Connect(t, server), time.Minute}, func(c *remote.Config) { c.ReadTimeout = time.Second })
		o, err := s.Stat(t.Context(), "a.tar")
		require.NoError(t, err)
		p := make([]byte, kib)
		require.Error(t, storage.ReadAt(t.Context(), s, o, p, 5))
		mine := bytes.Repeat([]byte{7}, kib)
		copy(p, mine)
		time.Sleep(time.Hour)
		require.Equal(t, mine, p)
		require.NoError(t, s.Close())
	})
}

// Whatever a server does, every read ends, with the right bytes or an error, and nothing leaks.
func TestAnyFaultsYieldCorrectBytesOrAnError(t *testing.T) {
	faults := []faultserver.Fault{
		faultserver.Delay(3 * time.Second), faultserver.Hang(), faultserver.Stall(0), faultserver.Stall(100 * kib), faultserver.Drip(300 * time.Millisecond), faultserver.Reset(-1), faultserver.Reset(0), faultserver.Reset(70 * kib),
		faultserver.Short(1), faultserver.Short(-1), faultserver.Long(1), faultserver.Unannounced(), faultserver.Together(faultserver.Unannounced(), faultserver.Short(1)), faultserver.Together(faultserver.Unannounced(), faultserver.Long(1)),
		faultserver.Status(500, ""), faultserver.Status(503, "SlowDown"), faultserver.Status(429, "", "Retry-After", "3"), faultserver.Status(401, ""), faultserver.Status(403, ""), faultserver.Status(204, ""), faultserver.Status(304, ""), faultserver.Status(418, ""),
		faultserver.Whole(), faultserver.OtherRange(1), faultserver.OtherRange(-1), faultserver.ContentRange(""), faultserver.ContentRange("bytes BEGIN-LAST/1"), faultserver.ContentRange("bytes BEGIN-LAST/*"), faultserver.Multipart(),
		faultserver.Encoded("gzip"), faultserver.NoVersion(), faultserver.Old(), faultserver.LastAnswer(), faultserver.NoPrecondition(),
	}
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		chosen := rapid.SliceOfN(rapid.IntRange(0, len(faults)-1), 1, 4).Draw(rt, "faults")
		share := rapid.SampledFrom([]float64{0.02, 0.2, 0.9}).Draw(rt, "share")
		hedge := rapid.Bool().Draw(rt, "hedge")
		changes := rapid.Bool().Draw(rt, "changes")
		size := rapid.SampledFrom([]int64{kib, 100 * kib, 300 * kib}).Draw(rt, "size")
		in(t, func(c *remote.Config) { c.Hedge = hedge; c.ReadTimeout = time.Minute }, func(t *testing.T, w *world) {
			for i, f := range chosen {
				w.server.On(faultserver.Method("GET"), faults[f]).Share(share, seed+uint64(i))
			}
			random := rand.New(rand.NewPCG(seed, 0))
			first := w.server.Bytes("a.tar", 0, 4*mib)
			var waits sync.WaitGroup
			var reads []*storage.Read
			began := time.Now()
			for range 25 {
				off := random.Int64N(4*mib - size + 1)
				r := &storage.Read{Object: w.a, OffsetBytes: off, Buf: make([]byte, size)}
				r.Done = func(err error) {
					if err == nil && !bytes.Equal(first[off:off+size], r.Buf) {
						t.Errorf("wrong bytes in [%d, %d), faults %v", off, off+size, chosen)
					}
					waits.Done()
				}
				waits.Add(1)
				reads = append(reads, r)
			}
			w.Submit(reads)
			if changes {
				time.Sleep(time.Second)
				w.server.Change("a.tar")
			}
			waits.Wait()
			if took := time.Since(began); took > 10*time.Minute {
				t.Errorf("it took %v", took)
			}
			if used := w.Stats().InUse; used != 0 {
				t.Errorf("%d slots are taken", used)
			}
		})
	})
}

var _ io.ReadCloser = lateBody{}
