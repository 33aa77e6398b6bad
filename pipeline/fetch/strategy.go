package fetch

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/fetch/spool"
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
	// Engine reads the spool. It stays the caller's. nil where there is none.
	Engine uring.Engine
}

// Choice is how the shards of a dataset are read, and why.
type Choice struct {
	Strategy   spec.Read
	Reason     string   // in words
	SpoolBytes int64    // that are reserved, 0 where nothing is spooled
	FewerLanes string   // what fewer lanes would need, in words; "" where that is not less
	spooled    []uint64 // a bit a shard; nil when none is
	bytes      int64    // of all shards, decoded
}

// spools says whether a shard is spooled.
func (c *Choice) spools(shard int) bool {
	return c.spooled != nil && c.spooled[shard/64]&(1<<(shard%64)) != 0
}

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

// survey looks at the shards. all takes those that are entered often, too.
func (f *Fetcher) survey(all bool) compressed {
	c := compressed{bits: make([]uint64, (f.index.Shards()+63)/64)}
	often := f.entering()
	for i := range f.index.Shards() {
		s := f.index.Shard(i)
		records := f.recordsOf(s)
		c.all += s.DecodedBytes
		if s.Codec == nil || records == 0 {
			continue
		}
		c.compressed++
		c.members += s.Members
		c.decoded += s.DecodedBytes
		if !all && often.enough(&s) {
			continue
		}
		c.bits[i/64] |= 1 << (i % 64)
		c.shards++
		c.records += records
		c.any += s.Records
		c.total += s.DecodedBytes
		c.rounded += spool.Round(s.DecodedBytes)
		c.largest = max(c.largest, spool.Round(s.DecodedBytes))
		c.scattered = c.scattered || f.chunksOf(&s) > 1
	}
	return c
}

// chunksOf is about how many chunks of the order a compressed shard is: they end
// where they are full, and at entry points only.
func (f *Fetcher) chunksOf(s *catalog.Shard) uint64 {
	record := max(uint64(s.DecodedBytes)/max(s.Records, 1), 1)
	full := max(min(f.config.PieceRecords, f.config.PieceBytes/record), 1)
	return min(s.EntryPoints, (s.Records+full-1)/full)
}

// need is about how much of the shards is open at a time in an order: all of it
// where the shards' chunks are permuted; else for each lane the shard that it goes through, and those before it whose last records
// still wait. The last of R records leaves a buffer of B after about B·ln R
// turns. One more is read ahead.
//
// It is not lanes + 1 shards, because a reservoir lets go of a shard late. Of 200
// shards in the default order (16384 records in 32 lanes), so many are open at a
// time, between their first and their last record, by the order alone (the peak
// of three epochs; TestASpoolHasRoomForTheShardsThatAnOrderHasOpen):
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

// scannable says why the shards can be scanned within memory, or "".
func (f *Fetcher) scannable(c *compressed) string {
	o, budget := f.config.Order, f.limits.cache
	places := int64(max(f.config.Spool.Places, 1))
	switch {
	case c.compressed == 0:
		return "no compressed shard has records"
	case c.decoded <= budget/2 && f.fits():
		return "the compressed shards fit in memory, decoded"
	case c.shards == 0:
		return fmt.Sprintf("decoding can start at %d places in the %d compressed shards, every %s (decoded)",
			c.members, c.compressed, humanize.IBytes(uint64(c.decoded)/max(c.members, 1)))
	case o.Shuffle == spec.ShuffleFull, f.begunAgain(c) > mostDecodedAgain:
		return ""
	case o.Shuffle == spec.ShuffleNone:
		if places == 1 || places <= min(int64(f.config.Decoders), f.limits.decoder/f.held.decoder) {
			return "shards are read from front to back"
		}
		return ""
	}
	// What waits in the buffer, and in the pieces it came with.
	lanes := float64(o.Lanes) * float64(places)
	waiting := float64(o.SizeRecords)*float64(c.total)/float64(c.any)*1.5 + lanes*float64(f.held.decoder+int64(f.config.PieceBytes)) + float64(f.waitingTables())
	if waiting <= float64(budget)/2 && 2*lanes <= float64(f.config.Decoders) {
		return "what waits in the shuffle buffer fits in memory"
	}
	return ""
}

