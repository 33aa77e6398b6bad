package order

import "sort"

// markEvery is the number of permuted chunks between two marks of chunks.
const markEvery = 64

// chunks is S: the records of the permuted chunks, concatenated. Positions in S are counted in
// records.
type chunks struct {
	starts   []uint64 // first records of the chunks, and T at the end
	permuted []uint32
	marks    []uint64 // position in S of every markEvery-th permuted chunk
}

func newChunks(seed, epoch uint64, starts []uint64) *chunks {
	c := &chunks{starts: starts, permuted: make([]uint32, len(starts)-1)}
	for i := range c.permuted {
		c.permuted[i] = uint32(i)
	}
	permute(c.permuted, key("chunks", seed, epoch, 0), 0)
	c.marks = make([]uint64, 0, len(c.permuted)/markEvery+1)
	place := uint64(0)
	for i, chunk := range c.permuted {
		if i%markEvery == 0 {
			c.marks = append(c.marks, place)
		}
		place += starts[chunk+1] - starts[chunk]
	}
	return c
}

// run is a position in S and the records that a lane takes from there: first, the left-1 records
// after it, then rest more from the following chunks.
type run struct {
	first uint64
	left  uint64
	rest  uint64
	chunk uint32 // index into permuted of the next chunk
}

// at returns the run of n records at a position in S. n may be 0.
func (c *chunks) at(place, n uint64) run {
	if n == 0 {
		return run{}
	}
	mark := sort.Search(len(c.marks), func(i int) bool { return c.marks[i] > place }) - 1
	skip := place - c.marks[mark]
	r := run{chunk: uint32(mark * markEvery), rest: n}
	for {
		chunk := c.permuted[r.chunk]
		size := c.starts[chunk+1] - c.starts[chunk]
		r.chunk++
		if skip < size {
			r.first = c.starts[chunk] + skip
			r.left = min(size-skip, r.rest)
			r.rest -= r.left
			return r
		}
		skip -= size
	}
}

// refill starts the next chunk of a run whose left is 0. It returns false if the run has ended.
func (c *chunks) refill(r *run) bool {
	if r.rest == 0 {
		return false
	}
	chunk := c.permuted[r.chunk]
	r.chunk++
	r.first = c.starts[chunk]
	r.left = min(c.starts[chunk+1]-r.first, r.rest)
	r.rest -= r.left
	return true
}

// take moves the next records of a run to dst, which must not be longer than the run.
func take[S slot](c *chunks, r *run, dst []S) {
	for i := range dst {
		if r.left == 0 {
			c.refill(r)
		}
		dst[i] = S(r.first)
		r.first++
		r.left--
	}
}

// slot is a record number as stored in lanes: 32 bits if that suffices, because slots make up the
// memory and the cache misses of a shuffle.
type slot interface{ uint32 | uint64 }
