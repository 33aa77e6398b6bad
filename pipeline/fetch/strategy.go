package fetch

import (
	"fmt"
	"math"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/uring"
)

// SpoolConfig is where and how compressed shards are spooled.
type SpoolConfig struct {
	// Dir is the directory of the spool; it is made where it does not exist.
	Dir string
	// MaxBytes bounds the spool, 0 for what the order needs.
	MaxBytes int64
	// Places is how many places of the order are read at a time: 0 or 1, or the
	// workers of a contiguous deal.
	Places uint64
	// Engine reads the spool. It stays the caller's.
	Engine uring.Engine
}

// choice is how the shards of a dataset are read, and why.
type choice struct {
	strategy spec.Read
	reason   string
	spooled  []uint64 // a bit a shard; nil when none is
	capacity int64    // of the spool
	bytes    int64    // of all shards, decoded
}

// compressed is what a choice needs to know of the shards that could be spooled.
type compressed struct {
	bits                    []uint64
	shards, records         uint64
	total, largest, rounded int64 // decoded bytes; rounded is total in the spool
	all                     int64 // of the other shards, too
}

// entryPieces is at most how many pieces lie between two entry points where
// these are often enough to read a shard through them.
const entryPieces = 4

// survey looks at the shards. all takes those with many entry points, too.
func (f *Fetcher) survey(all bool) compressed {
	c := compressed{bits: make([]uint64, (f.index.Shards()+63)/64)}
	for i := range f.index.Shards() {
		s := f.index.Shard(i)
		c.all += s.DecodedBytes
		often := uint64(s.DecodedBytes)/max(s.EntryPoints, 1) <= entryPieces*f.config.PieceBytes
		if s.Codec == nil || s.Records == 0 || often && !all {
			continue
		}
		c.bits[i/64] |= 1 << (i % 64)
		c.shards++
		c.records += s.Records
		c.total += s.DecodedBytes
		c.rounded += spoolRound(s.DecodedBytes)
		c.largest = max(c.largest, spoolRound(s.DecodedBytes))
	}
	return c
}

// need is about how much of the shards is open at a time in an order: for each
// lane the shard that it goes through, and those before it whose last records
// still wait. The last of R records leaves a buffer of B after about B·ln R
// turns. One more is read ahead.
func (c *compressed) need(o spec.Order, places uint64) int64 {
	if c.shards == 0 {
		return 0
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

// scannable says why the shards can be scanned within memory, or "".
func (f *Fetcher) scannable(c *compressed) string {
	o, budget := f.config.Order, f.limits.cache
	switch {
	case c.shards == 0:
		return "no shard is compressed without entry points"
	case c.total <= budget/2:
		return "the compressed shards fit in memory, decoded"
	case o.Shuffle == spec.ShuffleNone && max(f.config.Spool.Places, 1) <= uint64(f.config.Decoders):
		return "shards are read from front to back"
	case o.Shuffle == spec.ShuffleFull:
		return ""
	}
	// What waits in the buffer, and in the pieces it came with.
	lanes := float64(o.Lanes) * float64(max(f.config.Spool.Places, 1))
	waiting := float64(o.SizeRecords)*float64(c.total)/float64(c.records)*1.5 + lanes*(decoderBytes+float64(f.config.PieceBytes))
	if waiting <= float64(budget)/2 && 2*lanes <= float64(f.config.Decoders) {
		return "what waits in the shuffle buffer fits in memory"
	}
	return ""
}

// decoderBytes is about what a decoder holds.
const decoderBytes = 1 << 20

// choose decides how shards are read, from the catalog and the settings alone.
func (f *Fetcher) choose() (choice, error) {
	asked := f.config.Read
	scan := func(reason string) (choice, error) { return choice{strategy: spec.ReadScan, reason: reason}, nil }
	if asked == spec.ReadScan || asked == "" {
		return scan("asked for")
	}
	if f.wanted == nil {
		return f.choosePlain(), nil
	}
	if asked == spec.ReadGather {
		c, err := f.chooseCompressed(spec.ReadAuto)
		c.reason = "gather was asked for, but there are compressed shards, whose records can't be read one by one; " + c.reason
		return c, err
	}
	return f.chooseCompressed(asked)
}

// chooseCompressed chooses where there are compressed shards. The others, if
// there are any, are read the same way: records of both kinds go out in turn.
func (f *Fetcher) chooseCompressed(asked spec.Read) (choice, error) {
	scan := func(reason string) (choice, error) { return choice{strategy: spec.ReadScan, reason: reason}, nil }
	c := f.survey(asked == spec.ReadSpool)
	if why := f.scannable(&c); asked == spec.ReadAuto && why != "" || c.shards == 0 {
		return scan(why)
	}
	need := c.need(f.config.Order, f.config.Spool.Places)
	capacity := need
	if most := f.config.Spool.MaxBytes; most > 0 {
		if capacity = min(most&^(spoolAlign-1), c.rounded); capacity < need {
			return choice{}, fmt.Errorf("--spool-max (%s) is less than the %s that the order needs at a time, of %d compressed shards with up to %s decoded: raise it, or use fewer --lanes, a smaller --shuffle-size or --read scan",
				humanize.IBytes(uint64(most)), humanize.IBytes(uint64(need)), c.shards, humanize.IBytes(uint64(c.largest)))
		}
	}
	reason := "asked for"
	if asked == spec.ReadAuto {
		reason = fmt.Sprintf("%d compressed shards without entry points (%s decoded) are more than memory holds in this order", c.shards, humanize.IBytes(uint64(c.total)))
	}
	return choice{strategy: spec.ReadSpool, reason: reason, spooled: c.bits, capacity: capacity, bytes: c.all}, nil
}

const (
	leastPieceBytes = 8 << 10
	// bytesAPiece is the memory of what there is for each.
	bytesAPiece = 24
)

// finePieceBytes is the size of pieces of which one record at a time is
// wanted: small, as long as their tables take little of the memory.
func (c *choice) finePieceBytes(cfg *Config) uint64 {
	tables := uint64(cfg.MemoryBytes / 16)
	least := max(leastPieceBytes, uint64(c.bytes)/max(tables/bytesAPiece, 1))
	return min(cfg.PieceBytes, least)
}

// openSpool chooses, and makes the spool where there is to be one. With auto, a
// spool that can't be is a warning: a scan gives the same bytes.
func (f *Fetcher) openSpool() error {
	c, err := f.choose()
	var file *spoolFile
	if err == nil && c.spooled != nil {
		if f.config.Spool.Dir == "" {
			err = fmt.Errorf("there is no directory for the spool: name one with --spool-dir")
		} else {
			file, err = openSpoolFile(f.config.Spool.Dir, c.capacity)
		}
	}
	if err != nil {
		if f.config.Read != spec.ReadAuto {
			return fmt.Errorf("--read %s: %w", f.config.Read, err)
		}
		f.log.Warn("compressed shards are not spooled, and will be decoded again and again", "reason", err)
		c = choice{strategy: spec.ReadScan, reason: fmt.Sprintf("spooling would be better, but %v", err)}
	}
	f.choice = c
	if file != nil {
		f.spool = newSpool(f, file)
	}
	return nil
}
