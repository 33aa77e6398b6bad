package gather

import (
	"context"

	"github.com/lsiofs/lsiofs/pipeline/plan"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/pinned"
)

// Forecast is what gathering a reader's next records takes.
type Forecast struct {
	ReadBytes int64
	GapBytes  int64       // read and thrown away
	Config    plan.Config // that reads are planned by
}

// askedRecords is how many records a reader's first call asks for, as package
// stream does.
const askedRecords = 256

// ForecastReads goes through records 0 … n-1 of a sequence, whose shards are not
// compressed, and calls read with the size of each storage read that gathering
// them takes: planned as a reader does that reads on, in calls for askedRecords,
// while no other is open. A stream's reader whose blocks are filled ahead of it
// asks at a second place at times; its stretches then begin and end elsewhere, and
// when depends on who is first, so that is not counted.
//
// Of the configuration it uses Index, Plan, Ahead and the sizes of Memory, of which it takes
// none. It reads nothing itself. It ends early with the context's error.
func ForecastReads(ctx context.Context, config Config, seq pinned.Sequence, n uint64, read func(sizeBytes int64)) (Forecast, error) {
	budgetBytes, blockBytes := config.Memory.BudgetBytes(), config.Memory.BlockBytes
	p, err := newPlanner(config.Plan, blockBytes, objectBytes(config.Index))
	if err != nil {
		return Forecast{}, err
	}
	c := Forecast{Config: p.planner.Config()}
	seq = firstOf{seq, min(n, seq.Len())}
	bytes, records, next := blockBytes, askedRecords, config.Ahead.FirstStretchBytes
	for k := uint64(0); k < seq.Len(); {
		if err := ctx.Err(); err != nil {
			return c, err
		}
		p.reset()
		_ = p.fill(config.Index, seq, k, bytes, records, func(from uint64, bytes int64) (*batch, error) {
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
		bytes, records, next = next, maxStretchRecords, nextStretch(next, config.Ahead.StretchBytes, budgetBytes, blockBytes)
	}
	c.GapBytes += c.ReadBytes
	return c, nil
}

// firstOf is the beginning of a sequence.
type firstOf struct {
	pinned.Sequence
	n uint64
}

func (s firstOf) Len() uint64 { return s.n }
func (s firstOf) Records(k uint64, dst []uint64) int {
	if k >= s.n {
		return 0
	}
	return s.Sequence.Records(k, dst[:min(uint64(len(dst)), s.n-k)])
}
