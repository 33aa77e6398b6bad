package zarr

import (
	"fmt"
	"strings"
)

// Grid is a grid of boxes of one shape over an array: its objects, or its bricks.
type Grid struct {
	// Edges are a box's, in elements.
	Edges []int64
	// Counts are the boxes along each dimension. Those at the end may stick out.
	Counts []int64
}

// Objects is the grid of a's objects.
func (a *Array) Objects() Grid { return Grid{a.Object, gridCounts(a.Shape, a.Object)} }

// Bricks is the grid of a's bricks. Only those that have elements of the array are counted.
func (a *Array) Bricks() Grid { return Grid{a.Brick, gridCounts(a.Shape, a.Brick)} }

// Total is the number of boxes.
func (g Grid) Total() int64 { return product(g.Counts) }

// Number is a box's place in C order.
func (g Grid) Number(place []int64) int64 { return number64(place, g.Counts) }

// Place is the inverse of Number: it writes the place of a box into place.
func (g Grid) Place(place []int64, number int64) { place64(place, number, g.Counts) }

func number64(place, counts []int64) int64 {
	n := int64(0)
	for d, i := range place {
		n = n*counts[d] + i
	}
	return n
}

func place64(place []int64, number int64, counts []int64) {
	for d := len(counts) - 1; d >= 0; d-- {
		place[d] = number % counts[d]
		number /= counts[d]
	}
}

// ObjectOf writes into object the place of the object that has a brick; brick is a place in
// the grid of bricks.
func (a *Array) ObjectOf(object, brick []int64) {
	for d := range brick {
		object[d] = brick[d] / (a.Object[d] / a.Brick[d])
	}
}

// EntryOf is the number of the index entry, of the level, through which a brick is reached. The
// bricks of a level that is not the last are the objects of the next one.
func (a *Array) EntryOf(level int, brick []int64) int64 {
	l := a.Levels[level]
	n := int64(0)
	for d := range brick {
		inObject := brick[d] % (l.Object[d] / a.Brick[d])
		n = n*(l.Object[d]/l.Brick[d]) + inObject/(l.Brick[d]/a.Brick[d])
	}
	return n
}

// ShardOf is the number of the shard, of the level, that has a brick: in C order of all shards of that
// level, in whatever object they lie.
func (a *Array) ShardOf(level int, brick []int64) int64 {
	l := a.Levels[level]
	n := int64(0)
	for d := range brick {
		n = n*((a.Shape[d]+l.Object[d]-1)/l.Object[d]) + brick[d]/(l.Object[d]/a.Brick[d])
	}
	return n
}

// ShapeText is a shape for people: "time=512, 1024".
func ShapeText(shape []int64, dims []string) string {
	list := make([]string, len(shape))
	for i, n := range shape {
		list[i] = fmt.Sprint(n)
		if dims != nil && dims[i] != "" {
			list[i] = fmt.Sprintf("%s=%d", dims[i], n)
		}
	}
	return strings.Join(list, ", ")
}
