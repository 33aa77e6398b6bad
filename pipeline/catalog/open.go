package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
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
	Profile storage.Profile
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
		d.reads = storage.NewRetrying(d.reads)
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
	if !o.reusable(b) || !o.sameBeside(c) {
		return false
	}
	*s = index.Shard{Object: c.Object, Codec: o.prior.Codec(i), Blob: b}
	return true
}

// sameBeside reports whether the file that describes a shard, or its absence, is that of the earlier
// run.
func (o *opening) sameBeside(c discover.Shard) bool {
	pairs, ok := o.found.Unpacker.(format.Paired)
	if !ok {
		return true
	}
	if c.Beside.Path != "" {
		return o.judged[c.Beside]
	}
	path := pairs.Companion(c.Object.Path)
	for was := range o.judged {
		if was.Path == path {
			return false
		}
	}
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

// build indexes the shards in todo, seals the index, and opens what was sealed.
func (o *opening) build(ctx context.Context, shards []index.Shard, todo []int) (*Catalog, error) {
	usable := o.reusable
	if o.Rebuild {
		usable = nil
	}
	b := o.store.Begin(formatLine(o.found.Format), usable)
	defer b.Close()
	todo = o.goOn(b, shards, todo)
	o.plan(shards, todo)
	p := o.newPass(b)
	if err := o.assumed(p.run(ctx, o.found.Shards, todo)); err != nil {
		return nil, err
	}
	err := b.Added(func(i int, codec uint32, blob index.Blob) {
		shards[i] = index.Shard{Object: o.found.Shards[i].Object, Codec: codec, Blob: blob}
	})
	if err != nil {
		return nil, fmt.Errorf("index of %s: %w", &o.target, err)
	}
	return o.seal(b, shards)
}

// assumed wraps the failure of a pass in which some shards were assumed to be of the format that
// their names imply.
func (o *opening) assumed(err error) error {
	if err != nil && !o.sniffAll && slices.ContainsFunc(o.found.Shards, func(s discover.Shard) bool { return s.Assumed }) {
		return &assumedError{err}
	}
	return err
}

// goOn fills in the shards that interrupted builds had finished and that have not changed since,
// and returns the numbers of those still to do.
func (o *opening) goOn(b *index.Build, shards []index.Shard, todo []int) []int {
	left := todo[:0]
	for _, i := range todo {
		c := o.found.Shards[i]
		// A journal does not have the version of the file that describes a shard.
		if s, ok := b.Find(c.Object); ok && o.sameCodec(c, s.Codec) && c.Beside.Path == "" {
			shards[i] = s
			continue
		}
		left = append(left, i)
	}
	return left
}

// plan passes the totals of the build to the progress reporter.
func (o *opening) plan(shards []index.Shard, todo []int) {
	totals := Progress{ShardsTotal: len(todo), Reused: len(shards) - len(todo)}
	for _, i := range todo {
		totals.BytesTotal += o.found.Shards[i].Object.SizeBytes
	}
	for i := range shards {
		if shards[i].Blob != nil {
			totals.Records += shards[i].Blob.Header().Records
		}
	}
	o.reporter.planned(totals)
}

// seal writes the index of all shards and opens it, unless the shards are not a valid dataset.
func (o *opening) seal(b *index.Build, shards []index.Shard) (*Catalog, error) {
	if err := o.refuse(shards, shards); err != nil {
		return nil, err
	}
	i, err := b.Seal(o.target.String(), o.content(shards, func(w io.Writer) error { return datasetLines(w, o.found.Format, shards) }))
	if err != nil {
		return nil, err
	}
	catalog, err := o.catalog(i)
	if err != nil {
		_ = i.Close()
	}
	return catalog, err
}

// content returns the content of an index of these shards; lines writes the text whose SHA-256 is
// the fingerprint.
func (o *opening) content(shards []index.Shard, lines func(io.Writer) error) index.Content {
	_, keyed := o.found.Unpacker.(format.Renamer)
	return index.Content{Format: formatLine(o.found.Format), Keyed: keyed, Shards: shards, Judged: o.found.Judged, Lines: lines}
}

// refuse returns an error if shards are not a valid dataset. kinds has at least the first shard of
// each kind.
func (o *opening) refuse(shards, kinds []index.Shard) error {
	if err := o.refuseEmpty(shards); err != nil {
		return err
	}
	if err := o.refuseKinds(kinds); err != nil {
		return err
	}
	return o.refuseTooLarge(shards)
}

// refuseTooLarge refuses datasets whose total size overflows an int64.
func (o *opening) refuseTooLarge(shards []index.Shard) error {
	sum := int64(0)
	for i := range shards {
		n := shards[i].Blob.StreamBytes()
		if sum > math.MaxInt64-n {
			return fmt.Errorf("%s holds more than 2⁶³ bytes in its records: name fewer files with a pattern", &o.target)
		}
		sum += n
	}
	return nil
}

func (o *opening) refuseEmpty(shards []index.Shard) error {
	if slices.ContainsFunc(shards, func(s index.Shard) bool { return s.Blob.Header().Records > 0 }) {
		return nil
	}
	damaged, all, first := 0, &storage.DamagedError{Shards: len(shards)}, ""
	for i := range shards {
		l, path := shards[i].Blob.Losses(), shards[i].Object.Path
		if len(l.First) == 0 {
			continue
		}
		if damaged++; damaged == 1 {
			first = path + ": " + l.First[0].Error()
		}
		for _, d := range l.First[:min(len(l.First), storage.MaxDamages-len(all.Damages))] {
			all.Damages = append(all.Damages, storage.Damage{Shard: path, Record: d.Record, OffsetBytes: d.OffsetBytes, RawOffset: d.RawOffset, Reason: d.PartReason()})
		}
		for _, r := range l.Reasons {
			all.Total += r.Count
		}
	}
	if damaged > 0 {
		all.Err = fmt.Errorf("%s holds no records in %s: --on-corrupt skip left out what is damaged, such as %s", &o.target, files(len(shards)), first)
		return all
	}
	if pack := o.found.Format.Rows.Pack; pack != "" {
		return fmt.Errorf("%s holds no records in %s of format %s: none has as many tokens as --pack %s needs", &o.target, files(len(shards)), o.found.Format.Name, pack)
	}
	return fmt.Errorf("%s holds no records in %s of format %s: check the path, or choose another --format", &o.target, files(len(shards)), o.found.Format.Name)
}

func files(n int) string {
	if n == 1 {
		return "1 file"
	}
	return fmt.Sprintf("%d files", n)
}

// refuseKinds refuses shards whose records are of another kind than those of the first shard with
// records, if the format requires one kind (format.Uniform). Shards of an earlier index are
// compared like new ones.
func (o *opening) refuseKinds(sealed []index.Shard) error {
	u, ok := o.found.Unpacker.(format.Uniform)
	if !ok {
		return nil
	}
	first, kind := -1, ""
	for i := range sealed {
		b := sealed[i].Blob
		switch this := b.Kind(); {
		case b.Header().Records == 0 || string(this) == kind:
		case first < 0:
			if first, kind = i, string(this); !u.SameKind(kind, kind) {
				return fmt.Errorf("%s holds shards of several kinds, and a dataset of format %s needs one: %s has %s: %s",
					&o.target, o.found.Format.Name, sealed[i].Object.Path, kindText(kind, 0), o.oneKind())
			}
		case !u.SameKind(kind, string(this)):
			if told := kindsDiffer(u, string(this), kind); told != "" {
				return fmt.Errorf("%s holds shards of two kinds, and a dataset of format %s needs one: %s differs from %s, which comes before it: %s: %s",
					&o.target, o.found.Format.Name, sealed[i].Object.Path, sealed[first].Object.Path, told, o.oneKind())
			}
			from := differAt(kind, string(this))
			return fmt.Errorf("%s holds shards of two kinds, and a dataset of format %s needs one: %s has %s, %s has %s: %s",
				&o.target, o.found.Format.Name, sealed[first].Object.Path, kindText(kind, from), sealed[i].Object.Path, kindText(string(this), from), o.oneKind())
		}
	}
	return nil
}

// oneKind returns the advice for a dataset with shards of several kinds.
func (o *opening) oneKind() string {
	const pattern = "name files of one kind with a pattern"
	if o.found.Format.Name == "lc0" {
		return pattern + ", or use --as tensors, which reads games of several versions"
	}
	return pattern
}

// kindsDiffer returns the format's description of how two kinds differ, "" if it has none.
func kindsDiffer(f format.Format, is, was string) string {
	if d, ok := f.(format.Differ); ok {
		return d.Differences(is, was)
	}
	return ""
}

// kindText returns a kind for a message, from byte from on: the kinds of arrays with many fields
// are long.
func kindText(kind string, from int) string {
	const most = 400
	text := kind[from:]
	if len(text) > most {
		text = text[:most] + "…"
	}
	if from > 0 {
		text = "…" + text
	}
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\n", ", rows of "), "")
}

// differAt returns an offset a little before the first difference of two kinds, or 0 if that is
// close enough to the beginning to be shown.
func differAt(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	if n < 200 {
		return 0
	}
	return n - 100
}

// setKind sets the kind from the index: that of the first shard with records, or those of all
// shards if kinds may be mixed.
func (c *Catalog) setKind() error {
	u, ok := c.unpacker.(format.Uniform)
	if !ok {
		return nil
	}
	mixer, mixes := u.(format.Mixer)
	first, kinds := uint64(0), []string(nil)
	for i := range c.image.Shards() {
		b := c.image.Blob(i)
		if b.Header().Records == 0 || slices.Contains(kinds, string(b.Kind())) {
			continue
		}
		if kinds = append(kinds, string(b.Kind())); len(kinds) == 1 {
			first = i
		}
		if !mixes {
			break
		}
	}
	if len(kinds) == 0 {
		return nil
	}
	if c.kind = kinds[0]; mixes {
		c.kind = mixer.MixedKind(kinds)
	}
	f, err := u.OfKind(c.kind)
	if err != nil {
		return fmt.Errorf("%s: the stored index has %s: %w: rebuild the index with lsiofs index --rebuild", c.image.Object(first).Path, kindText(c.kind, 0), err)
	}
	c.unpacker = f
	return nil
}
