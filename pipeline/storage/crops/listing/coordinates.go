package listing

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// Coordinate is a one-dimensional array that describes the positions along a dimension, such as
// times or latitudes. It has the dimension's name and length, and is in the same group as an array
// that crops are cut from.
type Coordinate struct {
	Dim   string
	Path  string // below the storage's root or, from CoordinatesBeside, below the group
	Array *zarr.Array
	// LeftOut is why the array of the dimension's name can't be read as its coordinate; nil if it
	// can. Array may be nil then.
	LeftOut error
}

// MaxCoordinateBytes bounds a coordinate. 64 MiB hold 8 million times.
const MaxCoordinateBytes = 64 << 20

// Coordinates returns the coordinates of a cube's arrays, in the order of their dimensions. A
// coordinate that can't be read, or is larger than MaxCoordinateBytes or a quarter of memoryBytes
// (0: no bound), is not an error, since no crop needs it: it is listed with LeftOut. An array of
// another length or with more dimensions is not a coordinate, and is not listed.
func Coordinates(ctx context.Context, under storage.Storage, c *Grid, memoryBytes int64) ([]Coordinate, error) {
	f := newFinder(Config{Under: under, MemoryBytes: memoryBytes})
	var list []Coordinate
	for k := range c.Fields {
		x := &c.Fields[k]
		if x.Path == "" || x.Path == c.root && !f.isGroup(ctx, parent(x.Path)) {
			continue // the group of an array served by itself is not in this storage
		}
		if err := f.coordinates(ctx, x, parent(x.Path), &list); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// CoordinatesBeside is Coordinates for a cube that is an array by itself, so that its directory is
// the root of the storage below. group is the storage of the parent directory. If that is not a
// group, there are no coordinates.
func CoordinatesBeside(ctx context.Context, group storage.Storage, c *Grid, memoryBytes int64) (list []Coordinate, err error) {
	f := newFinder(Config{Under: group, MemoryBytes: memoryBytes})
	if !c.Alone() || !f.isGroup(ctx, "") {
		return nil, ctx.Err()
	}
	return list, f.coordinates(ctx, &c.Fields[0], "", &list)
}

// Alone reports whether c is an array at its storage's root.
func (c *Grid) Alone() bool { return len(c.Fields) > 0 && c.Fields[0].Path == "" }

// isGroup reports whether a directory is a group.
func (f *finder) isGroup(ctx context.Context, at string) bool {
	n, err := f.nodeAt(ctx, at)
	return err == nil && n != nil && !n.isArray
}

// coordinates adds the coordinates of a field in a group, except for dimensions already in the
// list.
func (f *finder) coordinates(ctx context.Context, x *Field, group string, list *[]Coordinate) error {
	most := int64(MaxCoordinateBytes)
	if f.MemoryBytes > 0 {
		most = min(most, f.MemoryBytes/4)
	}
	for d, name := range x.Array.Dims {
		at := join(group, name)
		known := slices.ContainsFunc(*list, func(o Coordinate) bool { return o.Dim == name })
		if known || name == "" || zarr.CheckPath(name) != nil || strings.Contains(name, "/") || at == x.Path {
			continue
		}
		n, err := f.nodeAt(ctx, at)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil && (n == nil || !n.isArray) {
			continue
		}
		c := Coordinate{Dim: name, Path: at, LeftOut: err}
		if err == nil {
			c.Array, c.LeftOut = n.array()
		}
		if c.LeftOut == nil {
			if len(c.Array.Shape) != 1 || c.Array.Shape[0] != x.Array.Shape[d] || c.Array.Shape[0] == 0 {
				continue
			}
			if item := int64(c.Array.Type.ItemBytes); c.Array.Shape[0] > most/item {
				c.LeftOut = tooLarge(at, c.Array.Shape[0], item, most)
			}
		}
		*list = append(*list, c)
	}
	return nil
}

// tooLarge returns why a coordinate of n elements is left out.
func tooLarge(path string, n, itemBytes, mostBytes int64) error {
	why := "a quarter of --memory"
	if mostBytes == MaxCoordinateBytes {
		why = "the most that is read of coordinates"
	}
	return fmt.Errorf("array %s: %d elements of %d bytes are more than %d bytes, %s", path, n, itemBytes, mostBytes, why)
}

// Group returns how to read a coordinate's array alone in c's storage: the array's path in its
// hierarchy, and a function that matches this hierarchy.
func (c *Grid) Group(x Coordinate) (path string, match func(path string, isDir bool) bool) {
	root := c.root
	if c.root != "" && len(c.Fields) == 1 && c.Fields[0].Path == c.root {
		root = parent(c.root) // an array by itself, in a group
	}
	return relative(root, x.Path), func(path string, isDir bool) bool {
		if root == "" {
			return true
		}
		return path == root || isDir && (path == "." || strings.HasPrefix(root, path+"/"))
	}
}
