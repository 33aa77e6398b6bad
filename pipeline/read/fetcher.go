package read

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/dustin/go-humanize"
	"github.com/zeebo/xxh3"

	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/read/choose"
	"github.com/lsiofs/lsiofs/pipeline/read/chunkmap"
	"github.com/lsiofs/lsiofs/pipeline/read/gather"
	"github.com/lsiofs/lsiofs/pipeline/read/scan"
	"github.com/lsiofs/lsiofs/pipeline/read/window"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
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
		f.leave()
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
		f.Survey, f.cached = *v, plain
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
	if shelf != nil && c.Survey.LoadsRecords(&c.Choice) {
		// A piece, of the spool or of a shard that is not compressed, is loaded for one record at a
		// time: let it have few others, and none of its part if that comes from the spool.
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

// Choice is how the shards of a dataset are read, and why.
type Choice = choose.Choice

// chooseStrategy sets the choice, and makes the shelf of a spool if it has one. A spool that can't
// be made is an error: a scan would decode shards again and again, which users should not have to
// find out by waiting.
func (f *Fetcher) chooseStrategy() (shelf *diskcache.Shelf, err error) {
	c, err := f.Choose(f.o.Read)
	if err != nil && f.spoolIsShared() {
		f.o.Log.Warn("shards are decoded again and again, because other streams use the room of --spool-max while they are read", "reason", err)
		c, err = f.Choose(spec.ReadScan)
	}
	if err == nil && c.Spooled != nil {
		shelf, err = f.openShelf(&c)
		if c.Kept && shelf == nil {
			sizes := f.sizes.Sizes()
			c, err = sizes.Choose(f.o.Read)
		}
	}
	if err != nil {
		if c.FewerLanes != "" {
			err = fmt.Errorf("%w (%s)", err, c.FewerLanes)
		}
		return nil, fmt.Errorf("--read %s: %w; fewer --lanes, a smaller --shuffle-size or more --memory need less, and --read scan needs none but decodes shards again and again", f.o.Read, err)
	}
	f.o.Choice = c
	if c.Warning != "" {
		f.o.Log.Warn("each record is read by itself: "+c.Warning, "dataset", f.o.Survey.Held.AllBytes())
	}
	return shelf, nil
}

// openShelf makes the shelf that decoded shards are kept on. It returns nil if no cache has room for
// shards that are spooled only because it would keep them.
func (f *Fetcher) openShelf(c *Choice) (*diskcache.Shelf, error) {
	if keep := f.o.Spool.Keep; keep != nil {
		shelf, err := keep(f.keptShards(c))
		if shelf != nil {
			return shelf, nil
		} else if err != nil {
			f.o.Log.Warn("decoded shards are not kept in the disk cache, so the next mount decodes them again", "reason", err)
		}
	}
	if c.Kept {
		return nil, nil
	}
	if f.o.Spool.Dir == "" {
		return nil, fmt.Errorf("%s have to be spooled, and there is no directory for that: name one with --spool-dir", humanize.IBytes(uint64(c.SpoolBytes)))
	}
	if f.o.Spool.Engine == nil {
		return nil, errors.New("there is no engine to read the spool with")
	}
	reserve := func(bytes int64) bool { return f.share.TakeDisk(bytes, f.o.Spool.MaxBytes) }
	if !reserve(c.SpoolBytes) {
		return nil, fmt.Errorf("another spool has taken the room of --spool-max (%s) meanwhile: try again", humanize.IBytes(uint64(f.o.Spool.MaxBytes)))
	}
	shelf, err := diskcache.NewSpool(f.o.Spool.Dir, c.SpoolBytes, f.o.MemoryBytes/spoolTablesPart, f.o.Spool.Engine, reserve)
	if err != nil {
		reserve(-c.SpoolBytes)
	}
	return shelf, err
}

// keptShards describes the shards that a choice spools.
func (s *Survey) keptShards(c *Choice) KeptShards {
	k := KeptShards{NeedBytes: c.SpoolBytes, MostTableBytes: s.o.MemoryBytes / spoolTablesPart, Decoding: s.decoding}
	k.DecodedBytes = func(shard int) int64 { return s.o.Index.Shard(shard).DecodedBytes }
	for i := range s.o.Index.Shards() {
		if c.Spools(i) {
			k.Shards = append(k.Shards, i)
			k.AllBytes += diskcache.RoomBytes(k.DecodedBytes(i))
		}
	}
	return k
}

// decoding returns a shard's object, and what else its decoded bytes depend on: the codec, and the
// parts if the shard consists of parts.
func (s *Survey) decoding(shard int) (raw storage.Object, how string) {
	x := s.o.Index.Shard(shard)
	how = x.Codec.Name() + "/1"
	if r, ok := x.Codec.(format.RangeCodec); ok {
		how = r.Decoding() + "/1"
	}
	if !x.Parts {
		return x.Object, how
	}
	h := xxh3.New()
	for at := int64(0); at < x.DecodedBytes; {
		p := s.o.Index.Part(shard, at)
		_ = binary.Write(h, binary.LittleEndian, p) // a hash never fails
		at = max(p.EndBytes, at+1)
	}
	return x.Object, fmt.Sprintf("%s parts:%016x", how, h.Sum64())
}

// spoolTablesPart is the fraction of memory, 1/16, that checksums of spooled pages may take: enough
// for decoded shards of 64 times the memory.
const spoolTablesPart = 16

// spoolBytes returns the limit of the spool, 0 for what the order needs: what other fetchers leave
// of Options.Spool.MaxBytes, after giving up what they do not need now.
func (f *Fetcher) spoolBytes() int64 {
	most := f.o.Spool.MaxBytes
	left := f.share.DiskLeft(most)
	if most == 0 {
		return 0
	}
	return max(left, 1)
}

// spoolIsShared reports whether other fetchers use some of Options.Spool.MaxBytes.
func (f *Fetcher) spoolIsShared() bool {
	return f.o.Survey.Settings.MaxSpoolBytes < f.o.Spool.MaxBytes
}

// Needs is what an epoch requests from a service, and what memory or disk it takes to read each
// chunk once.
type Needs = choose.Needs

// planning returns the plan by which the storage is told what will be read. It is nil if the
// storage takes no hints, if all shards are compressed, and if the storage is a disk cache without
// room for the chunks that the order has open. A disk cache is also told how much passes through it.
func (f *Fetcher) planning() *window.Plan {
	hints := f.o.Caps.Hints
	if hints == nil {
		return nil
	}
	sizes := f.o.Survey.Sizes()
	use := hints.Use()
	keeps, gathers := use.Keeps, f.o.Choice.Strategy == spec.ReadGather
	if use.Exact {
		if !gathers {
			return nil
		}
		return &window.Plan{Hints: hints, Exact: true, Index: f.o.Index}
	}
	if keeps {
		hints.SetShare(f.share.SetCached(sizes.Share(f.o.Choice)))
	}
	if f.o.Survey.Held.Packed == f.o.Survey.Held.Shards || keeps && gathers && !f.o.Choice.Chunks {
		return nil
	}
	p := &window.Plan{Hints: hints, Keeps: keeps, LookaheadBytes: f.o.LookaheadBytes, MostBytes: f.o.Survey.Limits.WindowBytes, Again: f.o.Again}
	if keeps {
		p.MostBytes = sizes.KeptAhead(f.o.Choice)
		if !gathers {
			p.MostBytes = max(p.MostBytes, f.o.Survey.Limits.WindowBytes) // what the cache has no room for goes to memory
		}
	}
	if gathers {
		p.Index, p.Places, p.Chunks = f.o.Index, f.o.Survey.Places, f.o.Choice.Chunks
		p.Phase = f.o.Phase
		p.Layout = func(part chunkmap.Part, number int) (int, chunkmap.Layout) {
			return f.o.Survey.Places.Of(part).Layout(number, func(int) int64 { return f.o.Profile.GapBytes })
		}
		p.StaleRecords = sizes.StaleRecords()
		p.Init()
	}
	return p
}
