package read

import (
	"errors"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/gather"
	"github.com/lsiofs/lsiofs/pipeline/read/scan"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Fetcher reads the records of one dataset for any number of readers, within one memory budget. It
// is safe for concurrent use.
type Fetcher struct {
	Survey               // as the fetcher reads the dataset: from a disk cache, if that has all of it decoded
	share  *budget.Share // of Options.Memory
	told   func(error)   // the Note of NewSurvey's Options

	// Exactly one of scanner and gatherer is set.
	scanner  *scan.Scanner
	gatherer *gather.Gatherer
	cached   *diskcache.Plain // the storage that is read; nil if it is the dataset's own

	mu       sync.Mutex // taken last: the scanner and the gatherer note failures with their locks held
	failures failures
	closed   bool
}

// NewFetcher starts a fetcher: it chooses how shards are read, and takes the memory and disk for
// that.
func (s *Survey) NewFetcher() (*Fetcher, error) {
	f := &Fetcher{Survey: *s, share: s.o.Memory.Share(), told: s.o.Note}
	f.o.Note, f.o.Ask = f.note, f.share.Ask
	if err := f.start(); err != nil {
		f.share.Leave()
		return nil, err
	}
	return f, nil
}

// start chooses a strategy and makes the scanner or the gatherer. If it fails, nothing is left
// open.
func (f *Fetcher) start() (err error) {
	if left := f.spoolBytes(); left != f.o.Spool.MaxBytes { // other fetchers have some of it
		if err := f.look(left); err != nil {
			return err
		}
	}
	v, plain, err := f.fromCache(f.spoolBytes())
	if err != nil {
		return err
	}
	if plain != nil {
		note, ask := f.o.Note, f.o.Ask
		f.Survey, f.cached = *v, plain
		f.o.Note, f.o.Ask = note, ask
		defer func() {
			if err != nil {
				err = errors.Join(err, plain.Close())
			}
		}()
	}
	shelf, err := f.chooseStrategy()
	if err != nil {
		return err
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
	floorBytes = f.o.BesideBytes() + 4*f.o.Survey.Limits.SegmentBytes
	if f.gatherer != nil {
		return f.gatherer, floorBytes + 4*f.gatherer.BlockBytes()
	}
	return f.scanner, floorBytes + 2*f.o.Survey.Held.DecoderBytes
}

// startRoom starts the scanner or the gatherer, as was chosen. A scanner owns the spool's shelf if
// there is no error.
func (f *Fetcher) startRoom(shelf *diskcache.Shelf) (err error) {
	c := &f.o
	if shelf != nil && c.Order.Shuffle == spec.ShuffleFull {
		// A piece is loaded for one record at a time: let it have few others, and none of its part
		// if that comes from the spool.
		cutParts := true
		for i := range f.o.Index.Shards() {
			x := f.o.Index.Shard(i)
			cutParts = cutParts && (!x.Parts || x.Records == 0 || f.o.Choice.Spools(i))
		}
		if f.o.Survey, err = f.o.Survey.WithPieces(f.o.Choice.FinePieceBytes(c.MemoryBytes, c.PieceBytes), cutParts); err != nil {
			return err
		}
	}
	plan := f.planning()
	if f.o.Choice.Strategy == spec.ReadGather {
		f.gatherer, err = gather.New(&f.o, plan)
		return err
	}
	f.scanner = scan.New(&f.o, shelf, plan)
	return nil
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
	if f.cached != nil {
		err = errors.Join(err, f.cached.Close())
	}
	return err
}

// closeRoom closes the scanner or the gatherer.
func (f *Fetcher) closeRoom() error {
	if f.scanner != nil {
		return f.scanner.Close()
	}
	return f.gatherer.Close()
}

// leave returns the fetcher's share of memory, disk and cache to the others.
func (f *Fetcher) leave() {
	left := f.share.SetCached(0)
	if hints := f.o.Caps.Hints; hints != nil && left > 0 {
		hints.SetShare(left)
	}
	f.share.Leave()
}
