package zarr

import (
	"fmt"
	"math"
	"math/bits"
)

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
