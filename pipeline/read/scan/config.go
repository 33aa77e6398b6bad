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

// Config of a Scanner. Index, Storage, Places, MemoryBytes, Limits, Profile, Decoders,
// LookaheadRecords and ReadTimeout are needed.
type Config struct {
	Index Index
	// Storage reads shards. Where it is a storage.Mapper, pieces in the page cache are
	// mapped.
	Storage Storage
	// Places are the pieces, and the part of their records that the readers of Open may ask
	// for.
	Places *chunkmap.Map
	// Sampled says that readers of other parts may come (OpenPhase). Phase is the number of
	// that in Places.
	Sampled bool
	Phase   uint64
	// Verifier checks records that carry checksums; nil where none do.
	Verifier format.Verifier

	// MemoryBytes is the budget for all readers together, and Limits what each use of it
	// may take.
	MemoryBytes int64
	Limits      choose.Limits
	// Ask is called where memory is used up, with locks held, and says whether there is more
	// now (Scanner.Allow); nil: there never is.
	Ask func() (more bool)
	// Held says how many pieces are in use, and the bytes of their shards.
	Held choose.Held
	// HoldsAll says that all compressed shards, decoded, stay in memory.
	HoldsAll bool
	// MostWanted is how many pieces may be wanted at a time, 0 for any number, and Sweeps
	// says that a decoder goes on to the last of these: see choose.Sizes.Lookahead.
	MostWanted int64
	Sweeps     bool

	// Choice tells which shards are spooled. Then there is a Spool, the Scanner's from New
	// on: it is where their decoded bytes are kept.
	Choice choose.Choice
	Spool  *diskcache.Shelf

	// Decoders is how many paused decoders are kept at most.
	Decoders int
	// LookaheadRecords is how many records of compressed shards, of all readers together,
	// are looked at in advance to know what a decoder keeps on its way.
	LookaheadRecords int
	// ReadTimeout is after how long a reader that waits for a piece gets
	// pinned.ErrTimeout; the read itself goes on.
	ReadTimeout time.Duration
	// Dry, if set, means that no bytes come.
	Dry *Dry
	// Profile says which reads the storage likes: no byte depends on it.
	Profile profile.Profile

	// Plan tells the storage what comes: its Planner and bounds are set, the rest is the
	// Scanner's. nil where the storage does not want to know.
	Plan *window.Plan

	// Meter counts where time goes; nil for one of its own.
	Meter *meter.Meter
	Log   *slog.Logger // nil for none
	// Note is told of what went wrong, also where nobody waits for it, and may be nil.
	// It is called by several goroutines at a time, with locks held: it must
	// not block, nor call the Scanner.
	Note func(error)
	// Released is told of memory that is given back, before it is, and may be nil: tests
	// overwrite it.
	Released func([]byte)
}

// Dry is what a Scanner needs in order to run without bytes. Storage and the decoders only count what is
// asked of them. Records are lent with their sizes, but their memory is never touched. A Verifier does
// not go with it, nor does a storage that maps.
type Dry struct {
	// Raw is read by decoders. It completes reads at once.
	Raw Storage
	// Complete completes the oldest read of Config.Storage, and reports whether there was one. It is called
	// by readers that wait, until what they wait for has come.
	Complete func() bool
}

// Index says what there is: a catalog does. It is safe for concurrent use.
type Index interface {
	decode.Index
	// Extents fills dst with where each of the records lies.
	Extents(records []uint64, dst []catalog.Extent)
	Shards() int
}

// Storage reads ranges of shards; a storage.Storage is one.
type Storage interface {
	// Submit begins reads, each of which calls its Done once.
	Submit(reads []*storage.Read)
}

// nearRecords is within how many records of where it was a reader counts as reading on.
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

// reads cuts a piece into the reads that the storage likes.
func (c *Config) reads(l *chunkmap.Layout, read func(chunkmap.Range)) {
	l.Reads(c.Profile.ReadBytes, c.Profile.AlignBytes, read)
}
