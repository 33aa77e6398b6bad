package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/union"
)

// A mixture is a dataset whose root has a directory for each source. Each source is found, listed
// and indexed as a dataset of its own, through its own storages:
//
//	sources ──► a mount and a catalog each ──► catalog.Union, storage/union: one dataset
//	                                      └──► order.Mixture: its order
//
// From there on it is treated like any dataset, except that order.Mixture makes the epochs.

// mixing is the state of a mixture in a generation.
type mixing struct {
	sources []mixedSource // in the order given
	shares  *order.Shares
	mixture *order.Mixture
	length  uint64
}

// mixedSource is a source.
type mixedSource struct {
	spec.Source
	share       uint64 // w_m: the weight, or what it amounts to by bytes
	records     uint64 // T_m
	bytes       int64  // of these records
	fingerprint string

	catalog *catalog.Catalog // until the union has been made
	first   uint64           // number of its first record
	all     uint64           // number of its records, before the split
	starts  []uint64
	part    *order.Part
}

// openMixture is openCatalog for a mixture. With an error, nothing is left open.
func (g *generation) openMixture(ctx context.Context) (shut func() error, err error) {
	x := &mixing{sources: make([]mixedSource, len(g.mount.sources))}
	defer func() {
		for i := range x.sources {
			if c := x.sources[i].catalog; c != nil {
				err = errors.Join(err, c.Close())
				x.sources[i].catalog = nil
			}
		}
		if err != nil && shut != nil {
			err, shut = errors.Join(err, shut()), nil
		}
	}()
	for i := range x.sources {
		x.sources[i].Source = g.spec.Mix.Sources[i]
		if err := g.openMixedSource(ctx, g.mount.sources[i], &x.sources[i]); err != nil {
			if d, ok := errors.AsType[*storage.DamagedError](err); ok {
				d.Source = x.sources[i].Name
			}
			return nil, fmt.Errorf("source %s: %w", x.sources[i].Name, err)
		}
	}
	if err := x.weigh(g.spec.Mix.By); err != nil {
		return nil, err
	}
	if g.catalog, err = catalog.Union(x.union(g)); err != nil {
		return nil, err
	}
	g.spec.Format = g.catalog.Format()
	if err = x.order(&g.spec); err != nil {
		return nil, errors.Join(err, g.catalog.Close())
	}
	g.mixing = x
	if _, err = g.mount.lend(g.mount.root, g.catalog.IndexDir()); err != nil {
		return nil, errors.Join(err, g.catalog.Close())
	}
	return g.catalog.Close, nil
}

// openMixedSource opens the catalog of a source, and finds what a split leaves of it.
func (g *generation) openMixedSource(ctx context.Context, m *mount, x *mixedSource) error {
	alone := &generation{mount: m, spec: m.spec}
	if _, err := alone.openCatalog(ctx); err != nil {
		return err
	}
	c := alone.catalog
	x.catalog, x.fingerprint = c, c.Fingerprint()
	o := &g.spec.Order
	if o.Split = o.Split.Or(); o.Split != (spec.Split{}) && o.Split.By == "" {
		o.Split.By = splitBy(c.Unpacker())
	}
	var err error
	if x.part, err = order.NewPart(*o, 0, sourceShards{splitShards{c, m.kept()}, x.Name}, func(work []func()) { onAllCores(ctx, work) }); err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	x.starts = x.part.Starts(c.ChunkStarts(o.ChunkBytes, o.ChunkRecords))
	alone.selection = &selection{part: x.part, starts: x.starts}
	x.records = alone.records()
	if x.records == 0 {
		return fmt.Errorf("--split %s leaves no record of it", o.Split.Part)
	}
	x.bytes = alone.streamBytes()
	return alone.fitCache()
}

// sourceShards presents a source's shards to a split of the mixture, under the source's name.
type sourceShards struct {
	splitShards
	name string
}

