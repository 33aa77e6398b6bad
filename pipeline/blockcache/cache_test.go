package blockcache

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/uring"
)

// sizeAndNumber is the key of these tests.
type sizeAndNumber struct {
	sizeBytes int64
	number    int64
}

// want is Locked.Want.
func (c *Cache[K]) want(k K, at uint64) *Block[K] {
	l := c.Lock()
	defer l.Unlock()
	return l.Want(k, at)
}

// pass is Locked.Passed.
func (c *Cache[K]) pass(b *Block[K], at uint64) {
	l := c.Lock()
	defer l.Unlock()
	l.Passed(b, at)
}

// wanting is a Want of a test.
type wanting struct {
	b  *Block[sizeAndNumber]
	at uint64
}

// For any sequence of operations, Get returns what was filled for that key, memory stays within the
// bound, and in the end all of it is freed.
func TestBlockHoldsWhatWasFilled(t *testing.T) {
	for seed := range uint64(30) {
		dice := rand.New(rand.NewPCG(seed, 1))
		most := int64(1+dice.IntN(6)) * uring.HugePageBytes
		c := New[sizeAndNumber](most)
		sizes := []int64{300 << 10, 3 << 20, 512}
		content := func(k sizeAndNumber) uint64 { return uint64(k.number)<<32 | uint64(k.sizeBytes) }
		var wanted []wanting
		var held []*Block[sizeAndNumber]
		got := 0
		for step := range 4000 {
			k := sizeAndNumber{sizes[dice.IntN(len(sizes))], dice.Int64N(40)}
			switch dice.IntN(6) {
			case 0:
				at := uint64(step + dice.IntN(50))
				wanted = append(wanted, wanting{c.want(k, at), at})
			case 1:
				if len(wanted) > 0 {
					i := dice.IntN(len(wanted))
					c.pass(wanted[i].b, wanted[i].at)
					wanted = slices.Delete(wanted, i, i+1)
				}
			case 2, 3:
				if b := c.Fill(k, k.sizeBytes); b != nil {
					require.Equal(t, k, b.key)
					require.Len(t, b.Bytes(), int(k.sizeBytes))
					right := dice.IntN(5) > 0
					if right {
						binary.LittleEndian.PutUint64(b.Bytes(), content(k))
					}
					require.Nil(t, c.Get(k), "it is not filled yet")
					require.Nil(t, c.Fill(k, k.sizeBytes), "it is being filled")
					c.Filled(b, right)
					if b = c.Get(k); right {
						held = append(held, b)
					} else {
						require.Nil(t, b)
					}
				}
			case 4:
				if b := c.Get(k); b != nil {
					require.Equal(t, content(k), binary.LittleEndian.Uint64(b.Bytes()))
					held = append(held, b)
					got++
				}
			case 5:
				for len(held) > dice.IntN(3) {
					i := dice.IntN(len(held))
					c.Release(held[i])
					held = slices.Delete(held, i, i+1)
				}
			}
			require.LessOrEqual(t, c.Stats().HeldBytes, most)
			if dice.IntN(200) == 0 {
				most = int64(1+dice.IntN(6)) * uring.HugePageBytes
				for _, b := range held {
					c.Release(b)
				}
				held = nil
				c.Allow(most)
			}
		}
		require.NotZero(t, got)
		for _, b := range held {
			c.Release(b)
		}
		for _, x := range wanted {
			c.pass(x.b, x.at)
		}
		require.Zero(t, c.Stats().Wanted)
		require.Equal(t, len(c.idle), c.Stats().Blocks, "only what has bytes is remembered")
		c.Close()
		require.Zero(t, c.Stats().HeldBytes)
	}
}

// model is a Cache of blocks of one size, each in a slab of its own, as a few maps.
type model struct {
	room   int
	used   map[int]int      // when a filled block was last released
	pinned map[int]int      // by filled block
	wants  map[int][]uint64 // sorted
	clock  int
}

// rank returns when a block is evicted, the greatest first.
func (m *model) rank(k int) uint64 {
	if len(m.wants[k]) == 0 {
		return math.MaxUint64 - uint64(m.used[k])
	}
	return m.wants[k][0]
}

// first returns the filled block to evict, or -1 if all are pinned.
func (m *model) first() int {
	first := -1
	for k := range m.used {
		if m.pinned[k] == 0 && (first < 0 || m.rank(k) > m.rank(first)) {
			first = k
		}
	}
	return first
}

