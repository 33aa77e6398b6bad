package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/order/quality"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// mixingLimit bounds the records whose order is computed to measure a shuffle:
// a tenth of a second or two, whatever the size of the dataset.
const mixingLimit = 1 << 21

// mixing is how well shards are mixed, and what would help.
type mixing struct {
	Global quality.Estimate `json:"global"`
	Worker quality.Estimate `json:"worker"`
	Advice []quality.Advice `json:"advice"`
}

// poor says whether a warning is due.
func (m mixing) poor() bool {
	return m.Global.Value > quality.Poor || m.Worker.Value > quality.Poor
}

// measureMixing measures the order of the spec's epoch from its start, and looks
// for advice where it is worse than good. Shuffle none is what was asked for:
// it gets no advice.
func measureMixing(ctx context.Context, d *pipeline.Dataset, good float64) (mixing, error) {
	s := d.Spec()
	starts := shardStarts(d)
	whole := spec.Deal{Workers: 1, Batch: s.Order.Batch, Dealing: spec.DealInterleaved, Tail: spec.TailKeep}
	m := mixing{Advice: []quality.Advice{}}
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

// measureWorker measures the stream of the first worker of a deal.
func measureWorker(ctx context.Context, d *pipeline.Dataset, deal spec.Deal, starts []uint64) (quality.Estimate, error) {
	s := d.Spec()
	set, err := d.Set(ctx, s.Epoch, nil, deal)
	if err != nil {
		return quality.Estimate{}, err
	}
	return quality.OfWorker(set.View(), 0, s.Order.SizeRecords, mixingLimit, starts), nil
}

// shardStarts are the numbers of the shards' first records, and of all records.
func shardStarts(d *pipeline.Dataset) []uint64 {
	c := d.Catalog()
	starts := make([]uint64, 0, c.Shards()+1)
	for i := range c.Shards() {
		starts = append(starts, c.Shard(i).First)
	}
	return append(starts, c.Records())
}

// adviceText says what would help.
func adviceText(advice []quality.Advice) string {
	if len(advice) == 0 {
		return "no setting of the shuffle helps"
	}
	parts := make([]string, len(advice))
	for i, a := range advice {
		parts[i] = fmt.Sprintf("%s %s gives %.1f", a.Flag, a.Value, a.Chi)
		if a.Value == string(spec.ShuffleFull) {
			parts[i] += " (at the price of a read a record)"
		}
	}
	return strings.Join(parts, "; ")
}

// mountWarnings is what a person should know before training starts. A shuffle
// that a checkpoint has brought (resumed) can't be changed any more, and was
// measured when the run began: going on must not wait for it.
func mountWarnings(ctx context.Context, d *pipeline.Dataset, counts []uint64, resumed bool) ([]string, error) {
	warnings := append(damageLines(d.Catalog().Damaged(), 5), reasonLines(d.Catalog().DamageReasons())...)
	s := d.Spec()
	if w := passedOver(d.Catalog()); w != "" {
		warnings = append(warnings, w)
	}
	if d.Records() == 0 {
		return append(warnings, fmt.Sprintf("--split %s --split-by %s leaves none of the dataset's %s: the worker files are empty; take a larger part, or split by record",
			s.Order.Split.Part, s.Order.Split.By, terminal.Plural(d.Catalog().Records(), "record"))), nil
	}
	if w := emptyWorkers(counts, s.Deal); w != "" {
		warnings = append(warnings, w)
	}
	if s.Order.Shuffle == spec.ShuffleNone || resumed {
		return warnings, nil
	}
	m, err := measureMixing(ctx, d, quality.Poor)
	if err != nil {
		return warnings, err
	}
	if m.poor() {
		warnings = append(warnings, fmt.Sprintf("the shuffle is poor: shards in a batch of %d are expected with χ²/df %.1f, "+
			"in one worker's stream %.1f, where 1.0 is perfect; %s",
			quality.BatchRecords, m.Global.Value, m.Worker.Value, adviceText(m.Advice)))
	}
	return warnings, nil
}

// passedOver is a warning about files that are not read, where they are as many as those that are: folders of
// images with a text or an array beside each are not meant as lines or rows. Other
// formats often have a file beside each shard.
func passedOver(c *catalog.Catalog) string {
	name := c.Format().Name
	if name != "lines" && name != "npy" || c.PassedOver() < c.Shards() {
		return ""
	}
	return fmt.Sprintf("read are %s of format %s, and %s passed over: if each file is a sample, or those with one name up to the dot are, use --format files; "+
		"if not, a pattern that names the shards alone says so",
		terminal.Plural(uint64(c.Shards()), "shard"), name, terminal.Plural(uint64(c.PassedOver()), "file"))
}

// emptyWorkers is a warning about workers whose files hold no records, where
// the tail rule is the reason.
func emptyWorkers(counts []uint64, deal spec.Deal) string {
	if deal.Tail != spec.TailDrop {
		return ""
	}
	empty := 0
	for _, n := range counts {
		if n == 0 {
			empty++
		}
	}
	if empty == 0 {
		return ""
	}
	round := deal.Workers * deal.Batch
	if deal.Dealing == spec.DealContiguous {
		round = deal.Workers
	}
	return fmt.Sprintf("--tail drop leaves %d of %d workers no records: a round of all workers takes %s, and fewer are left; "+
		"use --tail pad or keep, fewer workers, or a smaller --batch", empty, len(counts), terminal.Count(round))
}
