package scan

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/read/choose"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/decode"
	"github.com/lsiofs/lsiofs/pipeline/read/window"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
)

// Config configures a Scanner. Index, Storage, Places, MemoryBytes, Limits, Profile, Decoders,
// LookaheadRecords and ReadTimeout are required.
type Config struct {
	Index   Index
	Storage Storage // of the shards
	// Mapper maps shards whose pieces are in the page cache; nil if nothing is mapped.
	Mapper storage.Mapper
	// Places are the pieces, and the part of their records that readers from Open may ask for.
	Places *chunkmap.Map
	// Sampled means that there may be readers of other parts (OpenPhase). Phase is the number of
	// the part in Places.
	Sampled bool
	Phase   uint64
	// Verifier verifies records that carry checksums; nil if none do.
	Verifier format.Verifier

	// MemoryBytes is the budget for all readers together, and Limits is what each use of it may
	// take.
	MemoryBytes int64
	Limits      choose.Limits
	// Ask is called when memory is used up, with locks held, and reports whether the limit was
	// raised (Scanner.Allow). nil: it never is.
	Ask func() (more bool)
	// Held is how many pieces are in use, and the bytes of their shards.
	Held choose.Held
	// HoldsAll means that all compressed shards, decoded, stay in memory.
	HoldsAll bool
	// MostWanted is how many pieces may be wanted at a time, 0 for any number. Sweeps means that a
	// decoder continues to the last of these. See choose.Sizes.Lookahead.
	MostWanted int64
	Sweeps     bool

	// Choice determines which shards are spooled. If any are, Spool is the shelf for their decoded
	// bytes. New takes ownership of it.
	Choice choose.Choice
	Spool  *diskcache.Shelf

	// Decoders is the maximum number of paused decoders.
	Decoders int
	// LookaheadRecords is how many records of compressed shards, for all readers together, are
	// looked up in advance, so that a decoder stores what will be needed of the data it passes.
	LookaheadRecords int
	// ReadTimeout is how long a reader waits for a piece before it gets pinned.ErrTimeout; the read
	// itself continues.
	ReadTimeout time.Duration
	// Dry, if set, means that reads return no data.
	Dry *Dry
	// Profile describes which reads suit the storage. It doesn't affect which bytes are returned.
	Profile profile.Profile

	// Plan tells the storage what will be read; nil if the storage is not a storage.Planner. The
	// caller sets its Planner and bounds, the Scanner sets the rest.
	Plan *window.Plan

	// Meter measures where time goes; if nil, the Scanner makes one.
	Meter *meter.Meter
	Log   *slog.Logger // nil for none
	// Note, if not nil, is called with each error, also if no reader waits for what failed. It is
	// called concurrently, with locks held: it must not block, nor call the Scanner.
	Note func(error)
	// Released, if not nil, is called with memory that is about to be released: tests overwrite it.
	Released func([]byte)
}

// Dry is what a Scanner needs in order to run without data. Storage and the decoders only count
// what is asked of them. Records are returned with their sizes, but their memory is never touched.
// It can't be combined with a Verifier, or with a storage that maps.
type Dry struct {
	// Raw is read by decoders. It completes reads at once.
	Raw Storage
	// Complete completes the oldest read of Config.Storage, and reports whether there was one.
	// Waiting readers call it until what they wait for has arrived.
	Complete func() bool
}

// Index locates records and shards; a catalog is one. It is safe for concurrent use.
type Index interface {
	decode.Index
	// Extents fills dst with the extent of each record.
	Extents(records []uint64, dst []catalog.Extent)
	Shards() int
}

// Storage reads ranges of shards; a storage.Storage is one.
type Storage interface {
	// Submit begins reads, each of which calls its Done once.
	Submit(reads []*storage.Read)
}

// nearRecords returns the distance in records up to which a reader counts as reading on.
func (c *Config) nearRecords() uint64 {
	return window.Near(c.Held.Bytes / int64(max(c.Held.Records, 1)))
}

func (c *Config) validate() error {
	var problems []error
	for _, x := range []struct {
		is   bool
		what string
	}{
		{c.Index != nil, "an index"}, {c.Places != nil, "pieces"},
		{c.Choice.Spooled == nil || c.Spool != nil, "a spool for the shards that go through it"},
	} {
		if !x.is {
			problems = append(problems, fmt.Errorf("scan: there must be %s", x.what))
		}
	}
	for _, x := range []struct {
		n    int64
		what string
	}{
		{c.MemoryBytes, "memory (%d bytes)"},
		{c.Limits.SegmentBytes, "memory of a segment (%d bytes)"}, {int64(c.Decoders), "decoders (%d)"},
		{int64(c.LookaheadRecords), "records looked at in advance (%d)"}, {int64(c.ReadTimeout), "read timeout (%d ns)"},
	} {
		if x.n <= 0 {
			problems = append(problems, fmt.Errorf("scan: "+x.what+" must be > 0", x.n))
		}
	}
	if err := c.Profile.Validate(); err != nil {
		problems = append(problems, fmt.Errorf("scan: storage profile: %w", err))
	}
	return errors.Join(problems...)
}

// layoutOf returns the layout of a piece.
func (c *Config) layoutOf(number int) (shard int, l chunkmap.Layout) {
	return c.layoutWith(c.Places.Part, number)
}

// layoutWith is layoutOf with the records of another part.
func (c *Config) layoutWith(part chunkmap.Part, number int) (shard int, l chunkmap.Layout) {
	return c.Places.Of(part).Layout(number, func(shard int) (gapBytes int64, wide chunkmap.Widener) {
		return choose.GapBytes(c.Index.Shard(shard).Codec != nil, c.Sampled, c.Profile), nil
	})
}

// reads splits a piece into reads that suit the storage.
func (c *Config) reads(l *chunkmap.Layout, read func(chunkmap.Range)) {
	l.Reads(c.Profile.ReadBytes, c.Profile.AlignBytes, read)
}
