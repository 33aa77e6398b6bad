package main

import (
	"context"
	"fmt"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// openEndTime is how long a dataset that is being opened has to end when the user
// wants no more: to keep what has been indexed so far.
const openEndTime = 5 * time.Second

// openDataset opens a dataset and gives its errors a code. The log is g's. When ctx
// ends and storage does not answer, it is not waited for: the process ends.
func openDataset(ctx context.Context, g *globals, s spec.Spec, o pipeline.Options) (*pipeline.Dataset, error) {
	o.Log = g.log()
	type opened struct {
		d   *pipeline.Dataset
		err error
	}
	done := make(chan opened, 1)
	go func() {
		d, err := pipeline.Open(ctx, s, o)
		done <- opened{d, err}
	}()
	select {
	case r := <-done:
		return r.d, exit.With(exit.Dataset, r.err)
	case <-ctx.Done():
	}
	limit := time.NewTimer(openEndTime)
	defer limit.Stop()
	select {
	case r := <-done:
		return r.d, exit.With(exit.Dataset, r.err)
	case <-limit.C:
		o.Log.Warn("storage does not answer: what it still owes is not waited for")
		return nil, ctx.Err()
	}
}

// openShowing is openDataset with progress on the ui.
func openShowing(ctx context.Context, g *globals, s spec.Spec, rebuild bool) (*pipeline.Dataset, error) {
	v := newProgressView(g.ui)
	defer v.clear()
	return openDataset(ctx, g, s, pipeline.Options{Progress: v.show, Rebuild: rebuild})
}

// damageLines names what --on-corrupt skip left out, at most limit shards.
func damageLines(damaged []catalog.Damage, limit int) []string {
	var lines []string
	for i, d := range damaged {
		if i == limit {
			lines = append(lines, fmt.Sprintf("… and %d more damaged shards (lsiofs inspect lists them all)", len(damaged)-limit))
			break
		}
		lines = append(lines, "left out of "+damageText(d))
	}
	return lines
}

// damageText is a shard's first damage, and how many more there are.
func damageText(d catalog.Damage) string {
	text := fmt.Sprintf("%s: %v", d.Path, d.Errors[0])
	if n := d.Count(); n > 1 {
		text += fmt.Sprintf(", and %s more", terminal.Count(n-1))
	}
	return text
}

// reasonLines says how often something was left out for which reason, where that
// was more than once.
func reasonLines(list []unpack.Reason) []string {
	var lines []string
	for _, r := range list {
		if r.Count > 1 {
			lines = append(lines, fmt.Sprintf("left out %s times: %s", terminal.Count(r.Count), r.Text))
		}
	}
	return lines
}
