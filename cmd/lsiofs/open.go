package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// openDataset opens a dataset and gives its errors a code. progress may be nil.
func openDataset(ctx context.Context, g *globals, s spec.Spec, rebuild bool, progress func(catalog.Progress)) (*pipeline.Dataset, error) {
	d, err := pipeline.Open(ctx, s, pipeline.Options{Log: g.log(), Progress: progress, Rebuild: rebuild})
	if err != nil && !isCancellation(err) {
		return nil, coded(exitDataset, err)
	}
	return d, err
}

// openShowing is openDataset with progress on the ui.
func openShowing(ctx context.Context, g *globals, s spec.Spec, rebuild bool) (*pipeline.Dataset, error) {
	v := newProgressView(g.ui)
	defer v.clear()
	return openDataset(ctx, g, s, rebuild, v.show)
}

// datasetRoot is the directory that a dataset's names are relative to, found
// without looking at its shards: the longest leading directory of a pattern
// that has no pattern in it. For a single file it is the file's directory.
func datasetRoot(dataset string, isDir func(string) bool) string {
	if isDir(dataset) {
		return filepath.Clean(dataset)
	}
	root := dataset
	if i := strings.IndexAny(dataset, `*?[{\`); i >= 0 {
		root = dataset[:i]
		if strings.HasSuffix(root, "/") && len(root) > 1 {
			return filepath.Clean(root)
		}
	}
	return filepath.Dir(root)
}

// inside says whether path is dir or lies below it. Both are absolute and clean.
func inside(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
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
