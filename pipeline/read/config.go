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

// Config of a Fetcher.
type Config struct {
	// MemoryBytes is the budget for everything that is kept of the data, for
	// all readers together.
	MemoryBytes int64
	// Memory is that budget where several fetchers have it together; MemoryBytes is then
	// all of it, whatever a fetcher's part is. nil: the fetcher has one of its own.
	Memory *Memory
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
	// LookaheadBytes is how far ahead of their readers a storage.Planner is told what comes,
	// of all readers together; 0: as far as their rates ask for (choose.Reach).
	LookaheadBytes int64
	// Read is the strategy, "" for spec.ReadScan. All but that look at Order and
	// Spool to choose it.
	Read  spec.Read
	Order spec.Order
	// Part says which records the readers of Open may ask for; nil: all. Where Order has a
	// sample, it is one phase of it, of number Phase, which stands for all in what is
	// estimated; OpenPhase gives readers of others.
	Part  Part
	Phase uint64
	Spool SpoolConfig
	// Again says that a record may come at several places of a sequence.
	Again bool
	// Storage says which reads the shards' storage likes; the zero value
	// stands for profile.Defaults of an unknown one. No byte depends on it.
	Storage profile.Profile
	// Expecter is told what readers are going to read, where records are gathered; nil where
	// the storage does not want to know.
	Expecter storage.Expecter
	// Meter counts where time goes; nil for one of its own.
	Meter *meter.Meter
	// Changes keeps which shards have changed; nil: nothing does.
	Changes *Changes
	Log     *slog.Logger

	released func([]byte) // tests overwrite what is given back
}

// Memory is a budget that several fetchers share. Those that are read have equal parts; one
// that nobody reads gives up nearly all of its own when another one needs it.
type Memory = budget.Shared

// NewMemory is a budget of so many bytes.
func NewMemory(bytes int64) *Memory { return budget.NewShared(bytes) }

// SpoolConfig is where and how compressed shards are spooled.
type SpoolConfig struct {
	// Dir is the directory of the spool; it is made where it does not exist.
	Dir string
	// MaxBytes bounds the spool, 0 for what the order needs. It is one bound for all fetchers
	// that share their memory.
	MaxBytes int64
	// Places is how many places of the order are read at a time: 0 or 1, or the
	// workers of a contiguous deal.
	Places uint64
	// Engine reads the spool. It stays the caller's. nil where there is none.
	Engine uring.Engine
	// Keep, if set, makes a shelf in a disk cache, where decoded shards outlive the fetcher.
	// Dir and MaxBytes are for the case that it can't. It returns nil and no error where there
	// is no cache.
	Keep func(KeptShards) (*diskcache.Shelf, error)
	// Plain, if set, presents shards that are all whole in the disk cache as objects that are
	// not compressed, nil where not all are. decode is for what the cache loses of them.
	Plain func(k KeptShards, decode func(shard int, write func([]byte) error) error) (*diskcache.Plain, error)
}

// KeptShards are the shards that are decoded onto a shelf.
type KeptShards struct {
	Shards              []int
	NeedBytes, AllBytes int64 // decoded: that the order needs at a time, and of all of them
	MostTableBytes      int64
	// Decoding returns a shard's object, and what its decoded bytes depend on besides.
	Decoding     func(shard int) (raw storage.Object, how string)
	DecodedBytes func(shard int) int64
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

// setDefaults fills in what may be left out.
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
	// defaultDecoders is for twice the default number of lanes.
	defaultDecoders = 64
	// defaultLookahead is four times the default size of the shuffle: of a
	// reservoir's records one in 50 stays longer.
	defaultLookahead = 64 << 10
)
