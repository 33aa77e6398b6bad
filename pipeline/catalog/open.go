package catalog

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/retry"
	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// Open finds the dataset's shards, reads the stored index where it still holds,
// indexes what is new or changed, stores the result, and returns the catalog
// with the storage that it opened (the caller closes both).
func Open(ctx context.Context, c Config) (*Catalog, storage.Storage, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	t, err := parseTarget(c.Dataset)
	if err != nil {
		return nil, nil, err
	}
	store := openStore(&c, &t, c.Log)
	s, err := c.OpenStorage(t.root, store.dir)
	if err != nil {
		return nil, nil, fmt.Errorf("dataset %s: %w", &t, err)
	}
	reads := retry.New(lent{s})
	defer reads.Close() // of which nothing waits any more
	o := opening{Config: c, target: t, storage: s, reads: reads, table: newTable(), reporter: newReporter(c.Progress), store: store}
	catalog, err := o.open(ctx)
	o.reporter.stop(err == nil)
	if err != nil {
		_ = s.Close()
		return nil, nil, err
	}
	return catalog, s, nil
}

// lent is a storage that stays open.
type lent struct{ storage.Storage }

func (lent) Close() error { return nil }

// opening is one run of Open.
type opening struct {
	Config
	target   target
	storage  storage.Storage
	reads    storage.Storage // storage, whose errors that are likely to pass are tried again
	table    *table
	reporter *reporter
	store    *store

	// What an earlier run has left: prior is its index, nil where there is none.
	prior        *image
	priorMapping *mapping

	found discovered
}

func (o *opening) open(ctx context.Context) (*Catalog, error) {
	if !o.Rebuild {
		o.prior, o.priorMapping = o.store.load()
	}
	catalog, err := o.discoverAndBuild(ctx)
	if err != nil || catalog.mapping != o.priorMapping {
		_ = o.priorMapping.Close()
	}
	return catalog, err
}

func (o *opening) discoverAndBuild(ctx context.Context) (*Catalog, error) {
	objects, err := o.list(ctx)
	if err != nil {
		return nil, err
	}
	s := sniffer{storage: o.reads, table: o.table, known: o.known(), onCorrupt: o.OnCorrupt, log: o.Log}
	if o.found, err = discover(ctx, o.target.String(), objects, o.Format, o.table, s.judge); err != nil {
		return nil, err
	}
	sealed := make([]packed, len(o.found.shards))
	todo := o.reuse(sealed)
	if len(todo) == 0 && o.prior != nil && o.prior.h.shards == uint64(len(sealed)) && o.priorKnowsJudged() {
		// Nothing is left to build, so that journals of dead processes, which were
		// killed between the seal and their end, are as useless as the rest.
		o.store.clean(".tmp", ".journal")
		o.reporter.planned(Progress{Reused: len(sealed), Records: o.prior.h.records})
		return o.catalog(o.prior, o.priorMapping)
	}
	return o.build(ctx, sealed, todo)
}

