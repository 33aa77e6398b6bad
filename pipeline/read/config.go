package read

import (
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/plan"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
	"github.com/lsiofs/lsiofs/uring"
)

// Config configures a Fetcher.
type Config struct {
	// MemoryBytes is the budget for all data that is kept in memory, for all readers together.
	MemoryBytes int64
	// Memory is that budget if several fetchers share it; MemoryBytes must then be all of it,
	// whatever this fetcher's share. If nil, the fetcher has a budget of its own.
	Memory *Memory
	// ReadTimeout is how long a reader waits for a range before it gets ErrTimeout; the read itself
	// continues.
	ReadTimeout time.Duration
	// PieceBytes and PieceRecords are the order's chunk_bytes and chunk_records, so that pieces are
	// the order's chunks.
	PieceBytes, PieceRecords uint64
	// Decoders is the maximum number of paused decoders of compressed shards, 0 for 64. The order's
	// number of lanes is a good value if it is larger.
	Decoders int
	// LookaheadRecords is how many records of compressed shards, for all readers together, are
	// looked up in advance, so that a decoder keeps what will be needed of the data it passes. 0
	// means 65536; a few times the shuffle size is a good value.
	LookaheadRecords int
	// LookaheadBytes is how far ahead of all readers together a storage.Planner is told what will
	// be read; 0: as far as their rates require (choose.Reach).
	LookaheadBytes int64
	// Read is the strategy, "" for spec.ReadScan. All others depend on Order and Spool.
	Read  spec.Read
	Order spec.Order
	// Part is the set of records that readers from Open may ask for; nil means all. If Order has a
	// sample, Part is one of its phases, the one numbered Phase, which stands for all of them in
	// estimates; OpenPhase opens readers of the others.
	Part  Part
	Phase uint64
	Spool SpoolConfig
	// Again means that a record may occur more than once in a sequence.
	Again bool
	// Storage describes which reads suit the shards' storage; the zero value stands for
	// profile.Defaults of an unknown one. It doesn't affect which bytes are returned.
	Storage profile.Profile
	// Meter measures where time goes; if nil, the fetcher makes one.
	Meter *meter.Meter
	// Changes, if not nil, records which shards have changed.
	Changes *Changes
	Log     *slog.Logger

	released func([]byte) // tests overwrite released memory
}

// Memory is a budget that several fetchers share. Fetchers that are being read have equal shares;
// an idle one gives up nearly all of its share when another one needs it.
type Memory = budget.Shared

// NewMemory returns a budget of that many bytes.
func NewMemory(bytes int64) *Memory { return budget.NewShared(bytes) }

// SpoolConfig configures where and how compressed shards are spooled.
type SpoolConfig struct {
	// Dir is the directory of the spool; it is created if it does not exist.
	Dir string
	// MaxBytes is the maximum size of the spool, 0 for what the order needs. It is one limit for
	// all fetchers that share their memory.
	MaxBytes int64
	// Places is the number of places of the order that are read at the same time: 0 or 1, or the
	// number of workers if the assignment is contiguous.
	Places uint64
	// Engine reads the spool, and is closed by the caller. It is nil if there is none.
	Engine uring.Engine
	// Keep, if set, returns a shelf in a disk cache, where decoded shards outlive the fetcher, or
	// nil and no error if there is no cache. Dir and MaxBytes are used if it returns no shelf.
	Keep func(KeptShards) (*diskcache.Shelf, error)
	// Plain, if set, presents the shards as uncompressed objects if the disk cache holds all of
	// them whole, and returns nil otherwise. decode restores data that the cache loses.
	Plain func(k KeptShards, decode func(shard int, write func([]byte) error) error) (*diskcache.Plain, error)
}

// KeptShards are the shards that are decoded to a shelf.
type KeptShards struct {
	Shards              []int
	NeedBytes, AllBytes int64 // decoded: what the order needs at a time, and all shards together
	MostTableBytes      int64
	// Decoding returns a shard's object, and what else its decoded bytes depend on.
	Decoding     func(shard int) (raw storage.Object, how string)
	DecodedBytes func(shard int) int64
}

// Part is a subset of a catalog's records. The others are never asked for, so they are neither
// waited for nor kept. It is safe for concurrent use.
type Part interface {
	Has(record uint64) bool
	// Count returns how many of the records from … to-1 are in the part.
	Count(from, to uint64) uint64
}

// everything is the part with all records.
type everything struct{}

func (everything) Has(uint64) bool              { return true }
func (everything) Count(from, to uint64) uint64 { return to - from }

// PlanConfig returns the read planner's configuration for a storage with profile p.
func PlanConfig(p profile.Profile) plan.Config {
	p = p.Or()
	if p.Apart {
		return plan.Config{MaxReadBytes: math.MaxInt64, AlignBytes: 1, MaxVectors: 1}
	}
	return plan.Config{MergeGapBytes: p.GapBytes, MaxReadBytes: p.ReadBytes, AlignBytes: p.AlignBytes}
}

func (c *Config) validate() error {
	if c.MemoryBytes <= 0 {
		return fmt.Errorf("memory budget (%d bytes) must be > 0", c.MemoryBytes)
	}
	if c.Memory != nil && c.Memory.Bytes() != c.MemoryBytes {
		return fmt.Errorf("the shared memory has %d bytes and the budget (%d bytes) must be the same", c.Memory.Bytes(), c.MemoryBytes)
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
	if c.LookaheadBytes < 0 {
		return fmt.Errorf("lookahead (%d bytes) must be >= 0", c.LookaheadBytes)
	}
	if c.LookaheadRecords < 0 {
		return fmt.Errorf("lookahead records (%d) must be >= 0", c.LookaheadRecords)
	}
	return nil
}

// setDefaults fills in optional fields.
func (c *Config) setDefaults() {
	if c.Decoders == 0 {
		c.Decoders = defaultDecoders
	}
	if c.LookaheadRecords == 0 {
		c.LookaheadRecords = defaultLookahead
	}
	c.Storage = c.Storage.Or()
	if c.Memory == nil {
		c.Memory = NewMemory(c.MemoryBytes)
	}
	if c.Part == nil {
		c.Part = everything{}
	}
	if c.Meter == nil {
		c.Meter = new(meter.Meter)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

const (
	// defaultDecoders is twice the default number of lanes.
	defaultDecoders = 64
	// defaultLookahead is four times the default shuffle size: one record in 50 stays in a
	// reservoir longer than that.
	defaultLookahead = 64 << 10
)
