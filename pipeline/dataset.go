package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/fetch"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/folders"
	"github.com/lsiofs/lsiofs/pipeline/storage/joined"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
	"github.com/lsiofs/lsiofs/pipeline/storage/retry"
	"github.com/lsiofs/lsiofs/pipeline/stream"
	"github.com/lsiofs/lsiofs/pipeline/unpack/files"
	"github.com/lsiofs/lsiofs/pipeline/unpack/npy"
	"github.com/lsiofs/lsiofs/uring"
)

// Options are what Open needs beside the spec.
type Options struct {
	Log      *slog.Logger
	Progress func(catalog.Progress)
	// Rebuild indexes every shard again, whatever is stored.
	Rebuild bool
	// Storage says which reads the dataset's storage likes; nil for what is
	// known of the file system that it lies on (profile.Find).
	Storage *profile.Profile
	// Faults, where it is set, is put around the storage that records are read
	// from once the catalog is open: for tests, which delay and fail reads.
	Faults func(storage.Storage) storage.Storage
	// Ahead computes the next epoch's order while one is read, with a fifth of
	// one core.
	Ahead bool
}

// Dataset is an open dataset: its catalog, its order settings, its fetcher. It
// is safe for concurrent use.
type Dataset struct {
	spec    spec.Spec
	started time.Time
	engine  uring.Engine
	meter   meter.Meter
	files   storage.Storage // as it was opened
	storage storage.Storage // what is read: files, with what is put around it
	retries *retry.Storage  // of that
	profile profile.Profile // of the storage
	cells   []profile.Cell  // what was measured of it
	catalog *catalog.Catalog
	part    *order.Part // what the split leaves; nil: all
	starts  []uint64    // of the chunks of that
	fetcher *fetch.Fetcher
	source  *stream.Source
	layouts *layouts
	ahead   *ahead        // nil where nothing is computed ahead
	orders  *order.Memory // of all views
	epochs  *cache[uint64, *order.Epoch]
	sets    *cache[string, *stream.Set]
	start   atomic.Pointer[Start] // what Expect found
	sizes   struct {              // see StreamBytes
		once sync.Once
		sum  atomic.Int64
	}
}

// How many epochs and sets are remembered. An epoch keeps 64 KiB for every 2¹⁸
// records that were walked through, but only a few do (order.Memory). What a set
// has of its order and its layout is bounded for all sets together.
const (
	keptEpochs = 4
	keptSets   = 16
)

// Open validates the spec, opens or builds the catalog and starts the fetcher.
// Progress is reported while shards are indexed. When ctx ends, indexing stops,
// and what has been indexed is kept for the next time.
func Open(ctx context.Context, s spec.Spec, o Options) (*Dataset, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	engine, err := uring.Open(uring.Mode(s.IO))
	if err != nil {
		return nil, err
	}
	d := &Dataset{spec: s, started: time.Now(), engine: engine}
	d.meter.Cores = runtime.GOMAXPROCS(0) // a mount raises it later, for its waiting threads
	if err := d.open(ctx, o); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Dataset) open(ctx context.Context, o Options) error {
	s := &d.spec
	index := &d.meter.Working[meter.Index]
	index.Begin(meter.Now())
	c, st, err := catalog.Open(ctx, catalog.Config{
		Dataset: s.Dataset, Format: s.Format, OnCorrupt: s.OnCorrupt, IndexDir: s.IndexDir,
		OpenStorage: d.openStorage,
		Rebuild:     o.Rebuild, MemoryBytes: s.MemoryBytes, Progress: o.Progress, Log: o.Log,
	})
	index.End(meter.Now())
	if err != nil {
		return err
	}
	d.catalog, d.files = c, st
	if err := d.boundRecords(); err != nil {
		return err
	}
	below := st
	if o.Faults != nil {
		below = o.Faults(st)
	}
	d.storage, d.retries = retry.Over(below)
	d.profile, d.cells = findProfile(c.Root(), o)
	if c.Format().Name == files.Name {
		d.profile.GapBytes = 0 // what nobody wants would be a file to open
	}
	s.Format = c.Format()
	if err := d.takePart(ctx); err != nil {
		return err
	}
	d.starts = d.ChunkStarts(s.Order.ChunkBytes, s.Order.ChunkRecords)
	d.fetcher, err = fetch.New(c, d.storage, fetch.Config{
		MemoryBytes: s.MemoryBytes, ReadTimeout: s.ReadTimeout,
		PieceBytes: s.Order.ChunkBytes, PieceRecords: s.Order.ChunkRecords,
		Decoders: decoders(s.Order), LookaheadRecords: lookahead(s.Order),
		Read: s.Read, Order: s.Order, Part: d.part, Spool: d.spool(), Storage: d.profile, Meter: &d.meter, Log: o.Log,
	})
	if err != nil {
		return err
	}
	d.source = stream.NewSource(c, d.fetcher)
	d.layouts = newLayouts(c, s.Order, o.Log)
	d.orders = order.NewMemory(0)
	d.epochs = newCache[uint64, *order.Epoch](keptEpochs)
	d.sets = newCache[string, *stream.Set](keptSets)
	if o.Ahead {
		d.ahead = newAhead(defaultPace, o.Log, d.computeAhead)
	}
	return nil
}

