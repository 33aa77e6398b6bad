package remote_test

import (
	"context"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// A training job reads 100 MB/s in chunks of 310 KB, 128 MiB ahead, from a service that delivers 90
// MB/s per connection. In memory a chunk has 4 KiB: only its timing matters.
const (
	chunk        = 4 * kib
	chunkTime    = 3100 * time.Microsecond // to read it
	chunkTransit = 3440 * time.Microsecond
	chunksAhead  = 128 * mib / 310_000
)

// simulated is a service whose requests take as long as a test specifies.
type simulated struct {
	remote.Source
	delay func() time.Duration // to the first byte
	stall func() int           // bytes after which a body stalls forever; -1: it does not
}

func (s *simulated) Name() string                    { return "https://simulated" }
func (s *simulated) Refresh(context.Context, string) {}
func (s *simulated) Close() error                    { return nil }
func (s *simulated) Head(context.Context, string) (remote.Listed, error) {
	return remote.Listed{SizeBytes: 1 << 40, Validator: `"1"`}, nil
}

func (s *simulated) Open(ctx context.Context, _ string, v remote.Validator, off, n int64) (remote.Answer, error) {
	b := &simulatedBody{ctx: ctx, left: int(n), stall: s.stall()}
	if err := b.wait(s.delay()); err != nil {
		return remote.Answer{}, err
	}
	return remote.Answer{Body: b, Status: 206, Begin: off, End: off + n, Total: 1 << 40, LengthBytes: n, Validator: v}, nil
}

type simulatedBody struct {
	ctx   context.Context
	left  int
	stall int
}

func (b *simulatedBody) wait(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-b.ctx.Done():
		return b.ctx.Err()
	}
}

func (b *simulatedBody) Read(p []byte) (int, error) {
	n := min(len(p), b.left, 1*kib)
	if b.left == 0 {
		return 0, io.EOF
	}
	if b.stall >= 0 {
		if n = min(n, b.stall); n == 0 {
			<-b.ctx.Done()
			return 0, b.ctx.Err()
		}
		b.stall -= n
	}
	if err := b.wait(chunkTransit * time.Duration(n) / chunk); err != nil {
		return 0, err
	}
	b.left -= n
	return n, nil
}

func (b *simulatedBody) Close() error { return nil }

// train reads the given number of chunks and plans ahead. It returns how long it waited for chunks,
// in total and at most for one, and the share of requests that were hedges.
func train(t *testing.T, s *simulated, hedge bool, chunks int) (stalled, longest time.Duration, share float64) {
	if s.stall == nil {
		s.stall = func() int { return -1 }
	}
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, s, func(c *remote.Config) { c.Hedge = hedge })
		o, err := e.Stat(t.Context(), "a.tar")
		require.NoError(t, err)
		done := make([]chan error, chunks)
		submit := func(i int) {
			if i < chunks {
				done[i] = make(chan error, 1)
				e.Submit([]*storage.Read{{Object: o, OffsetBytes: int64(i) * chunk, Buf: make([]byte, chunk), Done: func(err error) { done[i] <- err }}})
			}
		}
		plan := func(at int) {
			var wants []storage.Block
			for i := at; i < at+chunksAhead+16; i++ {
				wants = append(wants, storage.Block{Object: o, OffsetBytes: int64(i) * chunk, SizeBytes: chunk, DueBytes: int64(i-at) * chunk})
			}
			e.Want(1, wants)
		}
		plan(0)
		for i := range chunksAhead {
			submit(i)
		}
		for i := range chunks {
			began := time.Now()
			select {
			case err = <-done[i]:
			default:
				plan(i) // now the reader waits for it
				err = <-done[i]
			}
			require.NoError(t, err)
			waited := time.Since(began)
			stalled, longest = stalled+waited, max(longest, waited)
			if i%16 == 0 {
				plan(i + 1)
			}
			submit(i + chunksAhead)
			time.Sleep(chunkTime)
		}
		got := e.Stats()
		share = float64(got.Hedges) / float64(got.Requests["206"]+got.Requests["none"])
		require.NoError(t, e.Close())
	})
	return stalled, longest, share
}

// tailA returns a latency of about 25 ms for most first bytes, 0.2 to 1 s for 1 %, and 1 to 10 s
// for 0.1 %.
func tailA(seed uint64) func() time.Duration {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 0))
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		between := func(a, b time.Duration) time.Duration { return a + time.Duration(random.Int64N(int64(b-a))) }
		switch u := random.Float64(); {
		case u < 0.001:
			return between(time.Second, 10*time.Second)
		case u < 0.011:
			return between(200*time.Millisecond, time.Second)
		}
		return between(15*time.Millisecond, 35*time.Millisecond)
	}
}

// With the tail latencies of a real service, a job of 100 MB/s that reads 128 MiB ahead waits for
// at most 1 % of its time. Without hedges it waits for a large part of it.
func TestJobDoesNotWaitForTailLatency(t *testing.T) {
	if testing.Short() {
		t.Skip("100 000 requests, of one path of the engine, take long with the race detector")
	}
	const chunks = 60_000 // 186 s
	stalled, longest, share := train(t, &simulated{delay: tailA(1)}, true, chunks)
	t.Logf("with hedges it waits for %v, %v at a time; hedges are %.2f %% of requests", stalled, longest, 100*share)
	require.Less(t, stalled, chunks*chunkTime/100)
	require.Less(t, share, 0.05)

	stalled, longest, _ = train(t, &simulated{delay: tailA(1)}, false, chunks/4)
	t.Logf("without, for %v, %v at a time", stalled, longest)
	require.Greater(t, stalled, chunks/4*chunkTime/10)
}

// One request that is never answered, or stalls in the middle of its body, makes a job wait for
// less than 3 s, wherever in the run it is, and hardly at all once the run has started.
func TestUnansweredRequestDelaysJobByLessThan3Seconds(t *testing.T) {
	for name, lost := range map[string]struct {
		turn   int64
		stalls int // -1: no answer at all
		within time.Duration
	}{
		"the first":                 {1, -1, 3 * time.Second},
		"the first, in its body":    {1, 2000, 3 * time.Second},
		"an early one":              {20, -1, 3 * time.Second},
		"one of many":               {5000, -1, 200 * time.Millisecond},
		"one of many, in its body":  {5000, 2000, 200 * time.Millisecond},
		"one of many, at its begin": {5000, 0, 200 * time.Millisecond},
		"one of many, near its end": {5000, chunk - 1, 200 * time.Millisecond},
	} {
		if testing.Short() && lost.stalls != 2000 {
			continue // stalls in the body exercise the most code at once
		}
		t.Run(name, func(t *testing.T) {
			var turn atomic.Int64
			delay := func() time.Duration { return 25 * time.Millisecond }
			s := &simulated{delay: delay, stall: func() int {
				if turn.Add(1) == lost.turn {
					return lost.stalls
				}
				return -1
			}}
			if lost.stalls < 0 {
				s.stall = nil
				s.delay = func() time.Duration {
					if turn.Add(1) == lost.turn {
						return 24 * time.Hour
					}
					return delay()
				}
			}
			_, longest, _ := train(t, s, true, 8000)
			t.Logf("it waits for %v at most", longest)
			require.Less(t, longest, lost.within)
		})
	}
}
