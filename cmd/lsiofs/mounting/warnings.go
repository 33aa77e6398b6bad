package mounting

import (
	"context"
	"fmt"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/inspect"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/order/quality"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// findWarnings returns warnings that the user should see before training starts. A shuffle from a
// checkpoint (resumed) can't be changed and was measured when the run began, so resuming does not
// wait for that measurement.
func findWarnings(ctx context.Context, d *pipeline.Dataset, counts []uint64, resumed bool) ([]string, error) {
	warnings := append(opening.DamageLines(d.Catalog().Damaged(), 5), opening.ReasonLines(d.Catalog().DamageReasons())...)
	s := d.Spec()
	warnings = append(warnings, d.Catalog().Selection().Notes...)
	if w := passedOver(d.Catalog()); w != "" {
		warnings = append(warnings, w)
	}
	if sample := s.Order.Sample; d.Records() == 0 && sample != (spec.Subsample{}) {
		return append(warnings, fmt.Sprintf("--sample %s selects none of the dataset's %s in epoch %d, so its worker files are empty: use a larger share",
			sample, terminal.Plural(d.Catalog().Records(), "record"), s.Epoch)), nil
	}
	if d.Records() == 0 {
		return append(warnings, fmt.Sprintf("--split %s --split-by %s selects none of the dataset's %s, so the worker files are empty: use a larger part, or split by record",
			s.Order.Split.Part, s.Order.Split.By, terminal.Plural(d.Catalog().Records(), "record"))), nil
	}
	if w := emptyWorkers(counts, s.Deal); w != "" {
		warnings = append(warnings, w)
	}
	if s.Order.Shuffle == spec.ShuffleNone || resumed || s.Mix.Asked() { // a mixture is not meant to be even
		return warnings, nil
	}
	m, err := inspect.MeasureMixing(ctx, d, quality.Poor)
	if err != nil {
		return warnings, err
	}
	if m.Poor() {
		warnings = append(warnings, fmt.Sprintf("the shuffle is poor: the expected χ²/df of shards in batches of %d is %.1f, "+
			"and %.1f in one worker's stream, where 1.0 is perfect; %s",
			quality.BatchRecords, m.Global.Value, m.Worker.Value, inspect.AdviceText(m.Advice)))
	}
	return warnings, nil
}

// passedOver returns a warning if at least as many files are skipped as read: folders of images,
// each with a text or an array next to it, are not meant as lines or rows. Other formats often have
// a file next to each shard.
func passedOver(c *catalog.Catalog) string {
	name := c.Format().Name
	if name != "lines" && name != "npy" || c.PassedOver() < c.Shards() {
		return ""
	}
	return fmt.Sprintf("%s of format %s found, and %s skipped: if each file is a sample, or files with the same name up to the dot are, use --format files; "+
		"otherwise name only the shards with a pattern",
		terminal.Plural(uint64(c.Shards()), "shard"), name, terminal.Plural(uint64(c.PassedOver()), "file"))
}

// emptyWorkers returns a warning about workers whose files hold no records because of the tail
// rule.
func emptyWorkers(counts []uint64, deal spec.Assignment) string {
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
	return fmt.Sprintf("--tail drop leaves %d of %d workers without records: a round of all workers takes %s, more than are left; "+
		"use --tail pad or keep, fewer workers, or a smaller --batch", empty, len(counts), terminal.Count(round))
}
