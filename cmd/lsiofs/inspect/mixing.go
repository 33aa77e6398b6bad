package inspect

import (
	"context"
	"fmt"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/order/quality"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// mixingLimit bounds the number of records whose order is computed to measure a shuffle. It takes
// one or two tenths of a second, whatever the size of the dataset.
const mixingLimit = 1 << 21

// Mixing is how well shards are mixed, and what would improve it.
type Mixing struct {
	Global quality.Estimate `json:"global"`
	Worker quality.Estimate `json:"worker"`
	Advice []quality.Advice `json:"advice"`
}

// Poor reports whether the mixing deserves a warning.
func (m Mixing) Poor() bool {
	return m.Global.Value > quality.Poor || m.Worker.Value > quality.Poor
}

// MeasureMixing measures the order of the spec's epoch from its start, and looks for advice if it
// is worse than good. Shuffle none gets no advice, because the user asked for it.
func MeasureMixing(ctx context.Context, d *pipeline.Dataset, good float64) (Mixing, error) {
	s := d.Spec()
	starts := ShardStarts(d)
	whole := spec.Assignment{Workers: 1, Batch: s.Order.Batch, Dealing: spec.DealInterleaved, Tail: spec.TailKeep}
	m := Mixing{Advice: []quality.Advice{}}
	var err error
	if m.Global, err = measureWorker(ctx, d, whole, starts); err != nil {
		return m, err
	}
	m.Worker = m.Global
	if s.Deal.Workers > 1 {
		deal := s.Deal
		deal.Tail = spec.TailKeep
		if m.Worker, err = measureWorker(ctx, d, deal, starts); err != nil {
			return m, err
		}
	}
	if max(m.Global.Value, m.Worker.Value) <= good {
		return m, nil
	}
	advice, err := quality.Advise(quality.Subject{ShardStarts: starts, Part: d.Part(), ChunkStarts: d.ChunkStarts}, s.Order, s.Epoch, good)
	if advice != nil {
		m.Advice = advice
	}
	return m, err
}

// measureWorker measures the stream of a deal's first worker.
func measureWorker(ctx context.Context, d *pipeline.Dataset, deal spec.Assignment, starts []uint64) (quality.Estimate, error) {
	s := d.Spec()
	set, err := d.Set(ctx, s.Epoch, nil, deal)
	if err != nil {
		return quality.Estimate{}, err
	}
	return quality.OfWorker(set.View(), 0, s.Order.SizeRecords, mixingLimit, starts), nil
}

// ShardStarts returns the numbers of the shards' first records, followed by the number of all
// records.
func ShardStarts(d *pipeline.Dataset) []uint64 {
	c := d.Catalog()
	starts := make([]uint64, 0, c.Shards()+1)
	for i := range c.Shards() {
		starts = append(starts, c.Shard(i).First)
	}
	return append(starts, c.Records())
}

// AdviceText describes what would improve the mixing.
func AdviceText(advice []quality.Advice) string {
	if len(advice) == 0 {
		return "no shuffle setting improves it"
	}
	parts := make([]string, len(advice))
	for i, a := range advice {
		parts[i] = fmt.Sprintf("%s %s gives %.1f", a.Flag, a.Value, a.Chi)
		if a.Value == string(spec.ShuffleFull) {
			parts[i] += " (but takes one read per record)"
		}
	}
	return strings.Join(parts, "; ")
}