func (s sourceShards) Shard(i int) order.Shard {
	x := s.splitShards.Shard(i)
	sum := sha256.Sum256([]byte("lsiofs/1 shard " + s.name + "/" + s.Catalog.Shard(i).Object.Path))
	x.ID = binary.BigEndian.Uint64(sum[:])
	return x
}

// weigh computes the shares of the sources. By bytes, a source with large records appears less
// often: w·T·2²⁰ div B, all divided by their common divisor.
func (x *mixing) weigh(by spec.MixBy) error {
	divisor := uint64(0)
	for i := range x.sources {
		s := &x.sources[i]
		if s.share = s.Weight; by != spec.MixByBytes {
			continue
		}
		high, low := bits.Mul64(s.Weight<<20, s.records) // a weight has 40 bits
		if s.bytes <= 0 || high >= uint64(s.bytes) {
			return fmt.Errorf("source %s: its %d records have %d bytes, too few to mix it by bytes: mix by records", s.Name, s.records, s.bytes)
		}
		if s.share, _ = bits.Div64(high, low, uint64(s.bytes)); s.share == 0 {
			return fmt.Errorf("source %s: its records are too large for so small a weight by bytes: multiply all weights by 1000", s.Name)
		}
		if s.share > order.MaxWeight {
			return fmt.Errorf("source %s: its records are too small for so large a weight by bytes: divide all weights by 1000", s.Name)
		}
		divisor = commonDivisor(s.share, divisor)
	}
	if by == spec.MixByBytes {
		for i := range x.sources {
			x.sources[i].share /= divisor
		}
	}
	return nil
}

// union is the configuration for the catalog of all sources. It also sets where each source's
// records begin.
func (x *mixing) union(g *generation) catalog.UnionConfig {
	c := catalog.UnionConfig{IndexDir: g.spec.IndexDir, Log: g.mount.log}
	turn := make([]int, len(x.sources))
	for i, s := range x.sources {
		turn[i] = i
		c.Sources = append(c.Sources, catalog.UnionSource{Name: s.Name, Catalog: s.catalog, Weight: s.share, Records: s.records})
	}
	slices.SortFunc(turn, func(a, b int) int { return strings.Compare(x.sources[a].Name+"/", x.sources[b].Name+"/") })
	first := uint64(0)
	for _, i := range turn {
		x.sources[i].first, x.sources[i].all = first, x.sources[i].catalog.Records()
		first += x.sources[i].all
	}
	return c
}

// otherOrder returns the mixture in an order with other settings. starts are the chunks of all
// records of all sources in that order.
func (x *mixing) otherOrder(o spec.Order, starts []uint64) (*order.Mixture, error) {
	sources := make([]order.Source, len(x.sources))
	for i := range x.sources {
		m := &x.sources[i]
		from, _ := slices.BinarySearch(starts, m.first)
		to, _ := slices.BinarySearch(starts, m.first+m.all)
		own := make([]uint64, 0, to-from+1)
		for _, start := range starts[from : to+1] { // chunks don't span shards
			own = append(own, start-m.first)
		}
		sources[i] = order.Source{First: m.first, Starts: m.part.Starts(own), Part: m.part}
	}
	other, err := order.NewMixture(o, x.shares, sources, x.length)
	if err == nil {
		other.Part = x.mixture.Part
	}
	return other, err
}

// order makes the mixture's order, and writes its length into the spec.
func (x *mixing) order(s *spec.Spec) (err error) {
	weights, records := make([]uint64, len(x.sources)), make([]uint64, len(x.sources))
	sources := make([]order.Source, len(x.sources))
	for i := range x.sources {
		m := &x.sources[i]
		weights[i], records[i] = m.share, m.records
		sources[i] = order.Source{First: m.first, Starts: m.starts, Part: m.part}
	}
	if x.shares, err = order.NewShares(s.Order.Seed, weights); err != nil {
		return err
	}
	switch {
	case s.Order.Length > 0:
		x.length = s.Order.Length
	case s.Mix.Length == spec.MixAll:
		x.length, err = x.shares.All(records)
	default:
		var short int
		if x.length, short = x.shares.First(records); x.length == 0 {
			err = fmt.Errorf("source %s has %d records, fewer than the first 256 positions of the mixture need: set the length of an epoch, for example --mix-length 100000, or use --mix-length all", x.sources[short].Name, records[short])
		}
	}
	if err != nil {
		return err
	}
	s.Order.Length = x.length
	x.mixture, err = order.NewMixture(s.Order, x.shares, sources, x.length)
	return err
}

