package order

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sort"
)

// Bounds of a mixture (SELECTION.md, Mixtures).
const (
	MinSources = 2
	MaxSources = 128
	// MaxWeight bounds a weight, in any unit, so that their sum fits 63 bits.
	MaxWeight = 1<<63/MaxSources - 1
	// mixBlock is the number of positions that are shared out together.
	mixBlock = 256
	// maxMixed bounds positions of the endless sequence, far above what is ever read.
	maxMixed = 1 << 62
)

// Shares maps each position of a mixture to a source, and to one of that source's records, in turn.
// It is plain arithmetic on the weights, immutable, and safe for concurrent use.
type Shares struct {
	weights []uint64
	sum     uint64
	heavy   []int  // sources, by weight descending
	key     uint64 // key of the blocks' shuffle
}

// NewShares returns shares for weights, which are integers in any unit.
func NewShares(seed uint64, weights []uint64) (*Shares, error) {
	if len(weights) < MinSources || len(weights) > MaxSources {
		return nil, fmt.Errorf("order: a mixture of %d sources: it must have between %d and %d", len(weights), MinSources, MaxSources)
	}
	s := &Shares{weights: slices.Clone(weights), key: key("mix", seed, 0, 0)}
	for m, w := range weights {
		if w < 1 || w > MaxWeight {
			return nil, fmt.Errorf("order: the weight of source %d (%d) must be between 1 and %d", m, w, uint64(MaxWeight))
		}
		s.sum += w
		s.heavy = append(s.heavy, m)
	}
	slices.SortStableFunc(s.heavy, func(a, b int) int {
		switch wa, wb := weights[a], weights[b]; {
		case wa > wb:
			return -1
		case wa < wb:
			return 1
		}
		return 0
	})
	return s, nil
}

// Counts sets c[m] to the number of the first n positions that belong to source m. n is at most
// 2⁶².
func (s *Shares) Counts(n uint64, c []uint64) {
	left, rest := n, s.sum
	for _, m := range s.heavy {
		w := s.weights[m]
		high, low := bits.Mul64(left, rest-w)
		after, _ := bits.Div64(high, low, rest) // at most left
		c[m] = left - after
		left, rest = after, rest-w
	}
}

// block returns the sources of positions 256·b … 256·b+255, in order. before and end are Counts at
// the first of these and at the position after the last.
func (s *Shares) block(b uint64, before, end []uint64, list []uint8) []uint8 {
	list = list[:0]
	for m := range before {
		for range end[m] - before[m] {
			list = append(list, uint8(m))
		}
	}
	permute(list, s.key, b*mixBlock)
	return list
}

// errTooLong means that the length is unreasonable.
var errTooLong = errors.New("order: an epoch of the mixture would have more positions than can be ordered: give its length, or more even weights")

// First returns the largest number of positions, in whole blocks, in which no source has more
// positions than records. If that is 0, short is a source that has too few records for one block.
func (s *Shares) First(records []uint64) (length uint64, short int) {
	c := make([]uint64, len(s.weights))
	exceeds := func(n uint64) int {
		s.Counts(n, c)
		return slices.IndexFunc(s.heavy, func(m int) bool { return c[m] > records[m] })
	}
	sum := uint64(0)
	for _, n := range records {
		sum += min(n, MaxRecords)
	}
	n := uint64(sort.Search(int(sum), func(n int) bool { return exceeds(uint64(n)+1) >= 0 }))
	if length = n / mixBlock * mixBlock; length > 0 {
		return length, -1
	}
	return 0, s.heavy[exceeds(n+1)]
}

// All returns the smallest number of positions, in whole blocks, in which every record of each
// source occurs.
func (s *Shares) All(records []uint64) (length uint64, err error) {
	c := make([]uint64, len(s.weights))
	holds := func(n int) bool {
		s.Counts(uint64(n), c)
		for m, have := range c {
			if have < records[m] {
				return false
			}
		}
		return true
	}
	n := sort.Search(MaxRecords+1, holds)
	if n > MaxRecords-mixBlock {
		return 0, errTooLong
	}
	return (uint64(n) + mixBlock - 1) / mixBlock * mixBlock, nil
}

// sourceSeed returns the seed of a source's own order.
func sourceSeed(seed uint64, m int) uint64 { return key("source", seed, 0, uint64(m)) }
