// Package options is what the packages below read are configured with: one Options, which package
// read makes and passes on by pointer. It has the settings of the user of package read, what is
// read, and how package read has decided to read it.
package options

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/choose"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

// ErrTimeout is wrapped if storage has not delivered a range within Options.ReadTimeout.
var ErrTimeout = errors.New("storage has not answered within --read-timeout")

// Options has three parts: settings, which the user of package read sets, and Input and Decisions,
// which package read sets. It does not change once a scanner or gatherer has it.
type Options struct {
	// MemoryBytes is the budget for all data that is kept in memory, for all readers together.
	MemoryBytes int64
	// Memory is that budget if several fetchers share it; MemoryBytes must then be all of it,
	// whatever this fetcher's share. If nil, the fetcher has a budget of its own.
	Memory *budget.Shared
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
	// LookaheadBytes is how far ahead of all readers together a storage that takes hints is told
	// what will be read; 0: as far as their rates require (choose.Reach).
	LookaheadBytes int64
	// Read is the strategy, "" for spec.ReadScan. All others depend on Order and Spool.
	Read  spec.Read
	Order spec.Order
	// Part is the set of records that readers from Open may ask for; nil means all. If Order has a
	// sample, Part is one of its phases, the one numbered Phase, which stands for all of them in
	// estimates; OpenPhase opens readers of the others.
	Part  chunkmap.Part
	Phase uint64
	Spool Spool
	// Again means that a record may occur more than once in a sequence.
	Again bool
	// Profile describes which reads suit the shards' storage; the zero value stands for
	// storage.DefaultProfile of an unknown one. It doesn't affect which bytes are returned.
	Profile storage.Profile
	// Meter measures where time goes; if nil, one is made.
	Meter *meter.Meter
	Log   *slog.Logger // nil for none
	// Note, if not nil, is called with each error, also if no reader waits for what failed. It is
	// called concurrently, with locks held: it must not block, nor call a scanner or gatherer.
	Note func(error)
	// DryOver, if set, returns what stands for the storage in a dry run, over one that counts reads:
	// for storages whose objects are computed from others.
	DryOver func(ctx context.Context, below storage.Storage) (DryStorage, error)
	// Released, if not nil, is called with memory that is about to be released: tests overwrite it.
	Released func([]byte)

	Input
	Decisions
}

// Input is what is read.
type Input struct {
	Index   chunkmap.Index
	Storage storage.Storage // of the shards
	Caps    storage.Caps    // of Storage
	// Verifier verifies records that carry checksums; nil if none do.
	Verifier format.Verifier
	// Dry, if set, means that reads return no data.
	Dry *Dry
}

// Decisions are how it is read.
type Decisions struct {
	Survey *choose.Survey
	Choice choose.Choice
	// Ask is called when memory is used up, with locks held, and reports whether the limit was
	// raised (budget.Member's Allow).
	Ask func() (more bool)
}

// Dry is what a scanner or a gatherer needs in order to run without data. Storage and the decoders
// only count what is asked of them. Records are returned with their sizes, but their memory is
// never touched. It can't be combined with a Verifier, or with a storage that maps.
type Dry struct {
	// Raw submits reads of decoders. It completes them at once.
	Raw func([]*storage.Read)
	// Complete completes the oldest read of Storage, and reports whether there was one. Waiting
	// readers call it until what they wait for has arrived.
	Complete func() bool
}

// DryStorage computes the bytes of its objects from others, without data. All is done by calls on the
// goroutine of the dry run.
type DryStorage interface {
	storage.Storage
	// Step does some of the work that reads need, and reports whether there was any to do before
	// reads below complete.
	Step() bool
	// Counts returns what was done so far.
	Counts() DryCounts
}

// DryCounts are the counts of a DryStorage.
type DryCounts struct {
	Decoded, DecodedBytes uint64 // chunks, and what was decoded of them
	Wants                 uint64 // parts of chunks that records consist of
}

