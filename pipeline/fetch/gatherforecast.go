package fetch

import (
	"context"

	"github.com/lsiofs/lsiofs/pipeline/fetch/budget"
	"github.com/lsiofs/lsiofs/pipeline/plan"
)

// GatherForecast is what gathering a reader's next records takes.
type GatherForecast struct {
	ReadBytes int64
	GapBytes  int64 // read and thrown away
	Config    plan.Config
}

// askedRecords is how many records a reader's first call asks for, as package
// stream does.
const askedRecords = lendBlock

// ForecastGather goes through records 0 … n-1 of a sequence, whose shards are not
// compressed, and calls read with the size of each storage read that gathering
// them takes: planned as a reader does that reads on, in calls for askedRecords,
// while no other is open. A stream's reader whose blocks are filled ahead of it
// asks at a second place at times; its stretches then begin and end elsewhere, and
// when depends on who is first, so that is not counted. It reads nothing itself. It ends early with the
// context's error.
func (f *Fetcher) ForecastGather(ctx context.Context, seq Sequence, n uint64, read func(sizeBytes int64)) (GatherForecast, error) {
	cacheBytes := f.limits.cache
	blockBytes := budget.NewBlocks(cacheBytes).BlockBytes
	p, err := newPlanner(f.config, blockBytes, f.objectBytes())
	if err != nil {
		return GatherForecast{}, err
	}
	c := GatherForecast{Config: p.planner.Config()}
	seq = firstOf{seq, min(n, seq.Len())}
	bytes, records, next := blockBytes, askedRecords, f.config.Storage.Ahead.FirstStretchBytes
	for k := uint64(0); k < seq.Len(); {
		if err := ctx.Err(); err != nil {
			return c, err
		}
		p.reset()
		_ = p.fill(f.index, seq, k, bytes, records, func(from uint64, bytes int64) (*batch, error) {
			b := new(batch)
			b.init(budget.Block{}, (max(bytes, 1)+blockBytes-1)/blockBytes*blockBytes, from)
			return b, nil
		})
		if len(p.batches) == 0 {
			break // the sequence is shorter than it says
		}
		pl, err := p.planner.Plan(p.request)
		if err != nil {
			return c, err
		}
		left := len(p.batches) + 1
		p.cut(pl, func() bool { left--; return left >= 0 })
		for i := range p.cuts {
			read(p.cuts[i].size)
			c.ReadBytes += p.cuts[i].size
		}
		c.GapBytes -= pl.Totals.UsefulBytes
		k = p.batches[len(p.batches)-1].end()
		bytes, records, next = next, maxStretchRecords, nextStretch(next, f.config.Storage.Ahead.StretchBytes, cacheBytes, blockBytes)
	}
	c.GapBytes += c.ReadBytes
	return c, nil
}

// firstOf is the beginning of a sequence.
type firstOf struct {
	Sequence
	n uint64
}

func (s firstOf) Len() uint64 { return s.n }
func (s firstOf) Records(k uint64, dst []uint64) int {
	if k >= s.n {
		return 0
	}
	return s.Sequence.Records(k, dst[:min(uint64(len(dst)), s.n-k)])
}
