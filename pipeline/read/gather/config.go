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

// Config of a Gatherer. Index, Storage, Memory and ReadTimeout are needed.
type Config struct {
	Index   Index
	Storage Storage
	// Memory is what records are kept in, for all readers together. It is the
	// caller's, who closes it after the Gatherer.
	Memory *budget.Blocks
	// BesideBytes is what the budget has beside Memory: tables of pieces.
	BesideBytes int64
	// Ask is called where Memory has no room, with locks held, and says whether it has more
	// now; nil: it never has.
	Ask func() (more bool)
	// Plan says which reads the storage likes: no byte depends on it. The zero value
	// is not valid; plan.DefaultConfig is.
	Plan plan.Config
	// Ahead says how far ahead of a reader the storage likes to be read.
	Ahead profile.Ahead
	// Told tells the storage what comes; its fields are set. nil where the storage does not want
	// to know.
	Told *window.Plan
	// Expecter is told what readers are going to submit; nil where the storage does not want to
	// know.
	Expecter storage.Expecter
	// Dry, if set, means that no bytes come: Storage only counts what is asked of it. Records are lent
	// with their sizes, but their memory is never touched. A reader that waits calls Dry, which completes
	// the oldest read and reports whether there was one, until what it waits for has come. A Verifier
	// does not go with it.
	Dry func() bool
	// ReadTimeout is after how long a reader that waits for a record gets
	// pinned.ErrTimeout; the read itself goes on.
	ReadTimeout time.Duration
	// Verifier checks records that carry checksums; nil where none do.
	Verifier format.Verifier
	// Meter counts where time goes; nil for one of its own.
	Meter *meter.Meter
	// Note is told of what went wrong, also where nobody waits for it, and may be nil.
	// It is called by several goroutines at a time, with locks held: it must
	// not block, nor call the Gatherer.
	Note func(error)
}

// Index says what there is: a catalog does. It is safe for concurrent use.
type Index interface {
	Shards() int
	Shard(i int) catalog.Shard
	// Extents fills dst with where each of the records lies.
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
