package read

import (
	"errors"
	"strings"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/choose"
	"github.com/lsiofs/lsiofs/pipeline/read/gather"
	"github.com/lsiofs/lsiofs/pipeline/read/scan"
	"github.com/lsiofs/lsiofs/pipeline/read/size"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
)

// Fetcher reads the records of one dataset for any number of readers, within one memory budget. It
// is safe for concurrent use.
type Fetcher struct {
	Survey                   // as the fetcher reads the dataset: from a disk cache, if that has all of it decoded
	verifier format.Verifier // nil if records carry no checksums
	survey   *size.Survey    // Survey.sizes, with finer pieces if the choice requires them
	choice   Choice
	dry      *scan.Dry     // set only in a DryRun
	scanning scan.Config   // of the scanner, or of the one that a forecast would use
	share    *budget.Share // of Config.Memory

	// Exactly one of scanner and gatherer is set.
	scanner      *scan.Scanner
	gatherer     *gather.Gatherer
	gatherMemory *budget.Blocks
	plain        *diskcache.Plain // the storage that is read; nil if it is the dataset's own

	mu       sync.Mutex // taken last: the scanner and the gatherer note failures with their locks held
	failures failures
	closed   bool
}

// NewFetcher starts a fetcher: it chooses how shards are read, and takes the memory and disk for
// that.
func (s *Survey) NewFetcher() (*Fetcher, error) {
	f := &Fetcher{Survey: *s, share: s.config.Memory.Share()}
	if err := f.start(); err != nil {
		f.share.Leave()
		return nil, err
	}
	return f, nil
}

// start chooses a strategy and makes the scanner or the gatherer. If it fails, nothing is left
// open.
func (f *Fetcher) start() (err error) {
	f.verifier, _ = f.index.Unpacker().(format.Verifier)
	if left := f.spoolBytes(); left != f.config.Spool.MaxBytes { // other fetchers have some of it
		if err := f.look(left); err != nil {
			return err
		}
	}
	if f.usePlain() {
		defer func() {
			if err != nil {
				err = errors.Join(err, f.plain.Close())
			}
		}()
		if err := f.look(f.spoolBytes()); err != nil {
			return err
		}
	}
	f.survey = f.sizes
	shelf, err := f.chooseStrategy()
	if err != nil {
		return err
	}
	if f.plain != nil {
		f.choice.Reason = plainReason + "; " + strings.TrimPrefix(f.choice.Reason, "no shard is compressed, and ")
	}
	if err := f.startRoom(shelf); err != nil {
		if shelf != nil {
			err = errors.Join(err, shelf.Close())
		}
		return err
	}
	f.share.Join(f.member())
	return nil
}

// member returns the scanner or the gatherer, and about the least memory that it needs: tables, a
// few pieces of each kind of memory, and what one decoder holds.
func (f *Fetcher) member() (m budget.Member, floorBytes int64) {
	l := &f.survey.Limits
	floorBytes = f.config.MemoryBytes - l.CacheBytes + 4*l.SegmentBytes
	if f.gatherer != nil {
		return f.gatherer, floorBytes + 4*f.gatherMemory.BlockBytes
	}
	return f.scanner, floorBytes + 2*f.survey.Held.DecoderBytes
}

// startRoom starts the scanner or the gatherer, as was chosen. A scanner owns the spool's shelf if
// there is no error.
func (f *Fetcher) startRoom(shelf *diskcache.Shelf) (err error) {
	c := &f.config
	if shelf != nil && c.Order.Shuffle == spec.ShuffleFull {
		// A piece is loaded for one record at a time: let it have few others, and none of its part
		// if that comes from the spool.
		cutParts := true
		for i := range f.index.Shards() {
			x := f.index.Shard(i)
			cutParts = cutParts && (!x.Parts || x.Records == 0 || f.choice.Spools(i))
		}
		if f.survey, err = f.survey.WithPieces(f.choice.FinePieceBytes(c.MemoryBytes, c.PieceBytes), cutParts); err != nil {
			return err
		}
	}
	f.scanning = f.scanConfig()
	plan := f.planning()
	if f.choice.Strategy == spec.ReadGather {
		f.gatherMemory = budget.NewBlocks(f.survey.Limits.CacheBytes)
		f.gatherMemory.Released = c.released
		g := f.gatherConfig(f.gatherMemory)
		g.Told = plan
		f.gatherer, err = gather.New(g)
		return err
	}
	f.scanning.Spool, f.scanning.Plan = shelf, plan
	f.scanner, err = scan.New(f.scanning)
	return err
}

func (f *Fetcher) scanConfig() scan.Config {
	c, v := &f.config, f.survey
	sizes := v.Sizes()
	s := scan.Config{
		Index: f.index, Storage: f.storage, Mapper: f.caps.Mapper, Places: v.Places, Verifier: f.verifier,
		Sampled: c.Order.Sample.Or() != (spec.Subsample{}), Phase: c.Phase,
		MemoryBytes: c.MemoryBytes, Ask: f.share.Ask, Limits: v.Limits, Held: v.Held, HoldsAll: v.Compressed && sizes.Fits(),
		Choice: f.choice, Dry: f.dry,
		Decoders: c.Decoders, LookaheadRecords: c.LookaheadRecords, ReadTimeout: c.ReadTimeout, Profile: c.Storage,
		Meter: f.meter, Log: c.Log, Note: f.note, Released: c.released,
	}
	if f.choice.Strategy == spec.ReadSpool {
		s.Limits.RawBlockBytes = choose.SpoolRawBytes(s.Limits, c.MemoryBytes, c.Storage)
	}
	s.MostWanted, s.Sweeps = sizes.Lookahead(f.choice)
	return s
}

// gatherConfig returns the configuration of a gatherer with that memory, which is part of the
// fetcher's budget.
func (f *Fetcher) gatherConfig(memory *budget.Blocks) gather.Config {
	reads := f.config.Storage
	if f.choice.Chunks {
		reads = profile.Defaults(profile.KindVirtual) // planned chunks are read from a local disk
	}
	g := gather.Config{
		Index: f.index, Storage: f.storage, Memory: memory, BesideBytes: f.config.MemoryBytes - f.survey.Limits.CacheBytes, Ask: f.share.Ask, Plan: PlanConfig(reads), Ahead: reads.Ahead,
		Expecter: f.caps.Expecter, ReadTimeout: f.config.ReadTimeout, Verifier: f.verifier, Meter: f.meter, Note: f.note,
	}
	if f.dry != nil {
		g.Dry = f.dry.Complete
	}
	return g
}

// Close stops reading ahead, waits for reads in progress and frees the memory. All pinned records
// must have been released, and no Reader may be in use. It is idempotent.
func (f *Fetcher) Close() error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	f.mu.Unlock()
	f.share.Retire()
	defer f.leave()
	err := f.closeRoom()
	if f.plain != nil {
		err = errors.Join(err, f.plain.Close())
	}
	return err
}

// closeRoom closes the scanner or the gatherer.
func (f *Fetcher) closeRoom() error {
	if f.scanner != nil {
		return f.scanner.Close()
	}
	f.gatherer.Close()
	return f.gatherMemory.Close()
}

// leave returns the fetcher's share of memory, disk and cache to the others.
func (f *Fetcher) leave() {
	left := f.share.SetCached(0)
	if keeper := f.caps.Keeper; keeper != nil && left > 0 {
		keeper.SetShare(left)
	}
	f.share.Leave()
}
