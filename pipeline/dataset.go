package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/growing"
	"github.com/lsiofs/lsiofs/pipeline/growing/snapshot"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/read"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/stream"
	"github.com/lsiofs/lsiofs/pipeline/verify"
	"github.com/lsiofs/lsiofs/uring"
)

// Options are what Open needs besides the spec.
type Options struct {
	Log      *slog.Logger
	Progress func(catalog.Progress)
	// Rebuild indexes every shard again, even if a stored index is valid.
	Rebuild bool
	// Files makes the catalog's Selection list all files, and not only the first ones.
	Files bool
	// Storage describes which reads the dataset's storage is fast at. If nil, it is the profile of
	// the file system that holds the dataset (filesystem.FindProfile).
	Storage *storage.Profile
	// Faults, if set, wraps the storage that records are read from, once the catalog is open. Tests
	// delay and fail reads with it.
	Faults func(storage.Storage) storage.Storage
	// StartFetcher prepares reading of records when a set of shards is opened: the memory and the
	// disk for that. Its errors and warnings then come from Open, instead of the first handle of
	// records.
	StartFetcher bool
	// Ahead computes the next epoch's order while the current epoch is read, on a fifth
	// of one core.
	Ahead bool
	// Snapshots returns the shards of each epoch of a growing dataset. The dataset owns it from
	// Open on, even if Open fails. If it is nil and Spec.Grow is on, Open makes one for the
	// directory, and waits until the first epoch can start.
	Snapshots snapshots
	// Waiting, if set, is called now and then while Open waits for the first epoch. Open then also
	// waits for Spec.Epoch if that is the next one.
	Waiting func(snapshot.Status)
	// Trouble, if set, is called with what requests to a service are waiting for: once a request
	// has waited for some seconds, now and then while that lasts, and when it is over. It is called
	// from any goroutine. The text is logged as well.
	Trouble func(text string)
	// TakesNone starts no epoch of a growing dataset: the next epoch fails with growing.ErrNotYet,
	// and Open does not wait for the first one.
	TakesNone bool
	// afterStep is called after each step of opening; if it fails, the step fails with its error.
	// Nil except in tests.
	afterStep func(step string) error
	// maxRecords bounds an epoch in tests; 0 means maxEpochRecords.
	maxRecords uint64
}

// Dataset is an open dataset: a mount and the generation of shards that it serves. It is safe for
// concurrent use. Its methods ask the generation for everything that depends on the set of shards.
//
// A growing dataset has one generation per snapshot (generations). Methods without an epoch
// parameter then answer for the current one: the epoch started last, at first the spec's. Methods
// with an epoch open its generation if necessary, and start the epoch if it is the one after the
// latest; they can then also fail with the errors of growing and with run.ErrGone.
type Dataset struct {
	mount *mount
	// One of the two is set.
	current     *generation
	generations *generations
}

