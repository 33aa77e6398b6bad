package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
	"github.com/lsiofs/lsiofs/pipeline/storage/retry"
)

// Config describes which dataset to open, and how.
type Config struct {
	// Dataset, Format and OnCorrupt as in spec.Spec.
	Dataset   string
	Format    spec.Format
	OnCorrupt spec.OnCorrupt
	IndexDir  string
	// Exclude lists what is left out (spec.Spec).
	Exclude []string
	// Files makes Catalog.Selection list all files, not only the first ones.
	Files bool
	// Target is the parsed Dataset if it is in a remote service; nil for a path. The storage of a
	// service repeats failed requests itself, so its failed reads are not repeated here.
	Target *discover.Target
	// OpenStorage opens the storage of a dataset's root directory (absolute) or URL. The storage
	// may keep files in indexDir, which is "" if nothing can be stored. Open reads from it and does
	// not close it.
	OpenStorage func(root, indexDir string) (storage.Storage, error)
	// Profile determines how shards are read from the storage; the zero value is the defaults of an
	// unknown storage. The resulting index does not depend on it.
	Profile profile.Profile
	// Rebuild indexes every shard again, whatever is stored.
	Rebuild bool
	// MemoryBytes bounds the memory used while shards are indexed. Half of it is for decoders,
	// except that one decoder may always run; a quarter is for the buffers of the shards read at a
	// time, and a quarter for the index entries of their records. As many shards as there are cores
	// are read in any case. Decoders have at least 32 MiB, and the others 8 MiB each.
	MemoryBytes int64
	// Progress, if set, is called periodically from one goroutine, and a last time when the catalog
	// is ready.
	Progress func(Progress)
	Log      *slog.Logger
}

// Open finds the dataset's shards, reuses the stored index of unchanged ones, indexes the others,
// stores the result, and returns the catalog. The caller closes it. When ctx ends, the finished
// shards are kept for the next time.
func Open(ctx context.Context, c Config) (*Catalog, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	o, err := c.begin()
	if err != nil {
		return nil, err
	}
	defer o.reads.Close() // nothing waits for these any more
	catalog, err := o.open(ctx)
	if d, ok := errors.AsType[*storage.DamagedError](err); ok {
		d.Dataset, d.Format = o.target.String(), cmp.Or(o.found.Format.Name, o.Format.Name)
	}
	o.reporter.stop(err == nil)
	return catalog, err
}

// begin opens what an opening needs. The caller closes its reads.
func (c Config) begin() (*opening, error) {
	d, err := c.open(func(*discover.Target) error { return nil })
	if err != nil {
		return nil, err
	}
	return &opening{Config: c, access: d, reporter: newReporter(c.Progress)}, nil
}

// access is how the files of a dataset are read, and where its index is stored.
type access struct {
	target  discover.Target
	store   *index.Store
	storage storage.Storage
	reads   storage.Storage // storage, with transient errors retried
}

// open opens a dataset's storage and the store of its index, unless allowed refuses the target. The
// caller closes the reads.
func (c Config) open(allowed func(*discover.Target) error) (d access, err error) {
	if d.target, err = c.find(); err != nil {
		return d, err
	}
	t := &d.target
	if err := t.Exclude(c.Exclude); err != nil {
		return d, err
	}
	if err := allowed(t); err != nil {
		return d, err
	}
	d.store = index.OpenStore(c.IndexDir, wholeRoot(t), index.KeyOf(t.Root(), t.Text(), formatLine(c.Format)), c.Log)
	if d.storage, err = c.OpenStorage(t.Root(), d.store.Dir()); err != nil {
		return d, fmt.Errorf("dataset %s: %w", t, err)
	}
	if d.reads = (lent{d.storage}); !t.Remote() {
		d.reads = retry.New(d.reads)
	}
	return d, nil
}

// find resolves the dataset's target.
func (c *Config) find() (discover.Target, error) {
	if c.Target != nil {
		return *c.Target, nil
	}
	return discover.ParseTarget(c.Dataset)
}

// DirectoryFor returns the absolute path of the directory where a dataset's index is stored:
// indexDir if it is not empty, else the directory next to the dataset, else one in the user's
// cache. refused is the reason why the one next to the dataset is not used.
func DirectoryFor(indexDir, dataset string) (dir string, refused, err error) {
	root := ""
	if t, err := discover.ParseTarget(dataset); err == nil {
		root = wholeRoot(&t)
	}
	return index.DirectoryFor(indexDir, root)
}

// wholeRoot returns the directory that is the dataset, "" if the dataset is only a part of one.
func wholeRoot(t *discover.Target) string {
	if t.Remote() || !t.Whole() {
		return ""
	}
	return t.Root()
}

// lent is a storage whose Close does nothing, since its owner closes it.
type lent struct{ storage.Storage }

func (lent) Close() error { return nil }

// opening is one run of Open.
type opening struct {
	Config
	access
	reporter *reporter
	prior    *index.Image            // the index left by an earlier run, nil if there is none
	judged   map[storage.Object]bool // files that that run found not to be shards
	found    discover.Found
	sniffAll bool // open every file instead of assuming what its name implies

	part    *PassPart // the part to index, nil for all; if set, there is no catalog
	indexed Indexed
}