// list gives the objects that the target may want.
func (o *opening) list(ctx context.Context) ([]storage.Object, error) {
	if len(o.Format.Arrays) > 0 {
		return o.listArrays(ctx)
	}
	if o.target.file != "" {
		if o.Format.Name == "files" {
			return nil, fmt.Errorf("dataset %s is a file: with --format files name the directory that holds files, or a pattern of directories", &o.target)
		}
		stat := o.storage.Stat
		if s, ok := o.storage.(storage.Settler); ok {
			stat = s.Settled
		}
		object, err := stat(ctx, o.target.file)
		if err != nil {
			return nil, fmt.Errorf("dataset %s: %w", &o.target, err)
		}
		return []storage.Object{object}, nil
	}
	own := o.ownDir()
	match := func(path string, isDir bool) bool {
		if isDir && path == own {
			return false
		}
		// A pattern names what is below the root, never the root itself.
		return o.target.pattern == nil || path != "." && o.target.pattern.match(path, isDir)
	}
	var objects []storage.Object
	err := o.storage.List(ctx, match, func(object storage.Object) error {
		objects = append(objects, object)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("dataset %s: %w", &o.target, err)
	}
	if o.target.pattern == nil {
		return objects, nil
	}
	if objects, err = o.target.pattern.choose(objects); err != nil {
		return nil, fmt.Errorf("dataset %s: %w", &o.target, err)
	}
	return objects, nil
}

// ownDir is the index directory relative to the root, where it lies below it:
// it holds no shards.
func (o *opening) ownDir() string {
	if o.store.dir == "" {
		return ""
	}
	dir, err := filepath.EvalSymlinks(o.store.dir)
	if err != nil {
		return ""
	}
	rel, err := filepath.Rel(o.target.root, dir)
	if err != nil || rel == "." || strings.HasPrefix(rel, "..") {
		return ""
	}
	return rel
}

// known answers for files whose content the earlier run has judged.
func (o *opening) known() func(storage.Object) (unpack.Format, bool) {
	if o.prior == nil {
		return func(storage.Object) (unpack.Format, bool) { return nil, false }
	}
	none := unmarshalJudged(o.prior.judged())
	name, _, _ := strings.Cut(o.prior.formatLine(), " ")
	format := o.table.format(name)
	return func(object storage.Object) (unpack.Format, bool) {
		if none[judgedOf(object)] {
			return nil, true
		}
		i, ok := o.prior.find(object.Path)
		return format, ok && format != nil && o.prior.object(i) == object
	}
}

// priorKnowsJudged says whether the earlier index remembers all files that were
// judged not to be shards.
func (o *opening) priorKnowsJudged() bool {
	none := unmarshalJudged(o.prior.judged())
	for _, j := range o.found.judged {
		if !none[j] {
			return false
		}
	}
	return true
}

// reuse fills in the shards whose stored index still holds, and gives the
// numbers of the others.
func (o *opening) reuse(sealed []packed) (todo []int) {
	same := o.prior != nil && o.prior.formatLine() == formatLine(o.found.format)
	for i, c := range o.found.shards {
		if !same || !o.fromPrior(c, &sealed[i]) {
			todo = append(todo, i)
		}
	}
	return todo
}

func (o *opening) fromPrior(c candidate, p *packed) bool {
	i, ok := o.prior.find(c.object.Path)
	if !ok || o.prior.object(i) != c.object || o.prior.codec(i) != c.codec {
		return false
	}
	b := o.prior.blob(i)
	if !reusable(b, o.OnCorrupt) {
		return false
	}
	*p = packed{object: c.object, codec: c.codec, blob: b}
	return true
}

// reusable says whether what an earlier run found in an unchanged shard is what
// this one would find: damage is found again where it is an error, and a file
// that could not be read is tried again.
func reusable(b blob, policy spec.OnCorrupt) bool {
	flags := b.header().flags
	return flags&flagUnreadable == 0 && (flags&flagDamaged == 0 || policy == spec.CorruptSkip)
}

// build indexes the shards in todo, seals the index, and opens what was sealed.
func (o *opening) build(ctx context.Context, sealed []packed, todo []int) (*Catalog, error) {
	line := formatLine(o.found.format)
	own := newJournal(o.store, line, o.Log)
	old := openJournals(o.store, own.head, o.OnCorrupt, o.Rebuild)
	defer old.close()
	todo = old.reuse(o.found.shards, sealed, todo)

	totals := Progress{ShardsTotal: len(todo), Reused: len(sealed) - len(todo)}
	for _, i := range todo {
		totals.BytesTotal += o.found.shards[i].object.SizeBytes
	}
	for i := range sealed {
		if sealed[i].blob != nil {
			totals.Records += sealed[i].blob.header().records
		}
	}
	o.reporter.planned(totals)

	b := builder{storage: o.storage, reads: o.reads, table: o.table, unpacker: o.found.unpacker, onCorrupt: o.OnCorrupt, journal: own, progress: o.reporter,
		pass: o.Profile.Or().Pass, windows: newWindows(o.MemoryBytes, runtime.GOMAXPROCS(0))}
	if err := b.run(ctx, o.found.shards, todo); err != nil {
		own.close(true)
		return nil, err
	}
	maps, err := own.blobs(func(i int, b blob) {
		c := o.found.shards[i]
		sealed[i] = packed{object: c.object, codec: c.codec, blob: b}
	})
	defer func() {
		for _, m := range maps {
			_ = m.Close()
		}
	}()
	if err != nil {
		own.close(true)
		return nil, fmt.Errorf("index of %s: %w", &o.target, err)
	}
	catalog, stored, err := o.seal(sealed, own.inMemory())
	own.close(err != nil || !stored)
	if stored {
		old.remove()
		o.store.clean(".tmp")
	}
	return catalog, err
}

// seal writes the index, to memory where it must be, and opens it. stored says
// whether it is in the index directory.
func (o *opening) seal(sealed []packed, inMemory bool) (catalog *Catalog, stored bool, err error) {
	if err := o.refuseEmpty(sealed); err != nil {
		return nil, false, err
	}
	if err := o.refuseKinds(sealed); err != nil {
		return nil, false, err
	}
	if err := o.refuseTooLarge(sealed); err != nil {
		return nil, false, err
	}
	_, keyed := o.found.unpacker.(unpack.Renamer)
	s := sealing{
		key: o.store.key, formatLine: formatLine(o.found.format), keyed: keyed, shards: sealed, judged: o.found.judged,
		fingerprint: fingerprintOf(o.found.format, sealed),
	}
	m, stored, err := o.store.seal(&s, inMemory)
	if err != nil {
		return nil, false, fmt.Errorf("index of %s: %w", &o.target, err)
	}
	i, err := openImage(m.data, o.store.key)
	if err != nil {
		_ = m.Close()
		return nil, false, fmt.Errorf("the index of %s that was just written %w: check the disk of %s", &o.target, err, o.store.dir)
	}
	if stored {
		o.store.remember(o.found.format, sealed, s.fingerprint)
	}
	if catalog, err = o.catalog(i, m); err != nil {
		_ = m.Close()
		return nil, false, err
	}
	return catalog, stored, nil
}

// refuseTooLarge refuses datasets whose sizes can't be added up.
func (o *opening) refuseTooLarge(sealed []packed) error {
	sum := int64(0)
	for i := range sealed {
		n := sealed[i].blob.header().streamBytes
		if sum > math.MaxInt64-n {
			return fmt.Errorf("%s holds more than 2⁶³ bytes in its records: name fewer files with a pattern", &o.target)
		}
		sum += n
	}
	return nil
}

func (o *opening) refuseEmpty(sealed []packed) error {
	damaged := 0
	for i := range sealed {
		h := sealed[i].blob.header()
		if h.records > 0 {
			return nil
		}
		if h.flags&flagDamaged != 0 {
			damaged++
		}
	}
	if damaged > 0 {
		return fmt.Errorf("%s holds no records: %s, %d of them damaged and left out by --on-corrupt skip", &o.target, files(len(sealed)), damaged)
	}
	return fmt.Errorf("%s holds no records in %s of format %s: check the path, or name another --format", &o.target, files(len(sealed)), o.found.format.Name)
}

// catalog is that of a sealed index; its mapping stays the caller's where it fails.
func (o *opening) catalog(i *image, m *mapping) (*Catalog, error) {
	c := &Catalog{
		root: o.target.root, format: o.found.format, unpacker: o.found.unpacker,
		extension: o.found.unpacker.StreamExtension(o.found.shards[0].inner),
		table:     o.table, store: o.store, image: i, mapping: m, coarse: newCoarse(i), passedOver: o.found.passedOver,
	}
	if err := c.setKind(); err != nil {
		return nil, err
	}
	for n := range i.h.shards {
		if l := i.blob(n).damage(); len(l.First) > 0 {
			c.damaged = append(c.damaged, Damage{Path: i.path(n), Errors: l.First, Reasons: l.Reasons})
		}
	}
	o.logDamage(c.damaged)
	return c, nil
}

// logDamage names a few shards; Catalog.Damaged has them all.
func (o *opening) logDamage(damaged []Damage) {
	const most = 10
	for i, d := range damaged {
		if i == most {
			o.Log.Warn("damaged records are left out of further shards", "shards", len(damaged)-most)
			return
		}
		o.Log.Warn("damaged records are left out", "shard", d.Path, "damages", d.Count(), "reason", d.Errors[0].Error())
	}
}
