package gather

import (
	"errors"
	"fmt"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/plan"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/window"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
)

// Config configures a Gatherer. Index, Storage, Memory, Ahead, Plan and ReadTimeout are required.
type Config struct {
	Index   Index
	Storage Storage
	// Memory holds the records of all readers together. The caller owns it, and closes it after the
	// Gatherer.
	Memory *budget.Blocks
	// BesideBytes is the part of the budget that is not in Memory: tables of pieces.
	BesideBytes int64
	// Ask is called when Memory has no room, with locks held, and reports whether it has more now;
	// nil: it never has.
	Ask func() (more bool)
	// Plan describes which reads suit the storage. It doesn't affect which bytes are returned. The
	// zero value is not valid; plan.DefaultConfig is.
	Plan plan.Config
	// Ahead is how far ahead of a reader the storage should be read.
	Ahead profile.Ahead
	// Told tells the storage what will be read; its fields must be set. nil if the storage is not
	// a storage.Planner.
	Told *window.Plan
	// Expecter is told what readers are going to submit; nil if the storage is not a storage.Expecter.
	Expecter storage.Expecter
	// Dry, if set, means that reads return no data: Storage only counts what is asked of it.
	// Records are returned with their sizes, but their memory is never touched. A waiting reader
	// calls Dry, which completes the oldest read and reports whether there was one, until what it
	// waits for has arrived. It can't be combined with a Verifier.
	Dry func() bool
	// ReadTimeout is how long a reader waits for a record before it gets pinned.ErrTimeout; the
	// read itself continues.
	ReadTimeout time.Duration
	// Verifier verifies records that carry checksums; nil if none do.
	Verifier format.Verifier
	// Meter measures where time goes; if nil, the Gatherer makes one.
	Meter *meter.Meter
	// Note, if not nil, is called with each error, also if no reader waits for what failed. It is
	// called concurrently, with locks held: it must not block, nor call the Gatherer.
	Note func(error)
}

// Index locates records and shards; a catalog is one. It is safe for concurrent use.
type Index interface {
	Shards() int
	Shard(i int) catalog.Shard
	// Extents fills dst with the extent of each record.
	Extents(records []uint64, dst []catalog.Extent)
}

// Storage reads ranges of shards; a storage.Storage is one.
type Storage interface {
	// Submit begins reads, each of which calls its Done once.
	Submit(reads []*storage.Read)
}

func (c *Config) validate() error {
	var problems []error
	for _, x := range []struct {
		is   bool
		what string
	}{{c.Index != nil, "an index"}, {c.Storage != nil, "a storage"}, {c.Memory != nil, "memory"}} {
		if !x.is {
			problems = append(problems, fmt.Errorf("gather: there must be %s", x.what))
		}
	}
	if c.ReadTimeout <= 0 {
		problems = append(problems, fmt.Errorf("gather: read timeout (%v) must be > 0", c.ReadTimeout))
	}
	if a := c.Ahead; a.Bytes <= 0 || a.FirstStretchBytes <= 0 || a.StretchBytes <= 0 {
		problems = append(problems, fmt.Errorf("gather: bytes ahead (%d) and of stretches (%d, %d) must be > 0", a.Bytes, a.FirstStretchBytes, a.StretchBytes))
	}
	if err := c.Plan.Validate(); err != nil {
		problems = append(problems, fmt.Errorf("gather: %w", err))
	}
	return errors.Join(problems...)
}