// distinct is the number of different records. An epoch of a mixture may have more or fewer
// positions.
func (g *generation) distinct(of *selection) uint64 {
	if of.part != nil {
		return of.part.Len()
	}
	return g.catalog.Records()
}

// readOrder is the order as it is read: a mixture reads each of its sources at up to the order's
// number of lanes, with a buffer for each source.
func (g *generation) readOrder() spec.Order {
	o := g.spec.Order
	if g.mixing == nil {
		return o
	}
	lanes, waiting := uint64(0), uint64(0)
	for _, s := range g.mixing.sources {
		if o.SizeRecords >= s.records {
			lanes++
		} else {
			lanes += o.Lanes
		}
		waiting += min(max(o.SizeRecords, 1), s.records)
	}
	o.Lanes, o.SizeRecords, o.Groups = lanes, waiting, 1
	return o
}

// MixedSource is a source of a mixture.
type MixedSource struct {
	Name    string
	Dataset string // without secrets
	Weight  uint64 // in millionths, as given
	Records uint64 // after the split
	Bytes   int64  // of these records
	// Passes is how often an epoch goes through it, on average.
	Passes      float64
	Fingerprint string
}

// Sources are the sources of a mixture, in the order given; nil if the dataset is not a mixture.
func (d *Dataset) Sources() []MixedSource {
	g, release := d.acquire()
	defer release()
	return g.mixedSources()
}

func (g *generation) mixedSources() (list []MixedSource) {
	if g.mixing == nil {
		return nil
	}
	sum := 0.0
	for _, s := range g.mixing.sources {
		sum += float64(s.share)
	}
	for i, s := range g.mixing.sources {
		list = append(list, MixedSource{
			Name: s.Name, Dataset: g.mount.sources[i].spec.Dataset, Weight: s.Weight, Records: s.records, Bytes: s.bytes,
			Passes: float64(g.mixing.length) * float64(s.share) / sum / float64(s.records), Fingerprint: s.fingerprint,
		})
	}
	return list
}

// Shared counts the records in done, which an epoch has already delivered, by source, in the order
// of Sources; nil if the dataset is not a mixture. If workers are very far apart the result is
// approximate, and exact is false (order.Mixture.CountTaken).
func (d *Dataset) Shared(epoch uint64, done []order.Done) (counts []uint64, exact bool, err error) {
	g, release := d.acquire()
	defer release()
	if x := g.mixing; x != nil {
		return x.mixture.CountTaken(epoch, done)
	}
	return nil, true, nil
}

// schemeOfMount is the scheme of the mount's dataset or mixture.
func (m *mount) schemeOfMount() (*scheme, error) {
	if !m.spec.Mix.Asked() {
		return schemeOf(m.spec.Dataset)
	}
	return &scheme{
		name: "mixture", find: findSources,
		profile: func(string, *Options) (storage.Profile, []filesystem.Measurement) { return m.slowest() },
		open: func(m *mount, _, _ string) (storage.Storage, error) {
			p, measured := m.slowest() // some adjust their profile once they are open
			m.profile, m.measured = p.Or(), measured
			return m.mixedFiles(), nil
		},
	}, nil
}

