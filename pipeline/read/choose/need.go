package choose

import (
	"fmt"
	"math"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// compressed is what a choice needs to know of the shards that could be spooled.
type compressed struct {
	bits                    []uint64
	shards                  uint64
	records, any            uint64 // of the part, of any kind
	total, largest, rounded int64  // decoded bytes; rounded is total in the spool
	// Of all compressed shards that hold records of the part.
	compressed, members uint64
	decoded             int64
	all                 int64 // of the other shards, too
	// scattered says that some shard is several chunks, which an order permutes:
	// then it comes back to each shard again and again.
	scattered bool
}

// spoolable looks at the shards. all takes those that are entered often, too.
func (s *Sizes) spoolable(all bool) compressed {
	c := compressed{bits: make([]uint64, (len(s.Shards)+63)/64)}
	often := s.entering()
	for i := range s.Shards {
		x := &s.Shards[i]
		c.all += x.DecodedBytes
		if !x.Compressed || x.Wanted == 0 {
			continue
		}
		c.compressed++
		c.members += x.Members
		c.decoded += x.DecodedBytes
		if !all && often.enough(x) {
			continue
		}
		c.bits[i/64] |= 1 << (i % 64)
		c.shards++
		c.records += x.Wanted
		c.any += x.Records
		c.total += x.DecodedBytes
		c.rounded += budget.RoundToPages(x.DecodedBytes)
		c.largest = max(c.largest, budget.RoundToPages(x.DecodedBytes))
		c.scattered = c.scattered || s.chunksOf(x) > 1
	}
	return c
}

// chunksOf is about how many chunks of the order a compressed shard is: they end
// where they are full, and at entry points only.
func (s *Sizes) chunksOf(x *Shard) uint64 {
	record := max(uint64(x.DecodedBytes)/max(x.Records, 1), 1)
	full := max(min(s.PieceRecords, s.PieceBytes/record), 1)
	return min(x.EntryPoints, (x.Records+full-1)/full)
}

// need is about how much of the shards is open at a time in an order: all of it
// where the shards' chunks are permuted; else for each lane the shard that it goes through, and those before it whose last records
// still wait. The last of R records leaves a buffer of B after about B·ln R
// turns. One more is read ahead.
//
// It is not lanes + 1 shards, because a reservoir lets go of a shard late. Of 200
// shards in the default order (16384 records in 32 lanes), so many are open at a
// time, between their first and their last record, by the order alone (the peak
// of three epochs; TestSpoolHasSpaceForOpenShardsOfOrder):
//
//	records a shard   1 000   5 000   10 000
//	lanes + 1            33      33       33
//	open                169      61       50
//	need                193      65       65
//
// With less room shards come to be decoded again for the records that wait: with 64
// shards, 8 lanes and memory for 3/5 of the buffer, need decoded each once, 1.5 a
// lane 34 times, 1.25 a lane 71 times, and a shard a lane and one more 115 times.
//
// Copying the waiting records of a shard to a second file once all of it has come
// into the buffer would not give lanes + 1 either, as a shard is open until then:
// 72, 40 and 40 shards and a buffer's worth of records (20, 3 and 1.5 shards more)
// of the three above. For that, each of these records would be written and found
// a second time, a twentieth to a half of all data. It pays where shards are
// small, and a spool of many small shards is small, too.
func (c *compressed) need(o spec.Order, places uint64) int64 {
	switch {
	case c.shards == 0:
		return 0
	case c.scattered && o.Shuffle != spec.ShuffleNone:
		return c.rounded
	}
	count := float64(2)
	r := max(float64(c.records)/float64(c.shards), 1)
	b := max(float64(o.SizeRecords)/float64(max(o.Lanes, 1)), 1)
	switch o.Shuffle {
	case spec.ShuffleFull:
		return c.rounded
	case spec.ShuffleBlock:
		count = float64(o.Lanes)*(1+math.Ceil(b/r)) + 1
	case spec.ShuffleReservoir:
		count = float64(o.Lanes)*(1+math.Ceil(b*(math.Log(r)+1)/r)) + 1
	}
	count *= float64(max(places, 1))
	if count >= float64(c.shards) {
		return c.rounded
	}
	return min(int64(count)*c.largest, c.rounded)
}

// fewerLanes says what a spool would need with fewer lanes, which is less while
// shards are large beside what waits in the buffer; "" where it is not.
func (c *compressed) fewerLanes(o spec.Order, places uint64) string {
	least := c.need(o, places)
	var needs []string
	for range 2 {
		if o.Lanes /= 2; o.Lanes == 0 {
			break
		}
		need := c.need(o, places)
		if need >= least {
			break
		}
		least = need
		needs = append(needs, fmt.Sprintf("--lanes %d would need %s", o.Lanes, humanize.IBytes(uint64(need))))
	}
	return strings.Join(needs, ", ")
}
