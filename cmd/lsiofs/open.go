package main

import (
	"context"
	"fmt"

	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// openDataset opens a dataset and gives its errors a code. The log is g's.
func openDataset(ctx context.Context, g *globals, s spec.Spec, o pipeline.Options) (*pipeline.Dataset, error) {
	o.Log = g.log()
	d, err := pipeline.Open(ctx, s, o)
	return d, coded(exitDataset, err)
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
		lines = append(lines, fmt.Sprintf("left out of %s: %v", d.Path, d.Error))
	}
	return lines
}
