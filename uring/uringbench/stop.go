package uringbench

import (
	"context"
	"errors"
	"math"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/uring"
)

// StopBurstBytes is the size of the burst of cache hits that the promise is about.
const StopBurstBytes = 256 << 20

// stopBlockBytes is the size of one request in a burst.
const stopBlockBytes = 1 << 20

// StopResult is how long a Go program waited for its goroutines to stop.
type StopResult struct {
	Stops uint64        `json:"stops"`
	Worst time.Duration `json:"worst"` // from the request to stop until nothing ran; an upper bound
}

// StopTheWorld measures how long stopping the world takes while an engine reads. It submits bursts
// of reads of a file in the page cache, one after the other until d is over. A file smaller than
// StopBurstBytes is read several times per burst. Half of the bursts read Files, the other half
// plain descriptors, which all go through the ring.
//
// All stops of the process are counted, so nothing else should run in it.
func StopTheWorld(ctx context.Context, path string, mode uring.Mode, d time.Duration) (StopResult, error) {
	return stopTheWorld(ctx, path, mode, d, StopBurstBytes)
}

func stopTheWorld(ctx context.Context, path string, mode uring.Mode, d time.Duration, burstBytes int) (r StopResult, err error) {
	j := Job{Path: path, BlockBytes: stopBlockBytes, Depth: burstBytes / stopBlockBytes, Mode: mode, Duration: d}
	if err := Warm(ctx, j); err != nil {
		return StopResult{}, err
	}
	f, numBlocks, err := j.open()
	if err != nil {
		return StopResult{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	memory, err := uring.Map(burstBytes)
	if err != nil {
		return StopResult{}, err
	}
	defer func() { err = errors.Join(err, uring.Unmap(memory)) }()
	engine, err := uring.Open(mode)
	if err != nil {
		return StopResult{}, err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()

	var stopper sync.WaitGroup
	ended := make(chan struct{})
	before := readStops()
	stopper.Go(func() {
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m) // stops the world
			select {
			case <-ended:
				return
			default:
			}
		}
	})
	deadline := time.Now().Add(d)
	for i := 0; err == nil && time.Now().Before(deadline); i++ {
		err = errors.Join(ctx.Err(), burst(engine, f, i%2 == 0, memory, numBlocks))
	}
	close(ended)
	stopper.Wait()
	return readStops().since(before), err
}

// burst fills memory in one batch.
func burst(e uring.Engine, f *uring.File, asFile bool, memory []byte, numBlocks int64) error {
	var mu sync.Mutex
	var failed error
	var ended sync.WaitGroup
	var batch []*uring.Request
	for i := range int64(len(memory) / stopBlockBytes) {
		r := &uring.Request{
			FD: f.FD(), OffsetBytes: i % numBlocks * stopBlockBytes, Buf: memory[i*stopBlockBytes:][:stopBlockBytes],
			Done: func(_ int, err error) {
				mu.Lock()
				defer mu.Unlock()
				failed = errors.Join(failed, err)
				ended.Done()
			},
		}
		if asFile {
			r.File = f
		}
		batch = append(batch, r)
	}
	ended.Add(len(batch))
	e.Submit(batch)
	ended.Wait()
	return failed
}

// stops are the runtime's histograms of how long stopping the world took, for the collector and for
// other reasons.
type stops [2]metrics.Sample

func readStops() *stops {
	s := &stops{{Name: "/sched/pauses/stopping/gc:seconds"}, {Name: "/sched/pauses/stopping/other:seconds"}}
	metrics.Read(s[:])
	return s
}

// since returns what came after before.
func (s *stops) since(before *stops) (r StopResult) {
	for i := range s {
		now, then := s[i].Value.Float64Histogram(), before[i].Value.Float64Histogram()
		for b, count := range now.Counts {
			count -= then.Counts[b]
			if count == 0 {
				continue
			}
			r.Stops += count
			if bound := now.Buckets[b+1]; !math.IsInf(bound, 1) {
				r.Worst = max(r.Worst, time.Duration(bound*float64(time.Second)))
			} else {
				r.Worst = math.MaxInt64
			}
		}
	}
	return r
}