// findSources is scheme.find for a mixture: it finds each source.
func findSources(ctx context.Context, m *mount) (f found, err error) {
	f.close = func() error {
		var errs []error
		for _, s := range m.sources {
			errs = append(errs, s.close())
		}
		return errors.Join(errs...)
	}
	m.spec.Mix.Sources = slices.Clone(m.spec.Mix.Sources)
	names := make([]string, len(m.spec.Mix.Sources))
	for i, x := range m.spec.Mix.Sources {
		s, err := openSourceMount(ctx, m, x)
		if err != nil {
			return found{}, errors.Join(fmt.Errorf("source %s: %w", x.Name, err), f.close())
		}
		m.sources = append(m.sources, s)
		x.Dataset = s.spec.Dataset // without secrets
		m.spec.Mix.Sources[i] = x
		names[i] = x.String()
	}
	f.name = "--mix " + strings.Join(names, " --mix ")
	return f, nil
}

// openSourceMount opens the mount of a source. It uses the mixture's engine, and its storages get a
// share of the memory.
func openSourceMount(ctx context.Context, whole *mount, x spec.Source) (*mount, error) {
	s := whole.spec
	s.Dataset, s.Mix, s.Order.Length, s.Order.Split = x.Dataset, spec.Mix{}, 0, spec.Split{}
	s.Remote = x.Bucket.Over(s.Remote)
	s.MemoryBytes = max(s.MemoryBytes/int64(len(whole.spec.Mix.Sources)), 1<<20)
	o := whole.options
	o.Faults, o.afterStep = nil, nil
	m := &mount{spec: s, options: o, log: whole.log.With("source", x.Name), started: time.Now(), engine: whole.engine, credentials: whole.credentials, source: x.Name, siblings: len(whole.spec.Mix.Sources)}
	m.meter.Cores = runtime.GOMAXPROCS(0)
	var err error
	if m.scheme, err = schemeOf(s.Dataset); err != nil {
		return nil, err
	}
	err = m.opened.take(
		step{"target", func() (func() error, error) { return m.find(ctx) }},
		step{"profile", m.findProfile},
	)
	if err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

// slowness ranks kinds of storage: reads that suit a service don't hurt files, but reads that suit
// files are far too small for a service.
var slowness = map[storage.Kind]int{
	storage.KindMemory: 1, storage.KindSSD: 2, storage.KindVirtual: 3, storage.KindUnknown: 4,
	storage.KindDisk: 5, storage.KindNetwork: 6, storage.KindWeb: 7, storage.KindObject: 8,
}

// slowest is the profile of the slowest source.
func (m *mount) slowest() (storage.Profile, []filesystem.Measurement) {
	if m.options.Storage != nil {
		return *m.options.Storage, nil
	}
	worst := m.sources[0]
	for _, s := range m.sources[1:] {
		if slowness[s.profile.Kind] > slowness[worst.profile.Kind] {
			worst = s
		}
	}
	return worst.profile, worst.measured
}

// mixedFiles is the union of the storages of all sources. Each has been opened together with its
// catalog.
func (m *mount) mixedFiles() storage.Storage {
	return m.mixOf(func(s *mount) storage.Storage { return s.files })
}

// mixedReads is the union of the storages that records are read from.
func (m *mount) mixedReads() storage.Storage {
	return m.mixOf(func(s *mount) storage.Storage { return s.reads })
}

func (m *mount) mixOf(which func(*mount) storage.Storage) storage.Storage {
	list := make([]union.Source, len(m.sources))
	for i, s := range m.sources {
		list[i] = union.Source{Name: m.spec.Mix.Sources[i].Name, Storage: which(s)}
	}
	return union.Wrap(list)
}

// SourceStatus is what the storage of a source of a mixture is doing.
type SourceStatus struct {
	Name   string           `json:"name"`
	Remote *remote.Stats    `json:"remote,omitempty"`
	Cache  *diskcache.Stats `json:"cache,omitempty"`
}

func (m *mount) sourceStatus() (list []SourceStatus) {
	for i, s := range m.sources {
		list = append(list, SourceStatus{m.spec.Mix.Sources[i].Name, s.remoteStats(), s.cacheStats()})
	}
	return list
}
