package zarr

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/order"
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

// Bisection is an order of the positions of a grid. The box of all positions is halved along the
// side that spans the most chunks, and so on recursively until one position is left; the first half
// comes first. So any run of consecutive positions is compact.
//
// In a box with g positions along each dimension, the side to halve is the one with g > 1 and the
// greatest g·stride/chunk; among equal ones, the first. The first half has ⌈g/2⌉ positions.
type Bisection struct {
	counts          []int64
	strides, chunks []int64
	total           uint64
}

// NewBisection returns the order of a grid of counts, whose neighbours are strides elements apart,
// over chunks of the given edges. All numbers are below MaxEdge, and strides and chunks are at
// least 1. It returns an error if there are more than 2⁶³-1 positions.
func NewBisection(counts, strides, chunks []int64) (*Bisection, error) {
	total, ok := productUpTo(math.MaxInt64, counts...)
	if !ok {
		return nil, fmt.Errorf("there are more than 2^63 positions: use longer steps in --stride")
	}
	return &Bisection{counts, strides, chunks, total}, nil
}

// Total returns the number of positions.
func (b *Bisection) Total() uint64 { return b.total }

// box is a box of positions on the way down. Its size is fixed, so that descents don't allocate.
type box struct {
	low, count [MaxDims]int64
	positions  uint64
}

func (b *Bisection) whole() box {
	x := box{positions: b.total}
	copy(x.count[:], b.counts)
	return x
}

// side returns the side of x to halve next, or -1 if x is one position.
func (b *Bisection) side(x *box) int {
	best := -1
	for d := range b.counts {
		if x.count[d] > 1 && (best < 0 || b.longer(x, d, best)) {
			best = d
		}
	}
	return best
}

// longer reports whether x spans more chunks along d than along e: g_d·s_d·k_e > g_e·s_e·k_d. Both
// products fit in 128 bits: g·s is below 2⁴⁹, because positions are within an array.
func (b *Bisection) longer(x *box, d, e int) bool {
	high1, low1 := bits.Mul64(uint64(x.count[d])*uint64(b.strides[d]), uint64(b.chunks[e]))
	high2, low2 := bits.Mul64(uint64(x.count[e])*uint64(b.strides[e]), uint64(b.chunks[d]))
	return high1 > high2 || high1 == high2 && low1 > low2
}

// Position writes the position of a number into position. number is below Total.
func (b *Bisection) Position(position []int64, number uint64) {
	x := b.whole()
	for {
		d := b.side(&x)
		if d < 0 {
			copy(position, x.low[:len(b.counts)])
			return
		}
		g := x.count[d]
		first := (g + 1) / 2
		firstPositions := x.positions / uint64(g) * uint64(first)
		if number < firstPositions {
			x.count[d], x.positions = first, firstPositions
			continue
		}
		number -= firstPositions
		x.low[d] += first
		x.count[d], x.positions = g-first, x.positions-firstPositions
	}
}

// Number is the inverse of Position.
func (b *Bisection) Number(position []int64) uint64 {
	x := b.whole()
	number := uint64(0)
	for {
		d := b.side(&x)
		if d < 0 {
			return number
		}
		g := x.count[d]
		first := (g + 1) / 2
		firstPositions := x.positions / uint64(g) * uint64(first)
		if position[d] < x.low[d]+first {
			x.count[d], x.positions = first, firstPositions
			continue
		}
		number += firstPositions
		x.low[d] += first
		x.count[d], x.positions = g-first, x.positions-firstPositions
	}
}

// Jitter moves the origins of a cube's crops within their strides, differently in each epoch. So
// each stride has one crop in each epoch, and over the epochs all places are used.
type Jitter struct{ key uint64 }

// NewJitter returns the jitter of an epoch of a cube, which is identified by its path as a shard.
func NewJitter(seed, epoch uint64, cube string) Jitter {
	return Jitter{order.CropKey(seed, epoch, cube)}
}

// Move moves the origin of the crop with an ordinal. axes are the axes of the grid of origins.
func (j Jitter) Move(origin []int64, axes []Axis, ordinal uint64) {
	dims := uint64(len(axes))
	for d, a := range axes {
		origin[d] += int64(order.CropDraw(j.key, ordinal*dims+uint64(d), uint64(a.room(origin[d]))))
	}
}

// CheckRow returns an error if a crop with that origin is not in the region of axes.
func CheckRow(axes []Axis, origin []int64) error {
	if len(origin) != len(axes) {
		return fmt.Errorf("has %d numbers, and the array has %d dimensions", len(origin), len(axes))
	}
	for d, a := range axes {
		last := a.End - a.Extent()
		if a.Wrap {
			last = a.Length - 1
		}
		if origin[d] < a.Begin || origin[d] > last {
			return fmt.Errorf("%s: a crop from %d to %d is not inside the region %d:%d", a.Name, origin[d], origin[d]+a.Extent(), a.Begin, a.End)
		}
	}
	return nil
}

// ListOrder returns the rows of a list of origins in the order in which their crops are numbered:
// by the chunk that holds the origin, in the bisection order of chunks, and then by row. origins
// has len(axes) numbers for each row, row after row; all are in the array.
func ListOrder(axes []Axis, origins []int64) ([]int64, error) {
	dims := len(axes)
	var counts, edges, chunk []int64
	for _, a := range axes {
		counts = append(counts, (a.Length+a.Edge-1)/a.Edge)
		edges = append(edges, a.Edge)
	}
	order, err := NewBisection(counts, edges, edges)
	if err != nil || dims == 0 {
		return nil, err
	}
	type row struct {
		rank uint64
		row  int64
	}
	rows := make([]row, len(origins)/dims)
	chunk = make([]int64, dims)
	for i := range rows {
		for d := range chunk {
			chunk[d] = origins[i*dims+d] / edges[d]
		}
		rows[i] = row{order.Number(chunk), int64(i)}
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.row, b.row)) })
	numbers := make([]int64, len(rows))
	for i, r := range rows {
		numbers[i] = r.row
	}
	return numbers, nil
}

// List holds the origins of one cube's crops, given one by one.
type List struct {
	// SHA256 is the hash of the file, in hex.
	SHA256 string
	// Fields are the origins in each field, row after row. If they can be derived from the first
	// field's, only those are there.
	Fields [][]int64
	// Dims is the length of a row, for each of Fields.
	Dims []int
	// Numbers are the indices of the rows in the file.
	Numbers []int64
}

func (l *List) rows() int64 { return int64(len(l.Numbers)) }

// origin returns the origin of row i in field k.
func (l *List) origin(k int, i int64) []int64 {
	n := int64(l.Dims[k])
	return l.Fields[k][i*n : (i+1)*n]
}