// Open validates the spec, and opens or builds the catalog. It reports progress
// while shards are indexed. When ctx ends, indexing stops; shards indexed so far are kept for the
// next run. If Open fails, nothing stays open.
func Open(ctx context.Context, s spec.Spec, o Options) (*Dataset, error) {
	if err := formats.Validate(s); err != nil {
		return nil, errors.Join(err, closeSnapshots(o.Snapshots))
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	m, err := openMount(ctx, s, o)
	if err != nil {
		return nil, errors.Join(err, closeSnapshots(o.Snapshots))
	}
	if o.Snapshots == nil && s.Grow.On {
		o.Snapshots = &follower{mount: m}
	}
	if o.Snapshots != nil {
		return openGrowing(ctx, m, o.Snapshots)
	}
	g, err := openGeneration(ctx, m)
	if err != nil {
		return nil, errors.Join(err, m.close())
	}
	return &Dataset{mount: m, current: g}, nil
}

// openGrowing opens the spec's epoch of a growing dataset.
func openGrowing(ctx context.Context, m *mount, s snapshots) (*Dataset, error) {
	d := &Dataset{mount: m, generations: newGenerations(m, s)}
	err := s.Open(ctx, m.catalogConfig())
	if err == nil && m.files == nil {
		err = errors.New("the snapshots did not open the dataset's storage")
	}
	if err == nil && m.spec.Grow.Latest {
		if latest, any := s.Latest(); any {
			m.spec.Epoch = latest
		}
	}
	switch o := &m.options; {
	case err != nil:
	case o.TakesNone || o.Waiting == nil:
		err = d.Begin(ctx, m.spec.Epoch)
	default:
		err = d.BeginWaiting(ctx, m.spec.Epoch, o.Waiting)
	}
	if err != nil {
		return nil, errors.Join(orTheNext(err, s), d.Close())
	}
	return d, nil
}

// orTheNext adds the next step to an error about an epoch whose shards were deleted or have
// changed: start the next epoch.
func orTheNext(err error, s snapshots) error {
	_, lacking := errors.AsType[*catalog.LackingError](err)
	_, differs := errors.AsType[*catalog.DiffersError](err)
	if !lacking && !differs {
		return err
	}
	latest, any := s.Latest()
	if !any {
		return err
	}
	return fmt.Errorf("%w; if it was deleted or replaced, start the next epoch, which has the shards that exist now: --epoch %d", err, latest+1)
}

func closeSnapshots(s snapshots) error {
	if s == nil {
		return nil
	}
	return s.Close()
}

// Close frees everything: first the generations, then the mount. No handle may be in use, and all
// replies must have been released. It is idempotent.
func (d *Dataset) Close() error {
	if d.generations != nil {
		return errors.Join(d.generations.close(), d.mount.close())
	}
	return errors.Join(d.current.close(), d.mount.close())
}

// Spec is the spec passed to Open, with auto and defaults resolved.
func (d *Dataset) Spec() spec.Spec {
	g, release := d.acquire()
	defer release()
	return g.spec
}

// Catalog is the dataset's catalog. It is closed with the dataset; in a growing dataset, as soon as
// its epoch is neither current nor in use.
func (d *Dataset) Catalog() *catalog.Catalog {
	g, release := d.acquire()
	defer release()
	return g.catalog
}

// Fingerprint identifies the dataset: see catalog.Catalog.Fingerprint.
func (d *Dataset) Fingerprint() string { return d.Catalog().Fingerprint() }

// Explain returns a text that names the shards that differ from the dataset with the given
// fingerprint, or "" if that is unknown.
func (d *Dataset) Explain(fingerprint string) string {
	g, release := d.acquire()
	defer release()
	return g.catalog.Explain(fingerprint)
}

// Part is the set of records that the spec's epoch orders: those selected by split and sample; nil
// without them.
func (d *Dataset) Part() *order.Part {
	g, release := d.acquire()
	defer release()
	return g.part
}

// Records is T, the number of records in the order of the spec's epoch. With a split or a sample it
// is the number of selected records, which may be 0.
func (d *Dataset) Records() uint64 {
	g, release := d.acquire()
	defer release()
	return g.records()
}

// EpochRecords is Records of another epoch; with a sample, the number differs from epoch to epoch.
// The first call for an epoch then takes some nanoseconds for each record of the dataset.
func (d *Dataset) EpochRecords(ctx context.Context, epoch uint64) (uint64, error) {
	g, release, err := d.holdEpoch(ctx, epoch)
	if err != nil {
		return 0, err
	}
	defer release()
	return g.epochRecords(ctx, epoch)
}

// EpochFingerprint is Fingerprint of another epoch. If the dataset does not grow, all epochs have
// the same fingerprint.
func (d *Dataset) EpochFingerprint(ctx context.Context, epoch uint64) (string, error) {
	g, release, err := d.holdEpoch(ctx, epoch)
	if err != nil {
		return "", err
	}
	defer release()
	return g.catalog.Fingerprint(), nil
}

// StreamBytes is the total size in bytes of the records in the order of the spec's epoch. The first
// call visits each record, at some nanoseconds a record.
func (d *Dataset) StreamBytes() int64 {
	g, release := d.acquire()
	defer release()
	return g.streamBytes()
}

// Chunks is the number of chunks that the order of the spec's epoch permutes.
func (d *Dataset) Chunks() int {
	g, release := d.acquire()
	defer release()
	return g.chunks()
}

// ChunkStarts returns the argument for order.NewEpoch: the first record of each chunk, counted in
// the records of Part.
func (d *Dataset) ChunkStarts(chunkBytes, chunkRecords uint64) []uint64 {
	g, release := d.acquire()
	defer release()
	return g.chunkStarts(chunkBytes, chunkRecords)
}

// StreamExtension is the extension of stream names, including the dot.
func (d *Dataset) StreamExtension() string {
	g, release := d.acquire()
	defer release()
	return g.catalog.StreamExtension()
}

// Crops reports whether records are crops of Zarr arrays: streams then have files of stream.Crops.
func (d *Dataset) Crops() bool {
	g, release := d.acquire()
	defer release()
	return g.cubes != nil
}

// Describe renders dataset.json: what the dataset is and how it is read. It is a pure function of
// catalog and spec, so its size is exact.
func (d *Dataset) Describe() ([]byte, error) {
	g, release := d.acquire()
	defer release()
	return g.describe(g.selection)
}

// DescribeEpoch is Describe for any epoch. The result differs from Describe only if the dataset has
// a sample or grows.
func (d *Dataset) DescribeEpoch(ctx context.Context, epoch uint64) ([]byte, error) {
	g, release, err := d.holdEpoch(ctx, epoch)
	if err != nil {
		return nil, err
	}
	defer release()
	s, err := g.selected(ctx, epoch)
	if err != nil {
		return nil, err
	}
	return g.describe(s)
}

// Epoch is the global order of an epoch. The last few epochs are cached.
func (d *Dataset) Epoch(epoch uint64) (*order.Epoch, error) {
	g, release, err := d.holdEpoch(context.Background(), epoch)
	if err != nil {
		return nil, err
	}
	defer release()
	return g.epoch(epoch)
}

// Set returns the worker files for the rest of epoch after done, assigned to workers by deal. A
// bounded number of sets is cached, so asking again is cheap. A set stays valid after it has left
// the cache. In a growing dataset, a set fails with stream.ErrRetired once the epoch is no longer
// open; the caller may then ask for it again.
func (d *Dataset) Set(ctx context.Context, epoch uint64, done []order.Done, deal spec.Assignment) (*stream.Set, error) {
	g, release, err := d.holdEpoch(ctx, epoch)
	if err != nil {
		return nil, err
	}
	defer release()
	return g.set(epoch, done, deal)
}

// Expect computes what the first bytes of a view of an epoch must wait for, and keeps the result
// for Status.
func (d *Dataset) Expect(v *order.View, epoch uint64) (Start, error) {
	g, release, err := d.holdEpoch(context.Background(), epoch)
	if err != nil {
		return Start{}, err
	}
	defer release()
	s, err := g.expect(v, epoch, longStart)
	if err == nil {
		g.start.Store(&s)
	}
	return s, err
}

// Forecast returns what the first n records of worker w of a view would read. It reads no data. It
// fails if a mount would be refused. If the dataset grows, the view is of the current epoch.
func (d *Dataset) Forecast(ctx context.Context, v *order.View, w, n uint64) (Forecast, error) {
	g, release := d.acquire()
	defer release()
	return g.forecast(ctx, v, w, n)
}

// VerifyShards reads every byte of the dataset's shards from storage and reports what is wrong. It
// bypasses the page cache if that is possible and not switched off. It retries transient errors, as
// for readers. The returned error is ctx's.
func (d *Dataset) VerifyShards(ctx context.Context, progress func(catalog.Progress)) (verify.Report, error) {
	g, release := d.acquire()
	defer release()
	return g.verifyShards(ctx, progress)
}

// Meter counts where the time of the dataset and its readers goes.
func (d *Dataset) Meter() *meter.Meter { return &d.mount.meter }

// Status is a snapshot of what the dataset is doing.
type Status struct {
	Engine uring.Status `json:"engine"`
	// Retries counts reads that were repeated after a transient error.
	Retries storage.RetryStats `json:"retries"`
	Fetch   read.Stats         `json:"fetch"`
	// Changed are the shards that reads found changed since they were indexed; nil if none has.
	Changed *read.Changed `json:"changed_shards,omitempty"`
	// Remote is how the service that stores the dataset responds; nil for a file system.
	Remote *remote.Stats `json:"remote,omitempty"`
	// Cache is the state of the local disk cache; nil if there is none.
	Cache *diskcache.Stats `json:"cache,omitempty"`
	// Cubes counts the decoding of Zarr arrays; nil if there are none.
	Cubes *crops.Stats `json:"cubes,omitempty"`
	// Sources are the storages of a mixture's sources; nil if the dataset is not a mixture.
	Sources []SourceStatus `json:"sources,omitempty"`
	Start   *Start         `json:"start,omitempty"` // result of Expect; nil before the first call
	// Storage describes the reads that are made, and whether that follows a measurement.
	Storage storage.Profile `json:"storage"`
	// Measured is the storage's measurements, or nil if there are none.
	Measured []filesystem.Measurement `json:"-"`
	Uptime   time.Duration            `json:"uptime_nanos"`
	// DamagedShards counts shards with damage that was left out; Damages counts the damages by
	// reason.
	DamagedShards int `json:"damaged_shards"`
	// Shards is the number of shards, FilesLeftOut the number of files that are not shards, and
	// FirstLeftOut the first of these by path.
	Shards       int               `json:"shards"`
	FilesLeftOut int               `json:"files_left_out"`
	FirstLeftOut []string          `json:"files_left_out_first,omitempty"`
	Damages      map[string]uint64 `json:"damages_by_reason,omitempty"`
	// Growing is the state of a growing dataset; nil for others.
	Growing *snapshot.Status `json:"-"`
}

// Status returns the current state.
//
// It must not be called while the dataset is being closed: see ReadsUnderWay.
func (d *Dataset) Status() Status {
	m := d.mount
	g, release := d.acquire()
	defer release()
	s := Status{
		Engine: m.engineStatus(), Retries: m.retryStats(), Remote: m.remoteStats(), Cache: m.cacheStats(), Fetch: g.fetchStats(), Changed: m.changes.Changed(), Start: g.start.Load(),
		Sources: m.sourceStatus(), Cubes: m.cubeStats(), Storage: m.profile, Measured: m.measured, Uptime: time.Since(m.started),
		DamagedShards: len(g.catalog.Damaged()), Damages: g.damages(), Shards: g.catalog.Shards(), FilesLeftOut: g.catalog.PassedOver(),
	}
	for _, v := range g.catalog.Selection().FirstLeft {
		s.FirstLeftOut = append(s.FirstLeftOut, v.Path)
	}
	if d.generations != nil {
		x := d.generations.snapshots.Growing()
		s.Growing = &x
	}
	return s
}

// ReadsUnderWay is the number of reads that storage has begun and not yet answered. It may be
// called at any time, including during Close, which waits for them, and afterwards.
func (d *Dataset) ReadsUnderWay() int64 { return d.mount.engineStatus().InFlight }

// Grows reports whether epochs have different sets of shards.
func (d *Dataset) Grows() bool { return d.generations != nil }

// Run identifies the run that epochs are recorded in, if the dataset grows: 32 hexadecimal digits.
// Otherwise it is "".
func (d *Dataset) Run() string {
	if d.generations == nil {
		return ""
	}
	return d.generations.snapshots.Run()
}

// HasEpoch reports whether an epoch may be asked for. In a growing dataset these are the epochs
// already started and the next one; otherwise all. It starts none and opens nothing.
func (d *Dataset) HasEpoch(epoch uint64) bool {
	if d.generations == nil {
		return true
	}
	latest, any := d.generations.snapshots.Latest()
	if !any {
		return epoch == 0
	}
	return epoch <= latest || epoch == latest+1 && latest != math.MaxUint64
}

// Started reports whether the epoch's set of shards is fixed. It is always true, except after the
// latest epoch of a growing dataset.
func (d *Dataset) Started(epoch uint64) bool {
	if d.generations == nil {
		return true
	}
	latest, any := d.generations.snapshots.Latest()
	return any && epoch <= latest
}

// CanTake returns nil if the epoch's set of shards is fixed, or if the epoch could be started now.
// It starts none, and may have to wait for shards to be indexed.
func (d *Dataset) CanTake(ctx context.Context, epoch uint64) error {
	if d.generations == nil {
		return nil
	}
	return d.generations.snapshots.CanTake(ctx, epoch)
}

// Begin makes an epoch of a growing dataset the current one: it stays open, and methods without an
// epoch parameter answer for it. If it is the next epoch, Begin starts it.
func (d *Dataset) Begin(ctx context.Context, epoch uint64) error {
	if d.generations == nil {
		return nil
	}
	g, err := d.generations.acquire(ctx, epoch)
	if err != nil {
		return err
	}
	d.generations.begin(g)
	g.Leave()
	return nil
}

// waitingEvery is the interval at which an epoch that cannot start yet is tried again. Each attempt
// checks what has changed in the dataset.
const waitingEvery = time.Second

// BeginWaiting is Begin, but waits while the epoch cannot start yet. Meanwhile it calls told with
// the state, from this goroutine.
func (d *Dataset) BeginWaiting(ctx context.Context, epoch uint64, told func(snapshot.Status)) error {
	for {
		err := d.Begin(ctx, epoch)
		if !errors.Is(err, growing.ErrNotYet) {
			return err
		}
		told(d.generations.snapshots.Growing())
		timer := time.NewTimer(waitingEvery)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// acquire returns the current generation, which stays open until release. It panics if the dataset
// is closed.
func (d *Dataset) acquire() (g *generation, release func()) {
	if d.generations == nil {
		return d.current, func() {}
	}
	if g = d.generations.holdCurrent(); g == nil {
		panic(errors.New("pipeline: use of a dataset that is closed"))
	}
	return g, g.Leave
}

// holdEpoch returns the generation of an epoch, which stays open until release.
func (d *Dataset) holdEpoch(ctx context.Context, epoch uint64) (g *generation, release func(), err error) {
	if d.generations == nil {
		return d.current, func() {}, nil
	}
	if g, err = d.generations.acquire(ctx, epoch); err != nil {
		return nil, nil, err
	}
	return g, g.Leave, nil
}

// verifyShards is Dataset.VerifyShards. If there is a way around the page cache it uses that,
// through a storage of its own; otherwise it reads as readers do.
func (g *generation) verifyShards(ctx context.Context, progress func(catalog.Progress)) (verify.Report, error) {
	m := g.mount
	caps := m.files.Caps()
	c := verify.Config{Catalog: g.catalog, Storage: m.reads, Verifier: caps.Verifier, Profile: m.profile, MemoryBytes: g.spec.MemoryBytes, Progress: progress}
	if caps.Uncached == nil {
		return verify.Shards(ctx, c)
	}
	s, err := caps.Uncached()
	if err != nil {
		return verify.Report{}, err
	}
	if s == nil {
		return verify.Shards(ctx, c)
	}
	if c.Storage = s; m.scheme.retry {
		c.Storage = storage.NewRetrying(s)
	}
	r, err := verify.Shards(ctx, c)
	return r, errors.Join(err, c.Storage.Close())
}

// IndexPart indexes one of several parts of a dataset's shards without opening the dataset. The
// Open that follows the last part finds the results (catalog.IndexPart). It is for a single dataset
// that does not grow, not for mixtures.
func IndexPart(ctx context.Context, s spec.Spec, o Options, part catalog.PassPart) (n catalog.Indexed, err error) {
	if err := formats.Validate(s); err != nil {
		return n, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	m, err := openMount(ctx, s, o)
	if err != nil {
		return n, err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	return catalog.IndexPart(ctx, m.catalogConfig(), part)
}
