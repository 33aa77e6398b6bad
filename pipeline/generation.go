package pipeline

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/read"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops/listing"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// generation is one set of shards as it is served: its records, their order, and the readers'
// access to them. It is opened for a mount, whose storage, engine and meter it uses, and closed
// before it. It is safe for concurrent use.
//
// Steps are opened from left to right, and closed from right to left:
//
//	catalog ──► records ──► part ──► cache ──► fetcher ──► source ──► orders ──► ahead
//	which       none is     what a   room      reads       records    epochs     the next
//	records     too large   split    for       them, once  to bytes   and sets   epoch
//	                        leaves   them      one is asked for
type generation struct {
	mount  *mount
	spec   spec.Spec // the mount's, with auto and defaults resolved
	opened opened

	catalog *catalog.Catalog
	// selection is what the spec's epoch orders. With a sample, selections has those of the last
	// few epochs, by phase, and allStarts are the chunks of all records.
	*selection
	mixing     *mixing // nil if the dataset is not a mixture
	selections *cache[uint64, *selection]
	allStarts  []uint64
	allOnce    sync.Once
	survey     *read.Survey
	reading    atomic.Pointer[read.Fetcher] // nil until it is started
	starting   sync.Mutex                   // held while it is started, and for shut
	shut       bool                         // it is not started any more
	source     *stream.Source
	// cubes are the cubes of the shards, in shard order, and coordinates those of each; nil if
	// records are not crops.
	cubes       []*listing.Grid
	listed      []listedCube // the same, as their storages know them
	coordinates []coordinates
	layouts     *layouts
	ahead       *ahead        // nil if nothing is computed ahead
	orders      *order.Memory // of all views
	epochs      *cache[uint64, *order.Epoch]
	sets        *cache[string, *stream.Set]
	start       atomic.Pointer[Start] // the latest result of expect

	// For a growing dataset: the generations that count users and, protected by their lock, the
	// number of uses, the time of the last use, and whether the generation is closed to new uses.
	home    *generations // nil if the dataset does not grow
	uses    int
	used    time.Time
	retired bool
}

// How many epochs and sets are cached. An epoch keeps 64 KiB for every 2¹⁸ records that were walked
// through, but only a few do (order.Memory). The memory for orders and layouts of sets is bounded
// for all sets together.
const (
	keptEpochs = 4
	keptSets   = 16
)

// openGeneration lists and indexes the dataset as it is now, and opens all that reads it. When ctx
// ends, indexing stops; what has been indexed is kept for the next run. If it fails, it closes what
// it has opened.
func openGeneration(ctx context.Context, m *mount) (*generation, error) {
	g := &generation{mount: m, spec: m.spec}
	return g.open(ctx, func() (func() error, error) { return g.openCatalog(ctx) })
}

// openSnapshot is openGeneration for the shards of an epoch, which are already indexed. The
// generation owns the catalog from then on, even if opening fails. home counts its users.
func openSnapshot(ctx context.Context, m *mount, c *catalog.Catalog, epoch uint64, home *generations) (*generation, error) {
	g := &generation{mount: m, spec: m.spec, catalog: c, home: home}
	g.spec.Epoch, g.spec.Format = epoch, c.Format()
	return g.open(ctx, func() (func() error, error) { return c.Close, nil })
}