func (o *opening) open(ctx context.Context) (*Catalog, error) {
	if !o.Rebuild {
		o.prior = o.store.Load()
	}
	if o.prior != nil {
		o.judged = o.prior.Judged()
	}
	catalog, err := o.discoverAndBuild(ctx)
	if err != nil || catalog == nil || catalog.image != o.prior {
		_ = o.prior.Close()
	}
	return catalog, err
}

// discoverAndBuild finds the shards and indexes those that are new. In remote services few files
// are opened to find out their format: the pass checks the others as it reads them. If the pass
// fails, because a file is not what its name implies or for any other reason, all files are opened
// and the build continues with what was finished. So the result is the same whether formats are
// assumed or not, and so is the text of an error.
func (o *opening) discoverAndBuild(ctx context.Context) (*Catalog, error) {
	o.sniffAll = streamsOf(o.storage, o.Profile.Or().Pass) == nil
	catalog, err := o.attempt(ctx)
	var failed *assumedError
	if errors.As(err, &failed) && ctx.Err() == nil {
		o.sniffAll = true
		catalog, err = o.attempt(ctx)
	}
	return catalog, err
}

// assumedError is the failure of a pass in which some shards were assumed to be of the format that
// their names imply.
type assumedError struct{ err error }

func (e *assumedError) Error() string { return e.err.Error() }
func (e *assumedError) Unwrap() error { return e.err }

// attempt finds the shards, and indexes those that are new.
func (o *opening) attempt(ctx context.Context) (catalog *Catalog, err error) {
	o.found, err = discover.Shards(ctx, discover.Config{
		Target: o.target, Format: o.Format, Storage: o.storage, Reads: o.reads,
		AssumeAlike: !o.sniffAll, AtATime: o.Profile.Or().Pass.Shards, IndexDir: o.store.Dir(), Known: o.known, Files: o.Files, Log: o.Log,
	})
	if err != nil {
		return nil, err
	}
	shards := make([]index.Shard, len(o.found.Shards))
	todo := o.reuse(shards)
	if o.part != nil {
		return nil, o.indexPart(ctx, shards, todo)
	}
	if len(todo) == 0 && o.prior != nil && o.prior.Shards() == uint64(len(shards)) && o.priorKnowsJudged() {
		// Nothing is left to build, so the journals of processes that were killed between sealing
		// and removing them are not needed either.
		if err := o.refuseKinds(shards); err != nil { // it may have been built when kinds could be mixed
			return nil, err
		}
		o.store.Clean()
		o.reporter.planned(Progress{Reused: len(shards), Records: o.prior.Records()})
		return o.catalog(o.prior)
	}
	return o.build(ctx, shards, todo)
}

// known returns the format of files whose content an earlier run has judged; "" for files that are
// not shards.
func (o *opening) known(object storage.Object) (format string, known bool) {
	if o.prior == nil {
		return "", false
	}
	if o.judged[object] {
		return "", true
	}
	i, ok := o.prior.Find(object.Path)
	return formatName(o.prior.Format()), ok && o.prior.Object(i) == object
}

// priorKnowsJudged reports whether the earlier index remembers all files that were found not to be
// shards.
func (o *opening) priorKnowsJudged() bool {
	for _, j := range o.found.Judged {
		if !o.judged[j] {
			return false
		}
	}
	return true
}

// reuse fills in the shards whose stored index is still valid, and returns the numbers of the
// others.
func (o *opening) reuse(shards []index.Shard) (todo []int) {
	same := o.prior != nil && o.prior.Format() == formatLine(o.found.Format)
	for i, c := range o.found.Shards {
		if !same || !o.fromPrior(c, &shards[i]) {
			todo = append(todo, i)
		}
	}
	return todo
}

func (o *opening) fromPrior(c discover.Shard, s *index.Shard) bool {
	i, ok := o.prior.Find(c.Object.Path)
	if !ok || o.prior.Object(i) != c.Object || !o.sameCodec(c, o.prior.Codec(i)) {
		return false
	}
	b := o.prior.Blob(i)
	if !o.reusable(b) {
		return false
	}
	*s = index.Shard{Object: c.Object, Codec: o.prior.Codec(i), Blob: b}
	return true
}

// sameCodec reports whether an unchanged shard is decoded as in an earlier run. If the codec is
// detected from the shard's bytes, it is: they have not changed.
func (o *opening) sameCodec(c discover.Shard, number uint32) bool {
	return format.ToldByBytes(o.found.Unpacker) || number == formats.CodecNumber(c.Codec)
}

// reusable reports whether this run would find in an unchanged shard what an earlier run found.
// Damage must be found again if it is an error, and so must a file that an earlier version left out
// because it could not be read.
func (o *opening) reusable(b index.Blob) bool {
	h := b.Header()
	return !h.Unreadable() && (!h.Damaged() || o.OnCorrupt == spec.CorruptSkip)
}

// catalog returns the catalog of a sealed index. If it fails, the caller still owns the index.
func (o *opening) catalog(i *index.Image) (*Catalog, error) {
	c := &Catalog{
		root: o.target.Root(), format: o.found.Format, unpacker: o.found.Unpacker, extension: o.found.StreamExtension,
		store: o.store, image: i, coarse: newCoarse(i), selection: o.found.Selection,
	}
	if err := c.setKind(); err != nil {
		return nil, err
	}
	c.setDamaged()
	logDamage(o.Log, c.damaged)
	return c, nil
}
