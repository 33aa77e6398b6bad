package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/read"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops"
	"github.com/lsiofs/lsiofs/pipeline/storage/hardlink"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/s3"
	"github.com/lsiofs/lsiofs/pipeline/storage/retry"
	"github.com/lsiofs/lsiofs/uring"
)

// mount is what the generations of a Dataset share: all that does not depend on the set of shards.
// It is opened before the first generation and closed after the last. Its methods may be called
// concurrently, except lend.
//
// spec.MemoryBytes is the budget of all generations together; memory shares it among their
// fetchers.
type mount struct {
	spec    spec.Spec // as given to Open
	options Options
	log     *slog.Logger
	started time.Time
	scheme  *scheme
	target  discover.Target
	root    string   // of target: an absolute path, or a URL
	sources []*mount // of a mixture, otherwise nil
	source  string   // the name, if this is a source of a mixture; otherwise ""
	// siblings is the number of sources of the mixture that this is a source of, itself included; 0
	// if it is not a source.
	siblings int
	opened   opened

	meter   meter.Meter
	memory  *read.Memory
	changes read.Changes
	engine  uring.Engine
	// measured are the measurements of the storage; nil if there are none.
	measured []profile.Cell

	// listingAt is where the service's listing is stored; "" if it is not. choice is a part of it.
	listingAt string
	choice    discover.Choice
	offline   *offline        // nil if the service answers, or there is none
	service   *remote.Storage // nil if the dataset is in a file system
	// credentials are shared by all sources of a mixture, and looked up once; nil if none are needed.
	credentials *s3.Credentials
	crops       *crops.Storage     // part of files; nil if records are not crops, and for a mixture
	cache       *diskcache.Storage // part of files; nil without a disk cache
	place       diskcache.Place    // of cache, or of decoded, as it was before that was opened
	// decoded is the disk cache of decoded shards, where it is not cache; nil until some are
	// kept. fitted is what cache has room for besides them.
	decoded atomic.Pointer[diskcache.Storage]
	keeping sync.Mutex
	fitted  diskcache.Place
	links   *hardlink.Links // to shards of snapshots, which files falls back to; nil without them

	// Opened by lend. indexDir is where indexes are stored, "" if nothing can be stored.
	indexDir string
	profile  profile.Profile // of the storage
	files    storage.Storage // as opened, including the cache: what is listed and indexed
	reads    storage.Storage // what records are read from: files and the layers above it
	retries  *retry.Storage  // of reads; nil if it does not retry
}