// open takes the steps; the first one provides the catalog.
func (g *generation) open(ctx context.Context, catalog func() (func() error, error)) (*generation, error) {
	g.opened.after = g.mount.options.afterStep
	err := g.opened.take(
		step{"catalog", catalog},
		step{"records", func() (func() error, error) { return nil, g.boundRecords() }},
		step{"part", func() (func() error, error) { return nil, g.takePart(ctx) }},
		step{"cache", func() (func() error, error) { return nil, g.fitCache() }},
		step{"fetcher", g.openFetcher},
		step{"source", g.openSource},
		step{"orders", g.makeOrders},
		step{"ahead", g.startAhead},
	)
	if err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

func (g *generation) openCatalog(ctx context.Context) (shut func() error, err error) {
	if g.mount.sources != nil {
		return g.openMixture(ctx)
	}
	if g.mount.spec.Grow.Snapshot != "" {
		return g.openSnapshotFile(ctx)
	}
	m, s := g.mount, &g.spec
	index := &m.meter.Working[meter.Index]
	index.Begin(meter.Now())
	defer func() { index.End(meter.Now()) }()
	g.catalog, err = catalog.Open(ctx, m.catalogConfig())
	if err != nil {
		return nil, err
	}
	s.Format = g.catalog.Format()
	m.rememberListing(g.objects)
	return g.catalog.Close, nil
}

// boundRecords returns an error for a dataset with a record beyond Spec.MaxRecordBytes, or an epoch
// with more records than can be laid out.
func (g *generation) boundRecords() error {
	if err := g.checkLength(); err != nil {
		return err
	}
	most := g.spec.MaxRecordBytes
	if most == 0 {
		return nil
	}
	x, found := g.catalog.RecordAbove(most)
	if !found {
		return nil
	}
	return fmt.Errorf("%s: record %d at offset %d has %d bytes, more than the %d of --max-record: raise that if memory holds such a record for each reader, or leave the file out with a pattern",
		g.catalog.Shard(x.Shard).Object.Path, x.Ordinal, x.OffsetBytes, x.SizeBytes, most)
}

func (g *generation) openFetcher() (shut func() error, err error) {
	m := g.mount
	g.survey, err = g.surveyOf(g.readOrder())
	if err != nil {
		return nil, err
	}
	if !m.options.StartFetcher {
		g.survey.ReserveCache()
	} else if _, err := g.fetcher(); err != nil {
		return nil, err
	}
	return func() error {
		g.starting.Lock()
		g.shut = true
		g.starting.Unlock()
		if f := g.reading.Load(); f != nil {
			return f.Close()
		}
		return nil
	}, nil
}

// surveyOf returns the survey of the dataset as it is read in an order.
func (g *generation) surveyOf(o spec.Order) (*read.Survey, error) {
	m, s := g.mount, &g.spec
	return read.NewSurvey(g.catalog, m.reads, read.Options{
		MemoryBytes: m.recordMemory(), Memory: m.memory, ReadTimeout: s.ReadTimeout,
		PieceBytes: o.ChunkBytes, PieceRecords: o.ChunkRecords,
		Decoders: decoders(o), LookaheadRecords: lookahead(o), LookaheadBytes: s.Lookahead, Again: g.mixing != nil,
		Read: g.strategy(), Order: o, Part: g.part, Phase: s.Order.Sample.Phase(s.Epoch), Spool: m.spool(), Profile: m.profile, Meter: &m.meter, Note: m.changes.Note, Log: m.log,
		DryOver: m.dryOver(),
	})
}

// fetcher returns the fetcher. The first call starts it; if that fails, the next call tries again.
func (g *generation) fetcher() (*read.Fetcher, error) {
	if f := g.reading.Load(); f != nil {
		return f, nil
	}
	g.starting.Lock()
	defer g.starting.Unlock()
	if f := g.reading.Load(); f != nil {
		return f, nil
	}
	if g.shut {
		return nil, errClosedDataset
	}
	f, err := g.survey.NewFetcher()
	if err != nil {
		return nil, err
	}
	g.reading.Store(f)
	return f, nil
}

// fetchStats returns the fetcher's statistics, without a strategy if it is not started.
func (g *generation) fetchStats() read.Stats {
	if f := g.reading.Load(); f != nil {
		return f.Stats()
	}
	return read.Stats{BudgetBytes: g.mount.recordMemory()}
}

// strategy is the read strategy to ask for. Crops are computed one by one, so there is nothing to
// scan.
func (g *generation) strategy() spec.Read {
	if g.spec.Format.Name == "zarr" {
		return spec.ReadGather
	}
	return g.spec.Read
}

// decoders is how many paused decoders of compressed shards are worth their memory: each lane is in
// the middle of a shard, and may still need the one before.
func decoders(o spec.Order) int { return int(min(max(64, 2*o.Lanes), 1024)) }

// lookahead is how many records of compressed shards are examined in advance: one in 50 of a
// reservoir's records stays for more than 4 times its size.
func lookahead(o spec.Order) int { return int(min(max(64<<10, 4*o.SizeRecords), 1<<22)) }

func (g *generation) openSource() (shut func() error, err error) {
	g.source = stream.NewSource(g.catalog, &g.mount.meter, g.fetcher)
	if err := g.findCubes(); err != nil {
		g.source.Close()
		return nil, err
	}
	if g.home != nil {
		g.source.SetGuard(stream.Guard{Enter: g.Enter, Leave: g.Leave})
	}
	for _, text := range g.cropWarnings() {
		g.mount.log.Warn(text)
	}
	return func() error { g.source.Close(); return nil }, nil
}

func (g *generation) makeOrders() (shut func() error, err error) {
	g.layouts = newLayouts(g.catalog, g.spec.Order, g.mount.log)
	g.orders = order.NewMemory(0)
	g.epochs = newCache[uint64, *order.Epoch](keptEpochs)
	g.sets = newCache[string, *stream.Set](g.keptSets())
	return nil, nil
}

func (g *generation) startAhead() (shut func() error, err error) {
	if !g.mount.options.Ahead {
		return nil, nil
	}
	g.ahead = newAhead(defaultPace, g.mount.log, g.computeAhead)
	return func() error { g.ahead.close(); return nil }, nil
}

// close frees everything, in the reverse order of opening: computing ahead stops before the sets
// that it computes are closed, and the fetcher waits for its reads before the catalog is closed. No
// handle may be in use, and all replies must have been released.
func (g *generation) close() error { return g.opened.close() }

// epoch is the global order of an epoch. A few epochs are cached.
func (g *generation) epoch(epoch uint64) (*order.Epoch, error) {
	return g.epochs.get(epoch, func() (*order.Epoch, error) {
		e, err := g.newEpoch(epoch)
		if err == nil {
			g.layouts.loadStates(epoch, e)
		}
		return e, err
	})
}

func (g *generation) newEpoch(epoch uint64) (*order.Epoch, error) {
	if g.mixing != nil {
		return g.mixing.mixture.Epoch(epoch)
	}
	s, err := g.selected(context.Background(), epoch)
	if err != nil {
		return nil, err
	}
	return order.NewEpoch(g.spec.Order, epoch, s.starts, s.part)
}

// set is Dataset.Set.
func (g *generation) set(epoch uint64, done []order.Done, deal spec.Assignment) (*stream.Set, error) {
	return g.sets.get(fmt.Sprint(epoch, done, deal), func() (*stream.Set, error) {
		e, err := g.epoch(epoch)
		if err != nil {
			return nil, err
		}
		v, err := g.orders.View(e, done, deal)
		if err != nil {
			return nil, err
		}
		set := g.source.Set(v, g.layouts.shelf(epoch, done, deal, e))
		if g.ahead != nil {
			set.OnBegin(func() { g.ahead.begun(epoch, deal) })
		}
		return set, nil
	})
}

// computeAhead computes the selection of an epoch, and the layout of the whole epoch, as long as
// goOn returns true.
func (g *generation) computeAhead(n nextEpoch, goOn func() bool) error {
	if g.home != nil && !g.home.isOf(n.epoch, g) {
		return nil // the epoch's shards are unknown, or belong to another generation
	}
	goOn = g.mount.meter.Timed(meter.Order, goOn)
	if _, err := g.selectedAhead(n.epoch, goOn); err != nil {
		return err
	}
	set, err := g.set(n.epoch, nil, n.deal)
	if err == nil {
		set.Ahead(goOn)
	}
	return err
}

// Start is what the first bytes of a mount's streams wait for: shards that must be decoded up to
// the first records.
type Start struct {
	read.Start
	// Lanes is a number of lanes with which the start would be much shorter, taking LanesSeconds; 0
	// if there is none.
	Lanes        uint64  `json:"shorter_with_lanes,omitempty"`
	LanesSeconds float64 `json:"shorter_seconds,omitempty"`
	// Smaller is set if a smaller shuffle buffer would make the start shorter.
	Smaller bool `json:"shorter_with_smaller_shuffle,omitempty"`
}

const (
	// startRecords is about how many records a reader needs first.
	startRecords = 64
	// longStart is the duration from which on other numbers of lanes are tried.
	longStart = 2.0 // seconds
)

// expect computes what the first bytes of a view of an epoch wait for. If that takes more than long
// seconds, it also tries other numbers of lanes. They seldom help: with fewer lanes, each one's
// buffer is larger, so its first records are deeper in its first shards.
func (g *generation) expect(v *order.View, epoch uint64, long float64) (Start, error) {
	o := g.spec.Order
	f, err := g.fetcher()
	if err != nil {
		return Start{}, err
	}
	s := Start{Start: startOf(f, v, o.Lanes)}
	if g.mixing != nil || s.Seconds < long || o.Shuffle != spec.ShuffleReservoir && o.Shuffle != spec.ShuffleBlock {
		return s, nil
	}
	s.Smaller = true
	chosen, err := g.selected(context.Background(), epoch)
	if err != nil {
		return s, err
	}
	for _, lanes := range []uint64{o.Lanes / 2, o.Lanes * 2, o.Lanes / 4, o.Lanes * 4, o.Lanes / 8, o.Lanes / 16} {
		if lanes == 0 || lanes > spec.MaxLanes || lanes%o.Groups != 0 {
			continue
		}
		other := o
		other.Lanes = lanes
		e, err := order.NewEpoch(other, epoch, chosen.starts, chosen.part)
		if err != nil {
			return s, err
		}
		w, err := order.NewView(e, nil, v.Deal())
		if err != nil {
			return s, err
		}
		if t := startOf(f, w, lanes).Seconds; t <= s.Seconds/2 {
			s.Lanes, s.LanesSeconds = lanes, t
			break
		}
	}
	return s, nil
}

func startOf(f *read.Fetcher, v *order.View, lanes uint64) read.Start {
	return f.Start(workerSequence{v, 0}, int(max(startRecords, lanes)))
}

// Text describes it in words; "" if nothing has to be decoded.
func (s Start) Text() string {
	if s.DecodeBytes == 0 {
		return ""
	}
	text := fmt.Sprintf("%s until the first bytes come: %s of %d compressed shards come before them and are decoded first",
		about(s.Seconds), humanize.IBytes(uint64(s.DecodeBytes)), s.Shards)
	switch {
	case s.Lanes > 0:
		text += fmt.Sprintf("; --lanes %d would make that %s, in another order", s.Lanes, about(s.LanesSeconds))
	case s.Smaller:
		text += "; other --lanes would not make that much shorter, a smaller --shuffle-size would, in another order"
	}
	return text
}

func about(seconds float64) string {
	switch {
	case seconds < 1:
		return "less than a second"
	case seconds < 10:
		return fmt.Sprintf("about %.1f s", seconds)
	}
	return fmt.Sprintf("about %.0f s", seconds)
}

// cache is a bounded LRU cache. While a value is being made, callers that ask for the same key wait
// for it; callers with other keys don't.
type cache[K comparable, V any] struct {
	most int

	mu      sync.Mutex
	entries map[K]*list.Element
	recent  *list.List // of *remembered[K, V], most recent first
}

type remembered[K comparable, V any] struct {
	key   K
	once  sync.Once
	value V
	err   error
}

func newCache[K comparable, V any](most int) *cache[K, V] {
	return &cache[K, V]{most: most, entries: make(map[K]*list.Element), recent: list.New()}
}

// get returns the value of key, calling fill if it is not cached. Errors are not cached.
func (c *cache[K, V]) get(key K, fill func() (V, error)) (V, error) {
	c.mu.Lock()
	e := c.entries[key]
	if e == nil {
		e = c.recent.PushFront(&remembered[K, V]{key: key})
		c.entries[key] = e
		if c.recent.Len() > c.most {
			c.drop(c.recent.Back())
		}
	}
	c.recent.MoveToFront(e)
	c.mu.Unlock()

	v := e.Value.(*remembered[K, V])
	v.once.Do(func() { v.value, v.err = fill() })
	if v.err != nil {
		c.mu.Lock()
		if c.entries[key] == e {
			c.drop(e)
		}
		c.mu.Unlock()
	}
	return v.value, v.err
}

func (c *cache[K, V]) drop(e *list.Element) {
	c.recent.Remove(e)
	delete(c.entries, e.Value.(*remembered[K, V]).key)
}
