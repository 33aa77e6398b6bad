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

const (
	// entryPieces is the maximum average number of pieces between two entry points at which a shard
	// is read through them.
	entryPieces = 4
	// MostDecodedAgain is how often each byte of a shard may be decoded after the first time: a
	// processor decodes 0.4 to 1.2 GB/s, and a disk takes all of it and returns it at a few hundred
	// MB/s.
	MostDecodedAgain = 3
	// MostDecodedAgainFull is MostDecodedAgain for a full shuffle, for which a spool would have to
	// hold everything: enough for entry points a MiB apart, and records of 12 KiB.
	MostDecodedAgainFull = 64
)

// entering determines whether the places in a shard where decoding can start are close enough to
// each other that it need not be spooled.
type entering struct {
	pieceBytes float64
	partBytes  float64 // parts up to this size are small enough: all their records are needed soon
	// mostBytes is the maximum distance between two such places: what all lanes are in then fits in
	// half of the memory.
	mostBytes float64
	// lost is the share of records that memory does not hold until they are due: each of these is
	// decoded again, from the preceding entry on.
	lost  float64
	share float64 // share of a shard's records that an epoch has: less than 1 with a sample
	full  bool    // full shuffle
	// reopened means that not all decoders stay open, so that many pieces are decoded from the
	// preceding entry on.
	reopened bool
}

func (s *Sizes) entering() entering {
	lanes := float64(max(s.Order.Lanes, 1) * max(s.Places, 1))
	cache := float64(s.Limits.CacheBytes)
	// What decoders leave for records: at least half.
	memory := float64(s.Room(s.OpenDecoders()))
	e := entering{
		pieceBytes: float64(s.pieceBytes()),
		mostBytes:  cache / 2 / lanes,
		reopened:   2*lanes > float64(s.Decoders) || lanes*float64(s.Held.DecoderBytes) > float64(s.Limits.DecoderBytes),
	}
	e.share = s.Held.share()
	e.full = s.Order.Shuffle == spec.ShuffleFull
	if !e.full {
		e.partBytes = float64(SegmentBytes(s.MemoryBytes))
	}
	if waits := float64(s.waiting()); waits > memory && s.Order.Shuffle != spec.ShuffleNone {
		e.lost = 1 - memory/waits
	}
	return e
}

// enough reports whether the places in a shard are close enough, on average.
func (e *entering) enough(s *Shard) bool {
	decoded := float64(s.DecodedBytes)
	record := decoded / float64(s.Records)
	near := entryPieces * e.pieceBytes
	if s.Parts {
		near = max(near, e.partBytes)
	}
	entries := s.EntryPoints
	if s.Parts && s.Members > 0 {
		entries = min(entries, s.Members) // every row of a table is an entry point, wherever decoding can start
	}
	if part := decoded / float64(max(entries, 1)); part <= near {
		// The shard was written with entry points at records, for reading from there; and for a
		// full shuffle a spool would have to hold everything.
		return e.lostAgain(part, record) <= e.mostAgain()
	}
	member := decoded / float64(max(s.Members, 1))
	again := e.lostAgain(member, record)
	if e.reopened {
		again += member / 2 / max(e.pieceBytes, record)
	}
	return member <= e.mostBytes && again <= MostDecodedAgain
}

func (e *entering) mostAgain() float64 {
	if e.full {
		return MostDecodedAgainFull
	}
	return MostDecodedAgain
}

// lostAgain returns about how often each byte of a shard of members and records of these sizes is
// decoded again for records that memory did not hold. Lc0's games of 1.4 MiB in a reservoir of 137
// MB were decoded 104 times with 256 MiB, 1.8 times with 384 MiB.
func (e *entering) lostAgain(memberBytes, recordBytes float64) float64 {
	return e.share * e.lost * (memberBytes/2 + max(e.pieceBytes, recordBytes)) / recordBytes
}

// LoadsRecords reports whether pieces of a spool are loaded for about one record at a time, and so
// should be small: in a full shuffle, and if more records wait in the shuffle, on average, than
// memory holds. Only records of compressed shards count, because the others are mostly mapped. At a
// service, pieces are small only in a full shuffle if some shards are not compressed: each piece of
// these is a request.
func (v *Survey) LoadsRecords(c *Choice) bool {
	s := Sizes{Settings: v.Settings, Limits: v.Limits, Held: v.Held}
	h, o := &s.Held, s.Order
	switch {
	case o.Shuffle == spec.ShuffleFull:
		return true
	case o.Shuffle == spec.ShuffleNone, h.Records == 0, s.ByRequests() && h.Packed < h.Shards:
		return false
	}
	places := float64(max(s.Places, 1))
	records := float64(h.Records) / places
	waits := min(float64(o.SizeRecords), records)
	waits *= 1 - waits/(2*records) // the buffer drains at the end
	bytes := float64(h.Bytes) * places * min(waits/float64(h.Records)+float64(o.Lanes)/float64(h.Pieces), 1)
	bytes = (bytes + float64(s.waitingTables())) * float64(c.compressed) / float64(c.bytes)
	return lostPart*bytes > float64(s.Limits.CacheBytes)
}

// lostPart is how many bytes of memory it takes to keep one byte that waits in a shuffle, because
// segments also hold records that have been delivered. TestSpoolHasSmallPiecesIfMuchWaits has the
// measured cases.
const lostPart = 1.5
