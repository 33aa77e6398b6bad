package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/format/npy"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/read"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/arrays"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops"
	"github.com/lsiofs/lsiofs/pipeline/storage/fileset"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
	"github.com/lsiofs/lsiofs/pipeline/storage/hardlink"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/s3"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/target"
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
	measured []filesystem.Measurement

	// listingAt is where the service's listing is stored; "" if it is not. choice is a part of it.
	listingAt string
	choice    discover.Choice
	offline   *offline        // nil if the service answers, or there is none
	service   *remote.Storage // nil if the dataset is in a file system
	// credentials are shared by all sources of a mixture, and looked up once; nil if none are
	// needed.
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
	profile  storage.Profile   // of the storage
	files    storage.Storage   // as opened, including the cache: what is listed and indexed
	reads    storage.Storage   // what records are read from: files and the layers above it
	retries  *storage.Retrying // of reads; nil if it does not retry
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
	m.reads = below
	if m.scheme.retry {
		m.retries = storage.NewRetrying(below)
		m.reads = m.retries
	}
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
	shards := s.Format
	shards.MaxRowBytes = s.MaxRecordBytes
	return catalog.Config{
		Dataset: s.Dataset, Format: shards, OnCorrupt: s.OnCorrupt, IndexDir: s.IndexDir,
		Target: m.serviceTarget(), OpenStorage: m.lend, Profile: m.profile,
		Exclude: s.Exclude, Files: m.options.Files, Rebuild: m.options.Rebuild, MemoryBytes: s.MemoryBytes, Progress: m.options.Progress, Log: m.log,
	}
}

