package listing

import (
	"context"
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// Coordinate is an array that says what the elements along a dimension stand for: one of one
// dimension, which has the dimension's name and length, and lies beside an array that crops are cut
// from.
type Coordinate struct {
	Dim   string
	Path  string // below the storage's root
	Array *zarr.Array
}

// MaxCoordinateBytes bounds a coordinate. 64 MiB are 8 million times.
const MaxCoordinateBytes = 64 << 20

// Coordinates are those of a cube's arrays, in the order of their dimensions. What can't be read,
// or is larger than MaxCoordinateBytes, is left out: crops need none of them.
func Coordinates(ctx context.Context, under storage.Storage, c *Cube) ([]Coordinate, error) {
	f := &finder{Config: Config{Under: under}}
	var list []Coordinate
	for k := range c.Fields {
		x := &c.Fields[k]
		if x.Path == c.root {
			continue // an array by itself has nothing beside it
		}
		for d, name := range x.Array.Dims {
			at := join(parent(x.Path), name)
			known := slices.ContainsFunc(list, func(o Coordinate) bool { return o.Dim == name })
			if known || name == "" || zarr.CheckPath(name) != nil || strings.Contains(name, "/") || at == x.Path {
				continue
			}
			n, err := f.nodeAt(ctx, at)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err != nil || n == nil || !n.isArray {
				continue
			}
			a, err := n.array()
			if err != nil || len(a.Shape) != 1 || a.Shape[0] != x.Array.Shape[d] || a.Shape[0] == 0 ||
				a.Shape[0] > MaxCoordinateBytes/int64(a.Type.ItemBytes) {
				continue
			}
			list = append(list, Coordinate{Dim: name, Path: at, Array: a})
		}
	}
	return list, nil
}

// Below is the path of something in c, below its hierarchy.
func (c *Cube) Below(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, c.root), "/")
}

// Matches is Config.Match for c alone.
func (c *Cube) Matches(path string, isDir bool) bool {
	if c.root == "" {
		return true
	}
	return path == c.root || isDir && (path == "." || strings.HasPrefix(c.root, path+"/"))
}
