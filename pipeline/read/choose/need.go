package choose

import (
	"fmt"
	"math"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// compressed is what a choice needs to know about the shards that could be spooled.
type compressed struct {
	bits                    []uint64
	shards                  uint64
	records, any            uint64 // of the part; of any kind
	total, largest, rounded int64  // decoded bytes; rounded is total in the spool
	// Of all compressed shards that hold records of the part.
	compressed, members uint64
	decoded             int64
	all                 int64 // of the other shards, too
	// scattered means that some shard has several chunks, which an order permutes: then the order
	// returns to each shard again and again.
	scattered bool
}

// spoolable adds up the shards that could be spooled. With all, these include shards with enough
// entry points.
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

// chunksOf returns about how many chunks of the order a compressed shard has: they end when they
// are full, and only at entry points.
func (s *Sizes) chunksOf(x *Shard) uint64 {
	record := max(uint64(x.DecodedBytes)/max(x.Records, 1), 1)
	full := max(min(s.PieceRecords, s.PieceBytes/record), 1)
	return min(x.EntryPoints, (x.Records+full-1)/full)
}

// need returns about how many bytes of the shards an order has open at a time: all of them if the
// shards' chunks are permuted. Otherwise each lane has the shard that it reads, and those before it
// whose last records still wait; one more is read ahead. The last of R records leaves a buffer of B
// after about B·ln R turns.
//
// It is not lanes + 1 shards, because a reservoir releases a shard late. Of 200 shards in the
// default order (16384 records in 32 lanes), these numbers are open at a time, between their first
// and their last record, by the order alone (the peak of three epochs;
// TestSpoolHasSpaceForOpenShardsOfOrder):
//
//	records per shard  1 000   5 000   10 000
//	lanes + 1             33      33       33
//	open                 169      61       50
//	need                 193      65       65
//
// With less room shards have to be decoded again for the records that wait: with 64 shards, 8 lanes
// and memory for 3/5 of the buffer, need decoded each once, 1.5 per lane 34 times, 1.25 per lane 71
// times, and one per lane plus one 115 times.
//
// Copying the waiting records of a shard to a second file once all of its records are in the buffer
// would not give lanes + 1 either, since a shard is open until then: 72, 40 and 40 shards and a
// buffer's worth of records (20, 3 and 1.5 shards more) in the three cases above. For that, each of
// these records would be written and located a second time, a twentieth to a half of all data. It
// pays if shards are small, and a spool of many small shards is small, too.
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

// fewerLanes describes what a spool would need with fewer lanes, which is less as long as shards
// are large compared to what waits in the buffer; "" if it is not less.
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
