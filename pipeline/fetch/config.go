package fetch

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/plan"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
)

// Config of a Fetcher.
type Config struct {
	// MemoryBytes is the budget for everything that is kept of the data, for
	// all readers together.
	MemoryBytes int64
	// ReadTimeout is after how long a reader that waits for a range gets
	// ErrTimeout; the read itself goes on.
	ReadTimeout time.Duration
	// PieceBytes and PieceRecords are the order's chunk_bytes and
	// chunk_records: pieces are then what the order calls chunks.
	PieceBytes, PieceRecords uint64
	// Decoders is how many paused decoders of compressed shards are kept at
	// most, 0 for 64; the order's lanes, if that is more, is a good number.
	Decoders int
	// LookaheadRecords is how many records of compressed shards, of all
	// readers together, are looked at in advance to know what a decoder keeps
	// on its way, 0 for 65536; some times the shuffle's size is a good number.
	LookaheadRecords int
	// Read is the strategy, "" for spec.ReadScan. All but that look at Order and
	// Spool to choose it.
	Read  spec.Read
	Order spec.Order
	// Part says which records may be asked for; nil: all.
	Part  Part
	Spool SpoolConfig
	// Storage says which reads the shards' storage likes; the zero value
	// stands for profile.Defaults of an unknown one. No byte depends on it.
	Storage profile.Profile
	// Meter counts where time goes; nil for one of its own.
	Meter *meter.Meter
	Log   *slog.Logger
}

// Part is some of a catalog's records: the others are never asked for, so they
// are neither waited for nor kept. It is safe for concurrent use.
type Part interface {
	Has(record uint64) bool
	// Count is how many of the records from … to-1 are of the part.
	Count(from, to uint64) uint64
}

// everything is the part that has all records.
type everything struct{}

func (everything) Has(uint64) bool              { return true }
func (everything) Count(from, to uint64) uint64 { return to - from }

// PlanConfig is what a planner of reads of such a storage goes by.
func PlanConfig(p profile.Profile) plan.Config {
	p = p.Or()
	return plan.Config{MergeGapBytes: p.GapBytes, MaxReadBytes: p.ReadBytes, AlignBytes: p.AlignBytes}
}

func (c *Config) validate() error {
	if c.MemoryBytes <= 0 {
		return fmt.Errorf("memory budget (%d bytes) must be > 0", c.MemoryBytes)
	}
	if c.ReadTimeout <= 0 {
		return fmt.Errorf("read timeout (%v) must be > 0", c.ReadTimeout)
	}
	if c.PieceBytes == 0 || c.PieceRecords == 0 {
		return fmt.Errorf("piece bytes (%d) and piece records (%d) must be > 0", c.PieceBytes, c.PieceRecords)
	}
	if c.Decoders < 0 {
		return fmt.Errorf("decoders (%d) must be >= 0", c.Decoders)
	}
	if err := c.Storage.Or().Validate(); err != nil {
		return fmt.Errorf("storage profile: %w", err)
	}
	if c.LookaheadRecords < 0 {
		return fmt.Errorf("lookahead records (%d) must be >= 0", c.LookaheadRecords)
	}
	return nil
}

const (
	// Segments are large enough for huge pages, small enough that a small
	// budget still has 64 of them.
	maxSegmentBytes = 2 << 20
	minSegmentBytes = 64 << 10
	// decodedGapBytes is up to where bytes of a decoded shard between two
	// records of a piece come along: they are decoded anyhow, and cost memory
	// only. Of other shards it is the storage's gap.
	decodedGapBytes = 1 << 20
	// defaultDecoders is for twice the default number of lanes.
	defaultDecoders = 64
	// defaultLookahead is four times the default size of the shuffle: of a
	// reservoir's records one in 50 stays longer.
	defaultLookahead = 64 << 10
)

// limits are the bounds that follow from the budget.
type limits struct {
	segment  int64 // bytes of a segment
	tables   int64 // of the tables of a segment's pieces: with more the next is begun
	cache    int64 // segments are freed above so many bytes
	windows  int64 // of what all readers read ahead together
	inFlight int64 // of bytes that are read ahead and have not come yet
	decoder  int64 // of all decoders together
	rawBlock int   // a decoder's reads
	loanSegs int   // so many segments are pinned by one Lend
}

// segmentBytes is the size of the segments of a budget.
func segmentBytes(budget int64) int64 {
	return min(max(budget/64, minSegmentBytes), maxSegmentBytes) &^ 4095
}

// newLimits are the limits of a budget of which tables take some, for a storage.
// Twice what keeps the storage busy is in flight: readers ask for more only
// when they come to it, and meanwhile nothing else would be waiting.
func newLimits(budget, tables int64, p profile.Profile) limits {
	l := limits{segment: segmentBytes(budget)}
	l.cache = max(budget-tables, budget/2)
	if l.cache >= 8*l.segment {
		l.cache -= 2 * l.segment // one to copy into, one spare
	}
	// What is dropped to make room is a segment, and of the shortest records one
	// could hold all there are.
	l.tables = min(4*l.segment, max(l.segment, l.cache/16))
	l.windows = l.cache / 8
	l.inFlight = min(p.Ahead.QueuedBytes, 2*p.InFlightBytes, l.cache/4)
	l.decoder = l.cache / 2
	l.rawBlock = int(min(max(budget/512, 16<<10), p.Ahead.DecodeBytes))
	l.loanSegs = int(min(max(l.cache/l.segment/8, 1), 64))
	return l
}