// boundRecords refuses a dataset with a record beyond Spec.MaxRecordBytes.
func (d *Dataset) boundRecords() error {
	most := d.spec.MaxRecordBytes
	if most == 0 {
		return nil
	}
	x, found := d.catalog.RecordAbove(most)
	if !found {
		return nil
	}
	return fmt.Errorf("%s: record %d at offset %d has %d bytes, more than the %d of --max-record: raise that if memory holds such a record for each reader, or leave the file out with a pattern",
		d.catalog.Shard(x.Shard).Object.Path, x.Ordinal, x.OffsetBytes, x.SizeBytes, most)
}

func (d *Dataset) openStorage(root, indexDir string) (storage.Storage, error) {
	if d.spec.Format.Name == files.Name {
		return folders.Open(root, indexDir, files.Framing{})
	}
	s, err := local.OpenDirect(root, d.engine, local.Direct(d.spec.Direct))
	if err != nil || len(d.spec.Format.Arrays) == 0 {
		return s, err
	}
	return joined.Over(s, npy.Framing{}), nil
}

// decoders is how many paused decoders of compressed shards are worth their
// memory: each lane stands in a shard, and beside it in the one before.
func decoders(o spec.Order) int { return int(min(max(64, 2*o.Lanes), 1024)) }

// lookahead is how many records of compressed shards are looked at in advance:
// of a reservoir's records one in 50 stays for more than 4 times its size.
func lookahead(o spec.Order) int { return int(min(max(64<<10, 4*o.SizeRecords), 1<<22)) }

// findProfile looks up which reads the storage of a directory likes. What is
// wrong with a stored profile is no reason not to read.
func findProfile(root string, o Options) (profile.Profile, []profile.Cell) {
	if o.Storage != nil {
		return *o.Storage, nil
	}
	f := profile.Find(root)
	if f.Problem != nil {
		o.Log.Warn(f.Problem.Error())
	}
	return f.Profile, f.Cells
}

// spool is where compressed shards go that are better decoded once.
func (d *Dataset) spool() fetch.SpoolConfig {
	c := fetch.SpoolConfig{Dir: d.spec.SpoolDir, MaxBytes: d.spec.SpoolMaxBytes, Places: 1, Engine: d.engine}
	if index := d.catalog.IndexDir(); c.Dir == "" && index != "" {
		c.Dir = filepath.Join(index, "spool")
	}
	if d.spec.Deal.Dealing == spec.DealContiguous {
		c.Places = d.spec.Deal.Workers
	}
	return c
}

// Close frees everything. No handle may be in use and no reply be out.
func (d *Dataset) Close() error {
	var errs []error
	if d.ahead != nil {
		d.ahead.close()
	}
	if d.source != nil {
		d.source.Close()
	}
	if d.fetcher != nil {
		errs = append(errs, d.fetcher.Close())
	}
	if d.storage != nil {
		errs = append(errs, d.storage.Close())
	}
	if d.catalog != nil {
		errs = append(errs, d.catalog.Close())
	}
	return errors.Join(append(errs, d.engine.Close())...)
}