// decoderBytes is about what a decoder holds.
const decoderBytes = 1 << 20

// Choose decides how shards are read where a strategy is asked for ("" for
// scan), from the catalog and the settings alone. It makes no spool.
func (f *Fetcher) Choose(asked spec.Read) (Choice, error) {
	switch {
	case asked == spec.ReadScan || asked == "":
		return Choice{Strategy: spec.ReadScan, Reason: "asked for"}, nil
	case f.wanted == nil:
		return f.choosePlain(asked), nil
	case asked == spec.ReadGather:
		c, err := f.chooseCompressed(spec.ReadAuto)
		c.Reason = "gather was asked for, but there are compressed shards, whose records can't be read one by one; " + c.Reason
		return c, err
	}
	return f.chooseCompressed(asked)
}

// chooseCompressed chooses where there are compressed shards. The others, if
// there are any, are read the same way: records of both kinds go out in turn.
func (f *Fetcher) chooseCompressed(asked spec.Read) (Choice, error) {
	scan := func(reason string) (Choice, error) { return Choice{Strategy: spec.ReadScan, Reason: reason}, nil }
	c := f.survey(asked == spec.ReadSpool)
	if why := f.scannable(&c); asked == spec.ReadAuto && why != "" || c.shards == 0 {
		return scan(why)
	}
	need := c.need(f.config.Order, f.config.Spool.Places)
	fewer := c.fewerLanes(f.config.Order, f.config.Spool.Places)
	capacity := need
	if most := f.config.Spool.MaxBytes; most > 0 {
		if capacity = min(most&^(spool.AlignBytes-1), c.rounded); capacity < need {
			return Choice{FewerLanes: fewer}, fmt.Errorf("--spool-max (%s) is less than the %s that the order needs at a time, of %d compressed shards with up to %s decoded: raise it",
				humanize.IBytes(uint64(most)), humanize.IBytes(uint64(need)), c.shards, humanize.IBytes(uint64(c.largest)))
		}
	}
	reason := "asked for"
	if asked == spec.ReadAuto {
		reason = fmt.Sprintf("%d compressed shards of few gzip members, zstd or lz4 frames (%s decoded) are more than memory holds in this order", c.shards, humanize.IBytes(uint64(c.total)))
	}
	return Choice{Strategy: spec.ReadSpool, Reason: reason, spooled: c.bits, SpoolBytes: capacity, FewerLanes: fewer, bytes: c.all}, nil
}

const (
	leastPieceBytes = 8 << 10
	// bytesAPiece is the memory of what there is for each.
	bytesAPiece = 24
)

// finePieceBytes is the size of pieces of which one record at a time is
// wanted: small, as long as their tables take little of the memory.
func (c *Choice) finePieceBytes(cfg *Config) uint64 {
	tables := uint64(cfg.MemoryBytes / 16)
	least := max(leastPieceBytes, uint64(c.bytes)/max(tables/bytesAPiece, 1))
	return min(cfg.PieceBytes, least)
}

// openSpool chooses, and makes the spool where there is to be one. A spool that
// can't be is an error: scanning would decode shards again and again, which
// nobody should find out about by waiting.
func (f *Fetcher) openSpool() error {
	c, err := f.Choose(f.config.Read)
	if err == nil && c.spooled != nil {
		err = f.makeSpool(&c)
	}
	if err != nil {
		if c.FewerLanes != "" {
			err = fmt.Errorf("%w (%s)", err, c.FewerLanes)
		}
		return fmt.Errorf("--read %s: %w; fewer --lanes, a smaller --shuffle-size or more --memory need less, and --read scan needs none but decodes shards again and again", f.config.Read, err)
	}
	f.choice = c
	return nil
}

func (f *Fetcher) makeSpool(c *Choice) error {
	if f.config.Spool.Dir == "" {
		return fmt.Errorf("%s are to be spooled, and there is no directory for that: name one with --spool-dir", humanize.IBytes(uint64(c.SpoolBytes)))
	}
	if f.config.Spool.Engine == nil {
		return errors.New("there is no engine to read the spool with")
	}
	file, err := spool.OpenFile(f.config.Spool.Dir, c.SpoolBytes)
	if err != nil {
		return err
	}
	f.spool = newSpool(f, file)
	return nil
}
