package crops

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/uring"
)

// wanting is a want of one chunk that the test has noted.
type wanting struct {
	x  *cell
	at uint64
}

// For any sequence of operations, get returns what was decoded for that chunk, memory stays within
// the bound, and in the end all of it is freed.
func TestCellHoldsDecodedChunk(t *testing.T) {
	for seed := range uint64(30) {
		dice := rand.New(rand.NewPCG(seed, 1))
		most := int64(1+dice.IntN(6)) * uring.HugePageBytes
		c := newCells(most)
		fields := []*field{{chunkBytes: 300 << 10}, {chunkBytes: 3 << 20}, {chunkBytes: 512}}
		content := func(k key) uint64 { return uint64(k.chunk)<<2 | uint64(slices.Index(fields, k.field)) }
		var wanted []wanting
		var held []*cell
		got := 0
		for step := range 4000 {
			k := key{fields[dice.IntN(len(fields))], dice.Int64N(40), 0}
			switch dice.IntN(6) {
			case 0:
				c.mu.Lock()
				at := uint64(step + dice.IntN(50))
				wanted = append(wanted, wanting{c.want(k, at), at})
				c.mu.Unlock()
			case 1:
				if len(wanted) > 0 {
					i := dice.IntN(len(wanted))
					c.mu.Lock()
					c.passed(wanted[i].x, wanted[i].at)
					c.mu.Unlock()
					wanted = slices.Delete(wanted, i, i+1)
				}
			case 2, 3:
				if x := c.take(k, k.field.chunkBytes); x != nil {
					require.Equal(t, k, x.key)
					require.Len(t, x.slot.bytes, int(k.field.chunkBytes))
					if dice.IntN(5) > 0 {
						binary.LittleEndian.PutUint64(x.slot.bytes, content(k))
						c.add(x)
					}
					held = append(held, x)
				}
			case 4:
				if x := c.get(k); x != nil {
					require.Equal(t, content(k), binary.LittleEndian.Uint64(x.slot.bytes))
					held = append(held, x)
					got++
				}
			case 5:
				for len(held) > dice.IntN(3) {
					i := dice.IntN(len(held))
					c.release(held[i])
					held = slices.Delete(held, i, i+1)
				}
			}
			require.LessOrEqual(t, c.heldBytes(), most)
		}
		require.NotZero(t, got)
		for _, x := range held {
			c.release(x)
		}
		for _, x := range wanted {
			c.passed(x.x, x.at)
		}
		require.Zero(t, c.wanted)
		require.Len(t, c.byKey, len(c.idle), "only what has bytes is remembered")
		c.close()
		require.Zero(t, c.heldBytes())
	}
}

// fewestDecodes returns how often chunks are decoded with the best eviction: keep those that are
// wanted soonest.
func fewestDecodes(order []int64, room int) (decodes int) {
	next := func(from int, chunk int64) int {
		if i := slices.Index(order[from:], chunk); i >= 0 {
			return from + i
		}
		return len(order)
	}
	var kept []int64
	for i, chunk := range order {
		if slices.Contains(kept, chunk) {
			continue
		}
		decodes++
		if next(i+1, chunk) == len(order) {
			continue
		}
		kept = append(kept, chunk)
		if len(kept) > room {
			worst := slices.MaxFunc(kept, func(a, b int64) int { return next(i+1, a) - next(i+1, b) })
			kept = slices.DeleteFunc(kept, func(x int64) bool { return x == worst })
		}
	}
	return decodes
}

func TestNoOtherChoiceDecodesLessWithKnownFuture(t *testing.T) {
	f := &field{chunkBytes: uring.HugePageBytes / 4}
	for seed := range uint64(20) {
		dice := rand.New(rand.NewPCG(seed, 2))
		order := make([]int64, 400)
		for i := range order {
			order[i] = dice.Int64N(40)
		}
		c := newCells(int64(1+seed%3) * uring.HugePageBytes)
		cells := make([]*cell, len(order))
		c.mu.Lock()
		for i, chunk := range order {
			cells[i] = c.want(key{f, chunk, 0}, uint64(i))
		}
		c.mu.Unlock()
		decodes := 0
		for i, chunk := range order {
			c.mu.Lock()
			c.passed(cells[i], uint64(i))
			c.mu.Unlock()
			x := c.get(key{f, chunk, 0})
			if x == nil {
				decodes++
				if x = c.take(key{f, chunk, 0}, f.chunkBytes); x == nil {
					continue
				}
				c.add(x)
			}
			c.release(x)
		}
		require.Equal(t, fewestDecodes(order, int(1+seed%3)*4), decodes, fmt.Sprint("seed ", seed))
		c.close()
	}
}

// If little is known about coming reads, one large chunk makes room among small ones, and the other
// way round.
func TestChunksOfOneSizeMakeSpaceForOtherSizes(t *testing.T) {
	small, large := &field{chunkBytes: 64 << 10}, &field{chunkBytes: 3 << 20}
	c := newCells(3<<20 + 32<<10)
	defer c.close()
	keep := func(k key) *cell {
		x := c.take(k, k.field.chunkBytes)
		require.NotNil(t, x)
		c.add(x)
		return x
	}
	for i := range int64(100) {
		c.release(keep(key{small, i, 0}))
	}
	c.release(keep(key{large, 0, 0}))
	require.Nil(t, c.get(key{small, 0, 0}))
	x := keep(key{small, 7, 0})
	require.Nil(t, c.take(key{large, 1, 0}, large.chunkBytes), "a brick that is used keeps its slab")
	c.release(x)
	c.release(keep(key{large, 1, 0}))
}
