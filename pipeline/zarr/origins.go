package zarr

import (
	"fmt"
	"slices"
)

// Axis describes where crops may be along one dimension. All numbers are in elements of the array.
type Axis struct {
	// Name is the name of the dimension, for errors.
	Name string
	// Length is the array's extent, and Edge that of its chunks.
	Length, Edge int64
	// Begin and End bound the region in which crops lie.
	Begin, End int64
	// Crop is the number of elements of a crop, Step the distance between them, and Stride the
	// distance between neighbouring origins.
	Crop, Step, Stride int64
	// Wrap lets crops continue at the beginning of the dimension when they reach its end. The
	// region is the whole dimension.
	Wrap bool
}

// Extent returns the length of a crop: from its first element to its last, inclusive.
func (a Axis) Extent() int64 { return (a.Crop-1)*a.Step + 1 }

// check returns an error if an axis is invalid.
func (a Axis) check() error {
	for _, n := range []struct {
		name           string
		is, low, below int64
	}{
		{"length", a.Length, 0, MaxEdge}, {"chunk edge", a.Edge, 1, MaxEdge}, {"crop", a.Crop, 1, MaxEdge},
		{"step", a.Step, 1, MaxEdge}, {"stride", a.Stride, 1, MaxEdge},
	} {
		if n.is < n.low || n.is >= n.below {
			return fmt.Errorf("%s: the %s must be from %d to %d, is %d", a.Name, n.name, n.low, n.below-1, n.is)
		}
	}
	if a.Begin < 0 || a.Begin > a.End || a.End > a.Length {
		return fmt.Errorf("%s: the region %d:%d is not inside 0:%d", a.Name, a.Begin, a.End, a.Length)
	}
	whole := a.Begin == 0 && a.End == a.Length
	if a.Wrap && !whole {
		return fmt.Errorf("%s: crops can't wrap around in a part of the dimension: leave out --select or --wrap", a.Name)
	}
	// Step and Crop may be large: don't multiply them before this check.
	if a.Crop > 1 && a.Step > (MaxEdge-1)/(a.Crop-1) || a.Wrap && a.Extent() > a.Length {
		return fmt.Errorf("%s: crops of %d elements, each %d after the one before, don't fit into %d: ask for smaller crops or a smaller --step", a.Name, a.Crop, a.Step, a.Length)
	}
	return nil
}

// positions returns the number of origins along an axis. With cover there is one more if the
// strides leave a rest. If a crop is longer than its region, there are none.
func (a Axis) positions(cover bool) int64 {
	if a.Wrap {
		return (a.Length + a.Stride - 1) / a.Stride
	}
	room := a.End - a.Begin - a.Extent()
	if room < 0 {
		return 0
	}
	n := room/a.Stride + 1
	if cover && room%a.Stride > 0 {
		n++
	}
	return n
}

// origin returns the origin of a position.
func (a Axis) origin(position int64) int64 {
	at := a.Begin + position*a.Stride
	if last := a.End - a.Extent(); !a.Wrap && at > last {
		return last
	}
	return at
}

// room returns how many places jitter can choose from: an origin moves by 0 … room-1.
func (a Axis) room(origin int64) int64 {
	if a.Wrap {
		return min(a.Stride, a.Length-origin)
	}
	return min(a.Stride, a.End-a.Extent()-origin+1)
}

// MaxCrops bounds the crops of a cube.
const MaxCrops = 1_000_000_000

// Origins are the crops of a cube on a grid, numbered in bisection order.
type Origins struct {
	axes   []Axis
	counts []int64
	order  *Bisection
}

// NewOrigins returns the grid of origins of axes, which are those of the cube's first field. With
// cover, the last crop along an axis ends at the end of the region.
func NewOrigins(axes []Axis, cover bool) (*Origins, error) {
	if len(axes) > MaxDims {
		return nil, fmt.Errorf("there are %d dimensions, more than %d", len(axes), MaxDims)
	}
	o := &Origins{axes: slices.Clone(axes)}
	var strides, edges []int64
	for _, a := range axes {
		if err := a.check(); err != nil {
			return nil, err
		}
		o.counts = append(o.counts, a.positions(cover))
		strides, edges = append(strides, a.Stride), append(edges, a.Edge)
	}
	if _, ok := productUpTo(MaxCrops, o.counts...); !ok {
		return nil, fmt.Errorf("there are more than %d crops, %v along the dimensions: use a longer --stride, and --jitter to see all places", int64(MaxCrops), o.counts)
	}
	var err error
	o.order, err = NewBisection(o.counts, strides, edges)
	return o, err
}

// Total returns the number of crops.
func (o *Origins) Total() uint64 { return o.order.Total() }

// Counts returns the number of positions along each dimension. Callers must not modify it.
func (o *Origins) Counts() []int64 { return o.counts }

// Position writes the position of a crop into position.
func (o *Origins) Position(position []int64, ordinal uint64) { o.order.Position(position, ordinal) }

// Ordinal is the inverse of Position.
func (o *Origins) Ordinal(position []int64) uint64 { return o.order.Number(position) }

// Row returns the index of a position in C order.
func (o *Origins) Row(position []int64) int64 { return number64(position, o.counts) }

// Origin writes the first element of the crop at a position into origin, which may be
// position.
func (o *Origins) Origin(origin, position []int64) {
	for d, a := range o.axes {
		origin[d] = a.origin(position[d])
	}
}
