package choose

import (
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Choice is how the shards of a dataset are read, and why.
type Choice struct {
	Strategy   spec.Read
	Reason     string // in words
	SpoolBytes int64  // that are reserved, 0 if nothing is spooled
	FewerLanes string // what fewer lanes would need, in words; "" if that is not less
	// Chunks means that whole chunks are planned, and fetched to a disk cache, before records are
	// gathered from there.
	Chunks bool
	// Warning is what would be better, and what it takes; "" if there is nothing better.
	Warning string
	// Spooled are the shards that go through the spool, one bit per shard; nil for none.
	Spooled []uint64
	// DecodesAgain means that each epoch decodes the compressed shards again, at least partly:
	// memory does not hold them, and no disk does.
	DecodesAgain bool
	// Kept means that shards are spooled only because a disk cache keeps them for later epochs and
	// mounts: see Keep.
	Kept bool

	bytes      int64 // of all shards, decoded
	compressed int64 // of the compressed shards that are wanted, decoded
}

// Spools reports whether a shard is spooled.
func (c *Choice) Spools(shard int) bool {
	return c.Spooled != nil && c.Spooled[shard/64]&(1<<(shard%64)) != 0
}

// decodedOnce returns why a scan decodes no compressed shard more than once, or "" if it does.
func (s *Sizes) decodedOnce(c *compressed) string {
	switch {
	case c.compressed == 0:
		return "no compressed shard has records"
	case c.decoded <= s.Limits.CacheBytes/2 && s.Fits():
		return "the compressed shards fit in memory, decoded"
	}
	return ""
}

// scannable returns why the shards can be scanned within memory, or "" if they can't.
func (s *Sizes) scannable(c *compressed) string {
	if why := s.decodedOnce(c); why != "" {
		return why
	}
	o, budget := s.Order, s.Limits.CacheBytes
	places := int64(max(s.Places, 1))
	switch {
	case c.shards == 0:
		return fmt.Sprintf("decoding can start at %d places in the %d compressed shards, every %s (decoded)",
			c.members, c.compressed, humanize.IBytes(uint64(c.decoded)/max(c.members, 1)))
	case o.Shuffle == spec.ShuffleFull, s.begunAgain(c) > MostDecodedAgain:
		return ""
	case o.Shuffle == spec.ShuffleNone:
		if places == 1 || places <= min(int64(s.Decoders), s.Limits.DecoderBytes/s.Held.DecoderBytes) {
			return "shards are read from front to back"
		}
		return ""
	}
	// The records in the buffer, and the pieces that they are in.
	lanes := float64(o.Lanes) * float64(places)
	waiting := s.withTables(float64(o.SizeRecords)*float64(c.total)/float64(c.any)*1.5) + lanes*float64(s.Held.DecoderBytes+int64(s.PieceBytes))
	if waiting <= float64(budget)/2 && 2*lanes <= float64(s.Decoders) {
		return "what waits in the shuffle buffer fits in memory"
	}
	return ""
}

// Choose returns how shards are read with the given strategy ("" for scan). It is a pure function
// of the sizes. Its errors name the spool setting that is too small.
func (s *Sizes) Choose(asked spec.Read) (Choice, error) {
	switch {
	case s.Storage.Apart:
		c := s.choosePlain(spec.ReadGather)
		c.Reason = "each record is computed by itself"
		return c, nil
	case asked == spec.ReadScan || asked == "":
		return Choice{Strategy: spec.ReadScan, Reason: "asked for"}, nil
	case !s.Compressed:
		return s.choosePlain(asked), nil
	case asked == spec.ReadGather:
		c, err := s.chooseCompressed(spec.ReadAuto)
		c.Reason = "gather was asked for, but there are compressed shards, whose records can't be read one by one; " + c.Reason
		return c, err
	}
	return s.chooseCompressed(asked)
}

// chooseCompressed chooses if there are compressed shards. The others, if any, are read the same
// way: the order alternates between records of both kinds.
func (s *Sizes) chooseCompressed(asked spec.Read) (Choice, error) {
	c := s.spoolable(asked == spec.ReadSpool)
	if why := s.scannable(&c); asked == spec.ReadAuto && why != "" || c.shards == 0 {
		return Choice{Strategy: spec.ReadScan, Reason: why, DecodesAgain: s.decodedOnce(&c) == ""}, nil
	}
	need := c.need(s.Order, s.Places)
	fewer := c.fewerLanes(s.Order, s.Places)
	capacity := need
	if most := s.MaxSpoolBytes; most > 0 {
		if capacity = min(most&^(budget.PageBytes-1), c.rounded); capacity < need {
			return Choice{FewerLanes: fewer}, fmt.Errorf("--spool-max (%s) is less than the %s that the order needs at a time, of %d compressed shards with up to %s decoded: raise it",
				humanize.IBytes(uint64(most)), humanize.IBytes(uint64(need)), c.shards, humanize.IBytes(uint64(c.largest)))
		}
	}
	reason := "asked for"
	if asked == spec.ReadAuto {
		reason = fmt.Sprintf("%d compressed shards have few gzip members, zstd or lz4 frames; decoded (%s) they don't fit in memory in this order", c.shards, humanize.IBytes(uint64(c.total)))
		if enough := s.enough(); enough > 0 {
			reason += fmt.Sprintf("; about --memory %s would be enough", strings.ReplaceAll(humanize.IBytes(uint64(enough)), " ", ""))
		}
	}
	return Choice{Strategy: spec.ReadSpool, Reason: reason, Spooled: c.bits, SpoolBytes: capacity, FewerLanes: fewer, bytes: c.all, compressed: c.decoded}, nil
}

// Keep returns the choice that spools all compressed shards to a disk cache that has room for all
// of them. It is for a choice that DecodesAgain: this epoch costs as much either way, because what
// takes processor time is decoding each shard once, and later epochs and mounts decode nothing.
// Only the first bytes may come later, since a shard is then decoded from its beginning. --spool-max
// does not limit a cache.
func (s *Sizes) Keep() Choice {
	c := s.spoolable(true)
	return Choice{
		Strategy: spec.ReadSpool, Kept: true, Spooled: c.bits, SpoolBytes: c.need(s.Order, s.Places), bytes: c.all, compressed: c.decoded,
		Reason: fmt.Sprintf("the disk cache keeps the %d compressed shards decoded (%s), for later epochs and mounts", c.shards, humanize.IBytes(uint64(c.total))),
	}
}

// enough returns about the least memory with which no compressed shard is spooled, rounded up to
// some MiB; 0 if that is more than mostMemory.
func (s *Sizes) enough() int64 {
	spools := func(memory int64) bool {
		t := *s
		t.MemoryBytes = memory
		t.Limits = NewLimits(memory, 2*s.Held.TableBytes, s.Held.LargePieceBytes(s.PieceBytes, s.PieceRecords), s.Storage)
		c := t.spoolable(false)
		return c.shards > 0 && t.scannable(&c) == ""
	}
	step := int64(16 << 20)
	for step < s.MemoryBytes/16 {
		step *= 2
	}
	few, most := s.MemoryBytes/step, mostMemory/step
	if spools(most * step) {
		return 0
	}
	for few+1 < most {
		if middle := (few + most) / 2; spools(middle * step) {
			few = middle
		} else {
			most = middle
		}
	}
	return most * step
}

// mostMemory is the most memory that a machine is assumed to have.
const mostMemory = 1 << 42

const (
	leastPieceBytes = 8 << 10
	// bytesAPiece is the memory of what is kept per piece.
	bytesAPiece = 24
)

// FinePieceBytes returns the size of pieces that are loaded for one record at a time: small, as
// long as their tables take little of the memory.
func (c *Choice) FinePieceBytes(memoryBytes int64, pieceBytes uint64) uint64 {
	tables := uint64(memoryBytes / 16)
	least := max(leastPieceBytes, uint64(c.bytes)/max(tables/bytesAPiece, 1))
	return min(pieceBytes, least)
}

// choosePlain chooses if no shard is compressed: scan if it reads each piece once, else gather,
// which reads each record once with any memory.
func (s *Sizes) choosePlain(asked spec.Read) Choice {
	scan := func(reason string) Choice {
		return Choice{Strategy: spec.ReadScan, Reason: "no shard is compressed, and " + reason}
	}
	gather := func(reason string) Choice { return Choice{Strategy: spec.ReadGather, Reason: reason} }
	if asked == spec.ReadGather {
		c := gather("asked for")
		c.Chunks = s.keepsOpen()
		return c
	}
	if s.ByRequests() {
		return s.chooseRequests()
	}
	waits := s.waiting()
	switch {
	case s.Fits():
		return scan("the dataset fits in memory")
	case s.Order.Shuffle == spec.ShuffleNone:
		return scan("shards are read from front to back")
	case s.readsCostNothing():
		return gather("no shard is compressed, and reading neighbouring records with each one would save nothing")
	case waits <= s.scanBudget():
		return scan("the shuffle's waiting records fit in memory")
	}
	return gather(fmt.Sprintf("no shard is compressed, and about %s of records wait in the shuffle, too much for memory",
		humanize.IBytes(uint64(waits))))
}

// scanBudget returns up to how many waiting bytes scan is better. The fuller the budget, the more
// often pieces are copied and dropped; if single reads cost much, that is still better than one
// read per record.
func (s *Sizes) scanBudget() int64 {
	switch s.Storage.Kind {
	case storage.KindDisk, storage.KindNetwork:
		return s.Limits.CacheBytes / 5 * 4
	}
	return s.Limits.CacheBytes / 2
}

// readsCostNothing reports whether many small reads cost no more than a large one: then no gap is
// worth reading across, and gather needs less memory.
func (s *Sizes) readsCostNothing() bool {
	switch s.Storage.Kind {
	case storage.KindDisk, storage.KindNetwork:
		return false
	}
	return s.Storage.GapBytes == 0
}
