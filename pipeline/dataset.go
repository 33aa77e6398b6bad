package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/fetch"
	"github.com/lsiofs/lsiofs/pipeline/meter"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/retry"
	"github.com/lsiofs/lsiofs/pipeline/stream"
	"github.com/lsiofs/lsiofs/pipeline/verify"
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
	// afterStep is called after each step of the opening, which fails with its error;
	// nil but in tests.
	afterStep func(step string) error
}

// Dataset is an open dataset: a mount, and the generation of shards that it serves.
// It is safe for concurrent use. What a set of shards decides its methods ask the
// generation for.
type Dataset struct {
	mount   *mount
	current *generation
}

// Open validates the spec, opens or builds the catalog and starts the fetcher.
// Progress is reported while shards are indexed. When ctx ends, indexing stops,
// and what has been indexed is kept for the next time. Where it fails, nothing stays
// open.
func Open(ctx context.Context, s spec.Spec, o Options) (*Dataset, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	m, err := openMount(ctx, s, o)
	if err != nil {
		return nil, err
	}
	g, err := openGeneration(ctx, m)
	if err != nil {
		return nil, errors.Join(err, m.close())
	}
	return &Dataset{m, g}, nil
}

// Close frees everything: the generation, then what it was made of. No handle may be
// in use and no reply be out. It is idempotent.
func (d *Dataset) Close() error { return errors.Join(d.current.close(), d.mount.close()) }

// Spec is what Open was given, with auto and defaults resolved.
func (d *Dataset) Spec() spec.Spec { return d.current.spec }

// Catalog is the dataset's catalog. It is closed with the dataset.
func (d *Dataset) Catalog() *catalog.Catalog { return d.current.catalog }

// Fingerprint is the catalog's.
func (d *Dataset) Fingerprint() string { return d.current.catalog.Fingerprint() }

// Explain says in words which shards differ from the dataset with another
// fingerprint, "" when that can't be told.
func (d *Dataset) Explain(fingerprint string) string { return d.current.catalog.Explain(fingerprint) }

// Part is what the split leaves of the dataset, nil where there is none.
func (d *Dataset) Part() *order.Part { return d.current.part }

// Records is T: where there is a split, the number of records that it leaves,
// which may be 0.
func (d *Dataset) Records() uint64 { return d.current.records() }

// StreamBytes is the sum of the sizes of all records that the split leaves. The
// first call looks at each of them, which takes some nanoseconds a record.
func (d *Dataset) StreamBytes() int64 { return d.current.streamBytes() }

// Chunks is the number of chunks that the order permutes.
func (d *Dataset) Chunks() int { return d.current.chunks() }

// ChunkStarts is what order.NewEpoch takes: the first records of the chunks of
// what the split leaves.
func (d *Dataset) ChunkStarts(chunkBytes, chunkRecords uint64) []uint64 {
	return d.current.chunkStarts(chunkBytes, chunkRecords)
}

// StreamExtension is the ending of stream names, with the dot.
func (d *Dataset) StreamExtension() string { return d.current.catalog.StreamExtension() }

// Describe is dataset.json: what the dataset is and how it is read. It is a pure
// function of the catalog and the spec, so its size is exact.
func (d *Dataset) Describe() ([]byte, error) { return d.current.describe() }

// Epoch is the global order of an epoch. A few epochs are remembered.
func (d *Dataset) Epoch(epoch uint64) (*order.Epoch, error) { return d.current.epoch(epoch) }

// Set gives the files of what is left of epoch after done, dealt as deal says.
// Sets are remembered, a bounded number of them, so asking again is cheap; a set
// that was handed out stays good whatever is forgotten.
func (d *Dataset) Set(_ context.Context, epoch uint64, done []order.Done, deal spec.Deal) (*stream.Set, error) {
	return d.current.set(epoch, done, deal)
}

// Expect finds out what the first bytes of a view of an epoch wait for, and
// keeps it for Status.
func (d *Dataset) Expect(v *order.View, epoch uint64) (Start, error) {
	s, err := d.current.expect(v, epoch, longStart)
	if err == nil {
		d.current.start.Store(&s)
	}
	return s, err
}

// Forecast says what the first n records of worker w of a view would read in a
// mount of which a strategy is asked. It reads no data. It fails where such a
// mount would be refused.
func (d *Dataset) Forecast(ctx context.Context, v *order.View, w, n uint64, asked spec.Read) (Forecast, error) {
	return d.current.forecast(ctx, v, w, n, asked)
}

// VerifyShards reads every byte of the dataset's shards from their storage, past
// the page cache where that is possible and not switched off, and says what is
// wrong. A read that fails for a reason that passes is made again first, as for
// readers. Errors are of ctx.
func (d *Dataset) VerifyShards(ctx context.Context, progress func(catalog.Progress)) (verify.Report, error) {
	return d.current.verifyShards(ctx, progress)
}

// Meter counts where the time of the dataset and its readers goes.
func (d *Dataset) Meter() *meter.Meter { return &d.mount.meter }

// Status is a snapshot of what the dataset is doing.
type Status struct {
	Engine uring.Status `json:"engine"`
	// Retries are reads that were made again, as their errors were likely to pass.
	Retries retry.Stats `json:"retries"`
	Fetch   fetch.Stats `json:"fetch"`
	// Remote is how the service answers that has the dataset; nil in a file system.
	Remote *remote.Stats `json:"remote,omitempty"`
	Start  *Start        `json:"start,omitempty"` // what Expect found, where that was called
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
	m, g := d.mount, d.current
	return Status{
		Engine: m.engineStatus(), Retries: m.retryStats(), Remote: m.remoteStats(), Fetch: g.fetcher.Stats(), Start: g.start.Load(),
		Storage: m.profile, Measured: m.measured, Uptime: time.Since(m.started),
		DamagedShards: len(g.catalog.Damaged()), Damages: g.damages(),
	}
}