// Spool configures where and how compressed shards are spooled.
type Spool struct {
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
	// DryKeep, if set, returns a dry shelf like Keep's, which has what the disk cache has now, or nil
	// if Keep would return none. It creates nothing.
	DryKeep func(KeptShards) *diskcache.Shelf
	// KeepsAll, if set, reports whether the user asked for a disk cache that has room for all shards
	// decoded, so that they should be kept there even if it costs less not to spool them. It creates
	// nothing.
	KeepsAll func(KeptShards) bool
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

const (
	// defaultDecoders is twice the default number of lanes.
	defaultDecoders = 64
	// defaultLookahead is four times the default shuffle size: one record in 50 stays in a
	// reservoir longer than that.
	defaultLookahead = 64 << 10
)

// Validate checks the settings.
func (o *Options) Validate() error {
	if o.MemoryBytes <= 0 {
		return fmt.Errorf("memory budget (%d bytes) must be > 0", o.MemoryBytes)
	}
	if o.Memory != nil && o.Memory.Bytes() != o.MemoryBytes {
		return fmt.Errorf("the shared memory has %d bytes and the budget (%d bytes) must be the same", o.Memory.Bytes(), o.MemoryBytes)
	}
	if o.ReadTimeout <= 0 {
		return fmt.Errorf("read timeout (%v) must be > 0", o.ReadTimeout)
	}
	if o.PieceBytes == 0 || o.PieceRecords == 0 {
		return fmt.Errorf("piece bytes (%d) and piece records (%d) must be > 0", o.PieceBytes, o.PieceRecords)
	}
	if o.Decoders < 0 {
		return fmt.Errorf("decoders (%d) must be >= 0", o.Decoders)
	}
	if err := o.Profile.Or().Validate(); err != nil {
		return fmt.Errorf("storage profile: %w", err)
	}
	if o.LookaheadBytes < 0 {
		return fmt.Errorf("lookahead (%d bytes) must be >= 0", o.LookaheadBytes)
	}
	if o.LookaheadRecords < 0 {
		return fmt.Errorf("lookahead records (%d) must be >= 0", o.LookaheadRecords)
	}
	return nil
}

// SetDefaults fills in optional settings.
func (o *Options) SetDefaults() {
	if o.Decoders == 0 {
		o.Decoders = defaultDecoders
	}
	if o.LookaheadRecords == 0 {
		o.LookaheadRecords = defaultLookahead
	}
	o.Profile = o.Profile.Or()
	if o.Memory == nil {
		o.Memory = budget.NewShared(o.MemoryBytes)
	}
	if o.Part == nil {
		o.Part = chunkmap.All{}
	}
	if o.Meter == nil {
		o.Meter = new(meter.Meter)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Note == nil {
		o.Note = func(error) {}
	}
	if o.Ask == nil {
		o.Ask = func() bool { return false }
	}
}

// SetInput sets what is read.
func (o *Options) SetInput(x chunkmap.Index, s storage.Storage) {
	o.Index, o.Storage, o.Caps = x, s, s.Caps()
	o.Verifier, _ = x.Unpacker().(format.Verifier)
}

// LookAtSizes sets Survey. maxSpoolBytes limits a spool, 0 for no limit; cacheRoomBytes is the room
// of a disk cache, 0 for none.
func (o *Options) LookAtSizes(maxSpoolBytes, cacheRoomBytes int64) (err error) {
	o.Survey, err = choose.NewSurvey(o.Index, o.Part, choose.Settings{
		MemoryBytes: o.MemoryBytes, PieceBytes: o.PieceBytes, PieceRecords: o.PieceRecords, Decoders: o.Decoders,
		Order: o.Order, Places: o.Spool.Places, MaxSpoolBytes: maxSpoolBytes, Storage: o.Profile,
		CacheRoomBytes: cacheRoomBytes, LookaheadBytes: o.LookaheadBytes,
	})
	return err
}

// Sampled reports whether there may be readers of other phases than Phase.
func (o *Options) Sampled() bool { return o.Order.Sample.Or() != (spec.Subsample{}) }

// RawBlockBytes returns the size of a decoder's reads.
func (o *Options) RawBlockBytes() int {
	l := o.Survey.Limits
	if o.Choice.Strategy == spec.ReadSpool {
		return choose.SpoolRawBytes(l, o.MemoryBytes, o.Profile)
	}
	return l.RawBlockBytes
}

// BesideBytes returns the part of the budget that is not for pieces or blocks: tables of pieces,
// and segments to copy into.
func (o *Options) BesideBytes() int64 { return o.MemoryBytes - o.Survey.Limits.CacheBytes }

// SubmitRaw submits reads of compressed shards. Their Done must call Meter.Reading.End.
func (o *Options) SubmitRaw(reads []*storage.Read) {
	if o.Dry != nil {
		o.Meter.Reading.Begin(len(reads))
		o.Dry.Raw(reads)
		return
	}
	o.Submit(reads)
}

// Submit submits reads. Their Done must call Meter.Reading.End.
func (o *Options) Submit(reads []*storage.Read) {
	o.Meter.Reading.Begin(len(reads))
	o.Storage.Submit(reads)
}

// Object implements meter.Locator: it returns the shard of a record.
func (o *Options) Object(record uint64) string { return chunkmap.ShardOf(o.Index, record) }