// spool is the place for compressed shards that are better decoded once.
func (m *mount) spool() read.SpoolOptions {
	c := read.SpoolOptions{Dir: m.spec.SpoolDir, MaxBytes: m.spec.SpoolMaxBytes, Places: 1, Engine: m.engine, Keep: m.keep, DryKeep: m.dryKeep, KeepsAll: m.keepsAll, Plain: m.plain}
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
func (m *mount) retryStats() (sum storage.RetryStats) {
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

// scheme is a kind of place for datasets, and the storages that they are read through, from the
// bottom up:
//
//	           open: what is listed            above: what records are read from
//	local      local                           retry
//	           local ──► hardlink (--hold)     retry
//	           local ──► arrays (--array)      retry
//	           fileset (shards that are        retry
//	           directories: --format files)
//	           local ──► crops (--format zarr) retry
//	           local ──► refs (.json, .zip)    retry
//	                 ──► crops
//	s3, web    remote ──► s3                   nothing: remote retries itself
//	           remote ──► web
//	           remote ──► crops, or refs and crops
//
// diskcache is above remote, and above local if that is a network file system and the user has asked
// for a cache: listing, indexing and reading go through it (openCache).
//
// storage.Caps says what else each storage can do.
type scheme struct {
	// name is for reports. text is what comes before "://", "" for plain paths.
	name, text string
	// find finds what the mount's dataset name refers to, and opens what it needs for that.
	// found.close is nil if there is nothing to close.
	find func(ctx context.Context, m *mount) (found, error)
	// profile returns the reads that the storage at a root is fast at, and the measurements of it,
	// if there are any.
	profile func(root string, o *Options) (storage.Profile, []filesystem.Measurement)
	// open opens the storage below a root. It stores its own files in indexDir, "" if nothing can
	// be stored.
	open func(m *mount, root, indexDir string) (storage.Storage, error)
	// retry means that reads are repeated after transient errors. Services repeat their requests
	// themselves.
	retry bool
}

// schemes are the supported schemes.
var schemes = []scheme{
	{name: "local", find: findLocal, profile: findProfile, open: openLocal, retry: true},
	{name: "s3", text: "s3", find: findAtService, profile: objectProfile, open: openService},
	{name: "s3", text: "s3+https", find: findAtService, profile: objectProfile, open: openService},
	{name: "s3", text: "s3+http", find: findAtService, profile: objectProfile, open: openService},
	{name: "web", text: "https", find: findAtService, profile: webProfile, open: openService},
	{name: "web", text: "http", find: findAtService, profile: webProfile, open: openService},
}

// schemeOf returns the scheme of a dataset. A name that exists in the file system is a path,
// whatever it looks like.
func schemeOf(dataset string) (*scheme, error) {
	text := ""
	if IsRemote(dataset) {
		text, _, _ = strings.Cut(strings.ToLower(dataset), "://")
	}
	if i := slices.IndexFunc(schemes, func(s scheme) bool { return s.text == text }); i >= 0 {
		return &schemes[i], nil
	}
	_, err := target.Parse(dataset)
	return nil, fmt.Errorf("dataset: %w", err)
}

// findLocal finds the directory that a dataset is in, absolute and without symbolic links.
func findLocal(_ context.Context, m *mount) (found, error) {
	t, err := discover.ParseTarget(m.spec.Dataset)
	return found{target: t}, err
}

// openLocal opens the storage of files, or of directories of files.
func openLocal(m *mount, root, indexDir string) (storage.Storage, error) {
	if f, ok := foldered(m.spec.Format); ok {
		s, err := fileset.Open(root, indexDir, f)
		if err != nil {
			return nil, err
		}
		t := m.target
		if err := t.Exclude(m.spec.Exclude); err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.LeaveOut(t.LeavesOutFile)
		return s, nil
	}
	direct := local.Direct(m.spec.Direct)
	if m.spec.Format.Name == "zarr" && m.spec.Direct == spec.DirectAuto {
		direct = local.DirectOff // adjacent crops share chunks, which the page cache keeps
	}
	s, err := local.OpenAmong(root, m.engine, direct, max(m.siblings, 1))
	if err != nil {
		return nil, err
	}
	if len(m.spec.Format.Arrays) > 0 {
		return arrays.Wrap(s, npy.Framing{}), nil
	}
	if m.spec.Format.Name == "zarr" {
		return m.cubesOver(m.referencesOver(s), false), nil
	}
	if m.links != nil {
		return hardlink.Wrap(s, m.links), nil
	}
	if m.profile.Kind != storage.KindNetwork || !m.spec.Cache.Asked() {
		return s, nil
	}
	over, err := m.cacheOver(s, m.fileIdentity)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return over, nil
}

// foldered returns the requested format if its shards are directories.
func foldered(asked spec.Format) (format.Foldered, bool) {
	f, err := formats.New(asked)
	if err != nil {
		return nil, false // the catalog detects it, or reports the error
	}
	folders, ok := f.(format.Foldered)
	return folders, ok
}

// findProfile looks up which reads the file system of a directory is fast at. A problem with a
// stored profile is only logged.
func findProfile(root string, o *Options) (storage.Profile, []filesystem.Measurement) {
	if o.Storage != nil {
		return *o.Storage, nil
	}
	f := filesystem.FindProfile(root)
	if f.Problem != nil {
		o.Log.Warn(f.Problem.Error())
	}
	return f.Profile, f.Cells
}

// step is one step in opening a dataset. open returns the function that closes it, nil if there is
// nothing to close. If open fails, it leaves nothing open.
type step struct {
	name string
	open func() (shut func() error, err error)
}

// opened owns what the steps have opened. close closes it in the reverse order, so that everything
// is closed before what it was made from. The zero value is empty.
type opened struct {
	// after is called after each step; if it fails, the step fails with its error. Nil except in
	// tests.
	after func(step string) error

	mu    sync.Mutex
	shuts []func() error // in the order of the steps
}

// take runs steps one after the other, up to the first that fails. What is open by then stays open:
// the caller closes it.
func (o *opened) take(steps ...step) error {
	for _, s := range steps {
		shut, err := s.open()
		if err != nil {
			return err
		}
		if shut != nil {
			o.mu.Lock()
			o.shuts = append(o.shuts, shut)
			o.mu.Unlock()
		}
		if o.after == nil {
			continue
		}
		if err := o.after(s.name); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// close closes all that is open, even if some of it fails, and returns the errors. A second call
// does not close anything again.
func (o *opened) close() error {
	o.mu.Lock()
	shuts := o.shuts
	o.shuts = nil
	o.mu.Unlock()
	var errs []error
	for _, shut := range slices.Backward(shuts) {
		errs = append(errs, shut())
	}
	return errors.Join(errs...)
}