// fill reports whether Fill has room for a block, and evicts one if it takes that.
func (m *model) fill(k int) bool {
	known := false
	for _, at := range m.wants {
		known = known || len(at) > 0
	}
	if _, is := m.used[k]; is || known && len(m.wants[k]) == 0 {
		return false
	}
	if len(m.used) < m.room {
		return true
	}
	first := m.first()
	if first < 0 || len(m.wants[k]) > 0 && m.rank(first) <= m.wants[k][0] {
		return false
	}
	delete(m.used, first)
	return true
}

// A cache has the same blocks as a model of it that is a few maps, after any operations.
func TestCacheEvictsAsItsModel(t *testing.T) {
	const size = uring.HugePageBytes/2 + 4096
	rapid.Check(t, func(t *rapid.T) {
		m := &model{room: rapid.IntRange(0, 4).Draw(t, "room"), used: map[int]int{}, pinned: map[int]int{}, wants: map[int][]uint64{}}
		c := New[int](int64(m.room) * size)
		blocks := map[int]*Block[int]{}
		key := func() int { return rapid.IntRange(0, 7).Draw(t, "key") }
		release := func(k int) {
			c.Release(blocks[k])
			if m.pinned[k]--; m.pinned[k] == 0 {
				m.clock++
				m.used[k] = m.clock
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"fill": func(t *rapid.T) {
				k, right := key(), rapid.IntRange(0, 3).Draw(t, "right") > 0
				b := c.Fill(k, size)
				require.Equal(t, m.fill(k), b != nil)
				if b == nil {
					return
				}
				c.Filled(b, right)
				if right {
					m.clock++
					m.used[k] = m.clock
				}
			},
			"get": func(t *rapid.T) {
				k := key()
				b := c.Get(k)
				_, is := m.used[k]
				require.Equal(t, is, b != nil)
				if is {
					m.pinned[k]++
					blocks[k] = b
				}
			},
			"release": func(t *rapid.T) {
				if k := key(); m.pinned[k] > 0 {
					release(k)
				}
			},
			"want": func(t *rapid.T) {
				k, at := key(), rapid.Uint64Range(1, 1<<40).Draw(t, "at")
				if l := c.Lock(); slices.ContainsFunc(slices.Collect(positions(m.wants)), func(x uint64) bool { return x == at }) {
					l.Unlock() // each position has one block, so that no two ranks are equal
				} else {
					blocks[k] = l.Want(k, at)
					l.Unlock()
					m.wants[k] = append(m.wants[k], at)
					slices.Sort(m.wants[k])
				}
			},
			"pass": func(t *rapid.T) {
				if k := key(); len(m.wants[k]) > 0 {
					i := rapid.IntRange(0, len(m.wants[k])-1).Draw(t, "which")
					c.pass(c.blocks[k], m.wants[k][i])
					m.wants[k] = slices.Delete(m.wants[k], i, i+1)
				}
			},
			"": func(t *rapid.T) {
				l := c.Lock()
				for k := range 8 {
					_, is := m.used[k]
					require.Equal(t, is, l.Has(k), "block %d", k)
				}
				l.Unlock()
				require.Equal(t, int64(len(m.used))*size, c.arena.MappedBytes()-c.arena.FreeBytes())
				require.LessOrEqual(t, c.Stats().HeldBytes, int64(m.room)*size)
			},
		})
		for k, n := range m.pinned {
			for range n {
				release(k)
			}
		}
		c.Close() // not if the test has failed: it would wait for the pins
	})
}

// A block whose position was passed is evicted before all that are still wanted.
func TestPassedBlockIsEvictedFirst(t *testing.T) {
	const size = uring.HugePageBytes/2 + 4096
	c := New[int](3 * size)
	defer c.Close()
	var blocks []*Block[int]
	for k := range 4 {
		blocks = append(blocks, c.want(k, uint64(10*(k+1))))
	}
	for k := range 3 {
		b := c.Fill(k, size)
		require.NotNil(t, b)
		c.Filled(b, true)
	}
	require.Nil(t, c.Fill(3, size), "all others are wanted sooner")
	c.pass(blocks[0], 10)
	b := c.Fill(3, size)
	require.NotNil(t, b)
	c.Filled(b, true)
	l := c.Lock()
	defer l.Unlock()
	for k := range 4 {
		require.Equal(t, k != 0, l.Has(k), "block %d", k)
	}
}

// positions returns the positions of all wants.
func positions(wants map[int][]uint64) func(func(uint64) bool) {
	return func(yield func(uint64) bool) {
		for _, list := range wants {
			for _, at := range list {
				if !yield(at) {
					return
				}
			}
		}
	}
}

