package listing

import (
	"context"
	"fmt"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// suggestDirectories is a fraction of a second's look.
const suggestDirectories = 1000

// Suggest says what to type for crops of the hierarchy that a storage's root is, or that lies at
// a path below it that matches; ok is false where there is none. It looks into suggestDirectories
// directories at most.
func Suggest(ctx context.Context, under storage.Storage, match func(path string, isDir bool) bool) (flags string, ok bool) {
	f := &finder{Config: Config{Under: under, Match: match}, maxDirectories: suggestDirectories}
	list, err := f.hierarchies(ctx)
	if err != nil || len(list) == 0 {
		return "", false
	}
	nodes, err := f.arrays(ctx, list[0])
	if err != nil {
		return "", false
	}
	var best *node
	var array *zarr.Array
	large := 0
	for _, n := range nodes {
		a, err := n.array()
		if err != nil || len(a.Shape) == 0 {
			continue
		}
		if array == nil || len(a.Shape) > len(array.Shape) {
			best, array, large = n, a, 0
		}
		if len(a.Shape) == len(array.Shape) {
			large++
		}
	}
	if array == nil {
		return "--format zarr --crop DIM=N,…", true
	}
	text := "--format zarr"
	if large > 1 {
		text += " --array " + strings.TrimPrefix(strings.TrimPrefix(best.path, list[0].path), "/")
	}
	var parts []string
	for d, n := range array.Shape {
		crop := max(min(n, 2*array.Brick[d]), 1)
		if array.Dims == nil || array.Dims[d] == "" {
			parts = append(parts, fmt.Sprint(crop))
		} else {
			parts = append(parts, fmt.Sprintf("%s=%d", array.Dims[d], crop))
		}
	}
	return text + " --crop " + strings.Join(parts, ","), true
}
