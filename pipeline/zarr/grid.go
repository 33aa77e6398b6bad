package zarr

import (
	"fmt"
	"strings"
)

// Grid is a grid of equal boxes over an array: its objects, or its chunks.
type Grid struct {
	// Edges are the edges of a box, in elements.
	Edges []int64
	// Counts are the numbers of boxes along each dimension. The last ones may extend past the
	// array's edge.
	Counts []int64
}

// Objects returns the grid of a's objects.
func (a *Array) Objects() Grid { return Grid{a.Object, gridCounts(a.Shape, a.Object)} }

// Chunks returns the grid of a's chunks. Only chunks that have elements of the array are counted.
func (a *Array) Chunks() Grid { return Grid{a.Chunk, gridCounts(a.Shape, a.Chunk)} }

// Total returns the number of boxes.
func (g Grid) Total() int64 { return product(g.Counts) }

// Number returns the index of a box in C order.
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

// ObjectOf writes the place of the object that holds a chunk into object; chunk is a place in the
// grid of chunks.
func (a *Array) ObjectOf(object, chunk []int64) {
	for d := range chunk {
		object[d] = chunk[d] / (a.Object[d] / a.Chunk[d])
	}
}

// EntryOf returns the number of the entry, in an index of the level, that leads to a chunk. Unless
// the level is the last, the entry is that of an object of the next level.
func (a *Array) EntryOf(level int, chunk []int64) int64 {
	l := a.Levels[level]
	n := int64(0)
	for d := range chunk {
		inObject := chunk[d] % (l.Object[d] / a.Chunk[d])
		n = n*(l.Object[d]/l.Chunk[d]) + inObject/(l.Chunk[d]/a.Chunk[d])
	}
	return n
}

// ShardOf returns the number of the shard of the level that holds a chunk, in C order of all shards
// of that level in all objects.
func (a *Array) ShardOf(level int, chunk []int64) int64 {
	l := a.Levels[level]
	n := int64(0)
	for d := range chunk {
		n = n*((a.Shape[d]+l.Object[d]-1)/l.Object[d]) + chunk[d]/(l.Object[d]/a.Chunk[d])
	}
	return n
}

// ShapeText formats a shape for people: "time=512, 1024".
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