// Spec is what Open was given, with auto and defaults resolved.
func (d *Dataset) Spec() spec.Spec { return d.spec }

// Catalog is the dataset's catalog. It is closed with the dataset.
func (d *Dataset) Catalog() *catalog.Catalog { return d.catalog }

// Fingerprint is the catalog's.
func (d *Dataset) Fingerprint() string { return d.catalog.Fingerprint() }

// Explain says in words which shards differ from the dataset with another
// fingerprint, "" when that can't be told.
func (d *Dataset) Explain(fingerprint string) string { return d.catalog.Explain(fingerprint) }

// Chunks is the number of chunks that the order permutes.
func (d *Dataset) Chunks() int { return len(d.starts) - 1 }

// StreamExtension is the ending of stream names, with the dot.
func (d *Dataset) StreamExtension() string { return d.catalog.StreamExtension() }

// Epoch is the global order of an epoch. A few epochs are remembered.
func (d *Dataset) Epoch(epoch uint64) (*order.Epoch, error) {
	return d.epochs.get(epoch, func() (*order.Epoch, error) {
		e, err := order.NewEpoch(d.spec.Order, epoch, d.starts, d.part)
		if err == nil {
			d.layouts.loadStates(epoch, e)
		}
		return e, err
	})
}

// Set gives the files of what is left of epoch after done, dealt as deal says.
// Sets are remembered, a bounded number of them, so asking again is cheap; a set
// that was handed out stays good whatever is forgotten.
func (d *Dataset) Set(_ context.Context, epoch uint64, done []order.Done, deal spec.Deal) (*stream.Set, error) {
	return d.sets.get(fmt.Sprint(epoch, done, deal), func() (*stream.Set, error) {
		e, err := d.Epoch(epoch)
		if err != nil {
			return nil, err
		}
		v, err := d.orders.View(e, done, deal)
		if err != nil {
			return nil, err
		}
		set := d.source.Set(v, d.layouts.shelf(epoch, done, deal, e))
		if d.ahead != nil {
			set.OnBegin(func() { d.ahead.begun(epoch, deal) })
		}
		return set, nil
	})
}

// computeAhead computes the layout of a whole epoch while goOn says so.
func (d *Dataset) computeAhead(n nextEpoch, goOn func() bool) error {
	set, err := d.Set(context.Background(), n.epoch, nil, n.deal)
	if err == nil {
		set.Ahead(d.meter.Timed(meter.Order, goOn))
	}
	return err
}

// Meter counts where the time of the dataset and its readers goes.
func (d *Dataset) Meter() *meter.Meter { return &d.meter }

// Status is a snapshot of what the dataset is doing.
type Status struct {
	Engine uring.Status `json:"engine"`
	// Retries are reads that were made again, as their errors were likely to pass.
	Retries retry.Stats `json:"retries"`
	Fetch   fetch.Stats `json:"fetch"`
	Start   *Start      `json:"start,omitempty"` // what Expect found, where that was called
	// Storage says which reads are made, and whether that was measured.
	Storage profile.Profile `json:"storage"`
	// Measured is what was measured of the storage, nil where it was not.
	Measured []profile.Cell `json:"-"`
	Uptime   time.Duration  `json:"uptime_nanos"`
	// DamagedShards are those of which something was left out, Damages counts what
	// was, by reason.
	DamagedShards int               `json:"damaged_shards"`
	Damages       map[string]uint64 `json:"damages_by_reason,omitempty"`
}

// Status gives the state now.
func (d *Dataset) Status() Status {
	engine := d.engine.Status()
	if f, ok := d.files.(*folders.Storage); ok {
		engine = f.Status()
	}
	return Status{
		Engine: engine, Retries: d.retries.Stats(), Fetch: d.fetcher.Stats(), Start: d.start.Load(), Storage: d.profile, Measured: d.cells, Uptime: time.Since(d.started),
		DamagedShards: len(d.catalog.Damaged()), Damages: d.damages(),
	}
}
