package main

import (
	"context"
	"fmt"

	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// openDataset opens a dataset and gives its errors a code. progress may be nil.
func openDataset(ctx context.Context, g *globals, s spec.Spec, rebuild bool, progress func(catalog.Progress)) (*pipeline.Dataset, error) {
	d, err := pipeline.Open(ctx, s, pipeline.Options{Log: g.log(), Progress: progress, Rebuild: rebuild})
	return d, coded(exitDataset, err)
}

// openShowing is openDataset with progress on the ui.
func openShowing(ctx context.Context, g *globals, s spec.Spec, rebuild bool) (*pipeline.Dataset, error) {
	v := newProgressView(g.ui)
	defer v.clear()
	return openDataset(ctx, g, s, rebuild, v.show)
}

// damageLines names what --on-corrupt skip left out, at most limit shards.
func damageLines(damaged []catalog.Damage, limit int) []string {
	var lines []string
	for i, d := range damaged {
		if i == limit {
			lines = append(lines, fmt.Sprintf("… and %d more damaged shards (lsiofs inspect lists them all)", len(damaged)-limit))
			break
		}
		lines = append(lines, fmt.Sprintf("left out of %s: %v", d.Path, d.Error))
	}
	return lines
}
