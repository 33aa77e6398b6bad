package bench

import (
	"context"
	"errors"
	"fmt"
	"github.com/lsiofs/lsiofs/uring"
	"github.com/lsiofs/lsiofs/uring/uringbench"
	"time"
)

// Sizes and depths with which large reads are fastest.
const (
	coldBlock       = 256 << 10
	coldDepth       = 32
	sequentialBlock = 1 << 20
	sequentialDepth = 16
)

// coldJob returns direct reads of the largest shard. It empties the page cache of the shards.
func (s *session) coldJob() (uringbench.Job, error) {
	best := 0
	for i, size := range s.scope.shardBytes {
		if size > s.scope.shardBytes[best] {
			best = i
		}
	}
	j := uringbench.Job{
		Path: s.scope.shards[best], BlockBytes: coldBlock, Depth: coldDepth, Direct: true, Random: true, Duration: s.slot, Mode: uring.ModeAuto,
	}
	if size := s.scope.shardBytes[best]; size < 64*coldBlock {
		return j, notMeasured("the largest shard has %d MiB, too little for random reads", size>>20)
	}
	return j, s.scope.empty(context.Background(), s.written)
}

func (s *session) measureFio(ctx context.Context) (reading, error) {
	j, err := s.coldJob()
	if err != nil {
		return reading{}, err
	}
	r, err := uringbench.Fio(ctx, j, uringbench.FioUring)
	if err != nil && ctx.Err() == nil {
		return reading{}, notMeasured("%w", err) // it is missing, or may not use io_uring
	}
	return fromJob(r), err
}

func (s *session) measureFioSequential(ctx context.Context) (reading, error) {
	j, err := s.coldJob()
	if err != nil {
		return reading{}, err
	}
	j.BlockBytes, j.Depth, j.Random = sequentialBlock, sequentialDepth, false
	r, err := uringbench.Fio(ctx, j, uringbench.FioUring)
	if err != nil && ctx.Err() == nil {
		return reading{}, notMeasured("%w", err)
	}
	return fromJob(r), err
}

// measureVerify reads all shards from start to end, past the page cache.
func (s *session) measureVerify(ctx context.Context) (reading, error) {
	if err := s.cool(ctx); err != nil {
		return reading{}, err
	}
	began, used := monotonic(), ownCPU()
	v, err := s.dataset.VerifyShards(ctx, nil)
	r := reading{bytes: v.Bytes, elapsed: monotonic() - began, cpu: ownCPU() - used, mallocs: -1}
	if err == nil && v.Total > 0 {
		err = fmt.Errorf("%s: %s: lsiofs verify lists all of %d places", v.Findings[0].Shard, v.Findings[0].Reason, v.Total)
	}
	return r, err
}

func (s *session) measureEngine(ctx context.Context) (reading, error) {
	j, err := s.coldJob()
	if err != nil {
		return reading{}, err
	}
	r, err := uringbench.Run(ctx, j)
	if errors.Is(err, uringbench.ErrNotDirect) {
		return reading{}, notMeasured("%w", err)
	}
	return fromJob(r), err
}

func fromJob(r uringbench.Result) reading {
	return reading{bytes: r.Bytes, elapsed: time.Duration(r.Seconds * 1e9), cpu: time.Duration(r.CPUSeconds * 1e9), mallocs: -1}
}