// fewestFills returns how often blocks are filled with the best eviction: keep those that are
// wanted soonest.
func fewestFills(order []int64, room int) (fills int) {
	next := func(from int, n int64) int {
		if i := slices.Index(order[from:], n); i >= 0 {
			return from + i
		}
		return len(order)
	}
	var kept []int64
	for i, n := range order {
		if slices.Contains(kept, n) {
			continue
		}
		fills++
		if next(i+1, n) == len(order) {
			continue
		}
		kept = append(kept, n)
		if len(kept) > room {
			worst := slices.MaxFunc(kept, func(a, b int64) int { return next(i+1, a) - next(i+1, b) })
			kept = slices.DeleteFunc(kept, func(x int64) bool { return x == worst })
		}
	}
	return fills
}

func TestNoOtherChoiceFillsLessWithKnownFuture(t *testing.T) {
	const size = uring.HugePageBytes / 4
	for seed := range uint64(20) {
		dice := rand.New(rand.NewPCG(seed, 2))
		order := make([]int64, 400)
		for i := range order {
			order[i] = dice.Int64N(40)
		}
		c := New[int64](int64(1+seed%3) * uring.HugePageBytes)
		blocks := make([]*Block[int64], len(order))
		for i, n := range order {
			blocks[i] = c.want(n, uint64(i))
		}
		fills := 0
		for i, n := range order {
			c.pass(blocks[i], uint64(i))
			b := c.Get(n)
			if b != nil {
				c.Release(b)
				continue
			}
			fills++
			if b = c.Fill(n, size); b != nil {
				c.Filled(b, true)
			}
		}
		require.Equal(t, fewestFills(order, int(1+seed%3)*4), fills, fmt.Sprint("seed ", seed))
		c.Close()
	}
}

// No block is evicted for one that would not fit even then.
func TestBlockThatDoesNotFitEvictsNothing(t *testing.T) {
	const small, large, bound = 64 << 10, 3 << 20, 4 << 20
	c := New[sizeAndNumber](bound)
	defer c.Close()
	for i := range int64(8) {
		b := c.Fill(sizeAndNumber{small, i}, small)
		require.NotNil(t, b)
		c.Filled(b, true)
	}
	require.Nil(t, c.Fill(sizeAndNumber{bound + 1, 0}, bound+1), "larger than the cache")
	require.Equal(t, 8, c.Stats().Blocks)
	var pinned []*Block[sizeAndNumber]
	for i := range int64(bound / 2 / small) {
		b := c.Fill(sizeAndNumber{small, 100 + i}, small)
		require.NotNil(t, b)
		pinned = append(pinned, b)
	}
	before := c.Stats().Blocks
	require.Nil(t, c.Fill(sizeAndNumber{large, 0}, large), "larger than what pinned blocks leave")
	require.Equal(t, before, c.Stats().Blocks)
	for _, b := range pinned {
		c.Filled(b, true)
	}
	b := c.Fill(sizeAndNumber{large, 0}, large)
	require.NotNil(t, b)
	c.Filled(b, true)
}

// If nothing is known about what is wanted, one large block makes room among small ones, and the
// other way round.
func TestBlocksOfOneSizeMakeSpaceForOtherSizes(t *testing.T) {
	const small, large = 64 << 10, 3 << 20
	c := New[sizeAndNumber](3<<20 + 32<<10)
	defer c.Close()
	fill := func(k sizeAndNumber) {
		b := c.Fill(k, k.sizeBytes)
		require.NotNil(t, b)
		c.Filled(b, true)
	}
	for i := range int64(100) {
		fill(sizeAndNumber{small, i})
	}
	fill(sizeAndNumber{large, 0})
	require.Nil(t, c.Get(sizeAndNumber{small, 0}))
	b := c.Fill(sizeAndNumber{small, 7}, small)
	require.NotNil(t, b)
	require.Nil(t, c.Fill(sizeAndNumber{large, 1}, large), "a block that is pinned keeps its slab")
	c.Filled(b, true)
	fill(sizeAndNumber{large, 1})
}