// openMount opens a mount except for its storages, which are opened when the first generation asks
// for them.
func openMount(ctx context.Context, s spec.Spec, o Options) (*mount, error) {
	m := &mount{spec: s, options: o, log: o.Log, started: time.Now(), memory: read.NewMemory(recordMemory(s)), opened: opened{after: o.afterStep}}
	m.meter.Cores = runtime.GOMAXPROCS(0) // a mount raises it later, for its waiting threads
	var err error
	if m.scheme, err = m.schemeOfMount(); err != nil {
		return nil, err
	}
	err = m.opened.take(
		step{"engine", m.openEngine},
		step{"credentials", m.openCredentials},
		step{"target", func() (func() error, error) { return m.find(ctx) }},
		step{"profile", m.findProfile},
	)
	if err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

func (m *mount) openEngine() (shut func() error, err error) {
	if m.engine, err = uring.Open(uring.Mode(m.spec.IO)); err != nil {
		return nil, err
	}
	return m.engine.Close, nil
}

// openCredentials does not look up any credentials yet.
func (m *mount) openCredentials() (shut func() error, err error) {
	if !m.signs() {
		return nil, nil
	}
	if m.credentials, err = s3.NewCredentials(m.spec.ReadTimeout); err != nil {
		return nil, err
	}
	return func() error { m.credentials.Close(); return nil }, nil
}

// signs reports whether requests of the dataset, or of a source of a mixture, may have to be signed.
func (m *mount) signs() bool {
	if !m.spec.Mix.Asked() {
		return m.scheme.name == "s3"
	}
	return slices.ContainsFunc(m.spec.Mix.Sources, func(x spec.Source) bool {
		s, err := schemeOf(x.Dataset)
		return err == nil && s.name == "s3"
	})
}

func (m *mount) findProfile() (shut func() error, err error) {
	p, measured := m.scheme.profile(m.root, &m.options)
	m.profile, m.measured = p.Or(), measured
	return nil, nil
}

// find finds what the dataset's name refers to, and replaces the name by one without secrets.
func (m *mount) find(ctx context.Context) (shut func() error, err error) {
	f, err := m.scheme.find(ctx, m)
	if err != nil {
		return nil, err
	}
	m.target, m.root, m.service, m.offline, m.choice = f.target, f.target.Root(), f.engine, f.offline, f.choice
	if m.spec.Grow.On && m.spec.Grow.Hold {
		m.links = hardlink.NewLinks(m.root)
	}
	if f.name != "" {
		m.spec.Dataset = f.name
	}
	return f.close, nil
}

// lend returns the storage of the dataset's root. The first call opens it, with the index directory
// that the generation has found. The mount owns it, even if opening the generation fails.
func (m *mount) lend(root, indexDir string) (storage.Storage, error) {
	if root != m.root {
		return nil, fmt.Errorf("it is in %s now, and was in %s before: mount again", root, m.root)
	}
	if m.files != nil {
		return m.files, nil
	}
	m.indexDir = indexDir
	if err := m.opened.take(step{"storage", m.openStorage}); err != nil {
		return nil, err
	}
	return m.files, nil
}

func (m *mount) openStorage() (shut func() error, err error) {
	if m.files, err = m.scheme.open(m, m.root, m.indexDir); err != nil {
		return nil, err
	}
	below := m.files
	if m.sources != nil {
		below = m.mixedReads()
	}
	if m.options.Faults != nil {
		below = m.options.Faults(below)
	}
	m.reads, m.retries = m.scheme.over(below)
	if adjust := m.files.Caps().AdjustProfile; adjust != nil {
		m.profile = adjust(m.profile)
	}
	return m.reads.Close, nil
}

// recordMemory is the part of the budget for records: all of it, but half for crops, which share it
// with the decoded chunks that they are cut from.
func recordMemory(s spec.Spec) int64 {
	if s.Format.Name == "zarr" {
		return s.MemoryBytes / 2
	}
	return s.MemoryBytes
}

func (m *mount) recordMemory() int64 { return recordMemory(m.spec) }

// catalogConfig is how the dataset is listed and indexed.
func (m *mount) catalogConfig() catalog.Config {
	s := &m.spec
	return catalog.Config{
		Dataset: s.Dataset, Format: s.Format, OnCorrupt: s.OnCorrupt, IndexDir: s.IndexDir,
		Target: m.serviceTarget(), OpenStorage: m.lend, Profile: m.profile,
		Exclude: s.Exclude, Files: m.options.Files, Rebuild: m.options.Rebuild, MemoryBytes: s.MemoryBytes, Progress: m.options.Progress, Log: m.log,
	}
}

// spool is the place for compressed shards that are better decoded once.
func (m *mount) spool() read.SpoolOptions {
	c := read.SpoolOptions{Dir: m.spec.SpoolDir, MaxBytes: m.spec.SpoolMaxBytes, Places: 1, Engine: m.engine, Keep: m.keep, Plain: m.plain}
	if c.Dir == "" && m.indexDir != "" {
		c.Dir = filepath.Join(m.indexDir, "spool")
	}
	if m.spec.Deal.Dealing == spec.DealContiguous {
		c.Places = m.spec.Deal.Workers
	}
	return c
}

// engineStatus is the status of the engine, or of the storage if that reads without the engine.
func (m *mount) engineStatus() uring.Status {
	if status := m.files.Caps().Status; status != nil {
		return status()
	}
	return m.engine.Status()
}

// retryStats counts repeated reads.
func (m *mount) retryStats() (sum retry.Stats) {
	for _, s := range m.leaves() {
		if s.retries == nil {
			continue
		}
		x := s.retries.Stats()
		sum.Retries += x.Retries
		sum.GaveUp += x.GaveUp
		sum.Waiting += x.Waiting
	}
	return sum
}

// leaves returns the mounts that the dataset is read through: those of a mixture's sources, or else
// this one.
func (m *mount) leaves() []*mount {
	if m.sources == nil {
		return []*mount{m}
	}
	return m.sources
}

// prefix comes before the paths of this mount's shards in the dataset's: a source of a mixture has a
// directory.
func (m *mount) prefix() string {
	if m.source == "" {
		return ""
	}
	return m.source + "/"
}

// remoteStats are the statistics of a service; nil if there is none.
func (m *mount) remoteStats() *remote.Stats {
	if m.service == nil {
		return nil
	}
	s := m.service.Stats()
	return &s
}

// cacheStats are the statistics of the disk cache; nil if there is none.
func (m *mount) cacheStats() *diskcache.Stats {
	c := m.cache
	if c == nil {
		c = m.decoded.Load()
	}
	if c == nil {
		return nil
	}
	s := c.Stats()
	return &s
}

// serviceTarget is what the dataset's name refers to at a service; nil in a file system, where each
// generation looks again.
func (m *mount) serviceTarget() *discover.Target {
	if m.service == nil {
		return nil
	}
	return &m.target
}

// close closes everything in the reverse order of opening. No generation may be open.
func (m *mount) close() error { return m.opened.close() }
