package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

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

// datasetRoot is the directory that a dataset lies in, absolute and without
// links, and whether its directories belong to the dataset too. It does not look
// at shards.
func datasetRoot(dataset string) (root string, recursive bool, err error) {
	if root, err = filepath.Abs(dataset); err != nil {
		return "", false, err
	}
	switch info, err := os.Stat(root); {
	case err == nil && info.IsDir():
		recursive = true
	case err == nil:
		root = filepath.Dir(root)
	default:
		recursive = strings.Contains(root, "**")
		for strings.ContainsAny(root, `*?[{`) {
			root = filepath.Dir(root)
		}
	}
	if resolved, err := filepath.EvalSymlinks(root); err == nil {
		root = resolved
	}
	return root, recursive, nil
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