// Many fill, get and want the same blocks, and every third fill fails. No block has bytes of a fill
// that failed or of another block, and Close waits for those that are pinned.
func TestConcurrentUsersGetWhatWasFilled(t *testing.T) {
	const size = 100 << 10
	c := New[int64](2 * uring.HugePageBytes)
	var fills, hits atomic.Int64
	var users sync.WaitGroup
	for g := range uint64(8) {
		users.Go(func() {
			dice := rand.New(rand.NewPCG(g, 3))
			for step := range uint64(3000) {
				n := dice.Int64N(60)
				var wanted *Block[int64]
				if dice.IntN(3) == 0 {
					wanted = c.want(n, step)
				}
				if b := c.Get(n); b != nil {
					hits.Add(1)
					for at := 0; at < size; at += 8 << 10 {
						if got := int64(binary.LittleEndian.Uint64(b.Bytes()[at:])); got != n {
							t.Errorf("block %d has bytes of %d", n, got)
						}
					}
					c.Release(b)
				} else if b = c.Fill(n, size); b != nil {
					right := fills.Add(1)%3 > 0
					for at := 0; at < size; at += 8 << 10 {
						x := n
						if !right {
							x = -1
						}
						binary.LittleEndian.PutUint64(b.Bytes()[at:], uint64(x))
					}
					c.Filled(b, right)
				}
				if wanted != nil {
					c.pass(wanted, step)
				}
			}
		})
	}
	users.Wait()
	require.Positive(t, hits.Load())
	require.Zero(t, c.Stats().Wanted)
	c.Close()
	require.Zero(t, c.Stats().HeldBytes)
}

func TestCloseWaitsForPinnedBlocks(t *testing.T) {
	c := New[int](uring.HugePageBytes)
	b := c.Fill(1, 512)
	c.Filled(b, true)
	got, other := c.Get(1), c.Fill(2, 512)
	b.Bytes()[0] = 7
	closed := make(chan struct{})
	go func() { c.Close(); close(closed) }()
	for c.Get(1) != nil { // until Close has begun
		c.Release(b)
	}
	c.Filled(other, true)
	select {
	case <-closed:
		t.Fatal("a block is pinned")
	default:
	}
	require.EqualValues(t, 7, got.Bytes()[0])
	c.Release(got)
	<-closed
	require.Equal(t, Stats{MaxBytes: uring.HugePageBytes}, c.Stats())
	require.Nil(t, c.Fill(3, 512))
	c.Close()
}

// After a block was filled, using it allocates nothing, nor does filling it again after others have
// taken its memory.
func TestUseOfBlocksAllocatesNothing(t *testing.T) {
	c := New[int](2 << 20)
	defer c.Close()
	for k := range 8 {
		l := c.Lock()
		l.Want(k, uint64(k))
		l.Unlock()
	}
	k := 0
	require.Zero(t, testing.AllocsPerRun(100, func() {
		b := c.Get(k)
		if b == nil {
			if b = c.Fill(k, 1<<20); b == nil {
				return
			}
			c.Filled(b, true)
			return
		}
		c.Release(b)
		k = (k + 1) % 8
	}))
}

// BenchmarkGet pins and unpins blocks in random order, each under a lock of its own or 256 under
// one lock.
func BenchmarkGet(b *testing.B) {
	for _, blocks := range []int{64, 4096, 65536} {
		c := New[int](64 << 20)
		for k := range blocks {
			c.Filled(c.Fill(k, 512), true)
		}
		order := rand.New(rand.NewPCG(1, 1)).Perm(blocks)
		b.Run(fmt.Sprintf("blocks=%d/alone", blocks), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				c.Release(c.Get(order[i%blocks]))
			}
		})
		b.Run(fmt.Sprintf("blocks=%d/together", blocks), func(b *testing.B) {
			var got [256]*Block[int]
			for i := 0; b.Loop(); i++ {
				if i%len(got) > 0 {
					continue
				}
				l := c.Lock()
				for j := range got {
					got[j] = l.Get(order[(i+j)%blocks], 1)
				}
				l.Unlock()
				l = c.Lock()
				for j := range got {
					l.Release(got[j])
				}
				l.Unlock()
			}
		})
		c.Close()
	}
}

// Memory that a pinned block kept beyond a lowered bound is freed when it is released.
func TestLoweredBoundIsMetOnceBlocksAreReleased(t *testing.T) {
	c := New[int](4 * uring.HugePageBytes)
	defer c.Close()
	for k := range 4 {
		c.Filled(c.Fill(k, uring.HugePageBytes), true)
	}
	held := []*Block[int]{c.Get(0), c.Get(1), c.Get(2), c.Get(3)}
	c.Allow(uring.HugePageBytes)
	require.Equal(t, int64(4*uring.HugePageBytes), c.Stats().HeldBytes, "all are pinned")
	for _, b := range held {
		c.Release(b)
	}
	require.Equal(t, int64(uring.HugePageBytes), c.Stats().HeldBytes)
}
