package filter

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/filter/ledger"
	"github.com/lsiofs/lsiofs/pipeline/filter/units"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// once looks at SRC once, and filters what needs filtering.
func (r *run) once(ctx context.Context) error {
	sources := newSources(r.storage, r.Source, r.Settle)
	if err := sources.list(ctx, r.isResult); err != nil {
		return fmt.Errorf("SRC: %w", err)
	}
	if err := sources.settle(ctx); err != nil {
		return fmt.Errorf("SRC: %w", err)
	}
	writing, one := sources.unsettled()
	if writing > 0 {
		r.Warn(fmt.Sprintf("%d files are being written, one is %s: run again when they are complete, or use --watch", writing, one))
	}
	shards, err := r.discover(ctx, sources.settled(), sources.omitted)
	if err != nil {
		return err
	}
	r.Progress.change(func(c *Counts) { c.Writing = writing })
	if r.Mirror { // first: a result of a vanished source may be where a directory is needed
		var gone []string
		for _, path := range r.ledger.Paths() {
			if sources.files[path] == nil {
				gone = append(gone, path)
			}
		}
		if _, err = r.mirror(ctx, gone, len(sources.files) == 0); err != nil {
			return err
		}
	}
	return r.filterAll(ctx, shards)
}

// discover determines the format of SRC from some of its files, and which of them are shards.
// omitted are names that were left out already.
func (r *run) discover(ctx context.Context, files []storage.Object, omitted []storage.Omission) ([]discover.Shard, error) {
	target, err := r.target()
	if err != nil {
		return nil, err
	}
	d, err := discover.Shards(ctx, discover.Config{
		Target: target, Format: r.Config.Format, Storage: only{r.storage, files, omitted}, Reads: r.storage,
		Log: slog.New(slog.DiscardHandler),
	})
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, &NoShardsError{err}
	}
	r.format = &d
	if r.Each == EachUnit {
		if r.cutter, err = units.New(d.Unpacker, r.UnitBytes); err != nil {
			return nil, err
		}
	}
	r.Progress.change(func(c *Counts) { c.Shards, c.Passed = uint64(len(d.Shards)), uint64(d.Selection.LeftOut) })
	r.Found(&d.Selection)
	return d.Shards, nil
}

// NoShardsError means that SRC is not a dataset, and has the reason.
type NoShardsError struct{ Err error }

func (e *NoShardsError) Error() string { return e.Err.Error() }
func (e *NoShardsError) Unwrap() error { return e.Err }

// filterAll filters shards, as many at a time as fit into one batch per process.
func (r *run) filterAll(ctx context.Context, shards []discover.Shard) error {
	total := int64(0)
	for _, s := range shards {
		total += s.Object.SizeBytes
	}
	r.Progress.change(func(c *Counts) { c.Total = c.Bytes + total })
	for most := batchUnits * r.Processes; len(shards) > 0; {
		n := min(most, len(shards))
		if err := r.filter(ctx, shards[:n]); err != nil {
			return err
		}
		shards = shards[n:]
	}
	return nil
}

// filter examines shards, and filters those without a result.
func (r *run) filter(ctx context.Context, shards []discover.Shard) error {
	todo := make([]*source, len(shards))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(r.Processes)
	for i, d := range shards {
		g.Go(func() error {
			s, v, err := r.examine(gctx, d)
			switch {
			case err != nil:
				return r.lose(s, err)
			case v == isToDo:
				todo[i] = s
			case v == isDone:
				r.done(s, func(c *Counts) { c.Unchanged++ })
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	g, gctx = errgroup.WithContext(ctx)
	g.SetLimit(r.Processes)
	for _, j := range r.jobs(todo) {
		if gctx.Err() != nil {
			break
		}
		g.Go(func() error { return r.do(gctx, j) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// jobs groups shards that are filtered together: each alone, except for games in separate files
// with --by dirs.
func (r *run) jobs(todo []*source) (jobs [][]*source) {
	var singles []*source
	for _, s := range todo {
		switch {
		case s == nil:
		case r.By == ByDirs && r.Each == EachUnit && r.cutter.Single(s.Codec):
			singles = append(singles, s)
		default:
			jobs = append(jobs, []*source{s})
		}
	}
	for each := min(batchUnits, (len(singles)+r.Processes-1)/r.Processes); len(singles) > 0; {
		n := min(each, len(singles))
		jobs = append(jobs, singles[:n])
		singles = singles[n:]
	}
	return jobs
}

// do filters the shards of a job, and makes their results durable.
func (r *run) do(ctx context.Context, job []*source) error {
	if r.By == ByDirs && r.Each == EachUnit {
		return r.batches(ctx, job)
	}
	s := job[0]
	made := r.whole
	if r.Each == EachUnit {
		made = r.served
	}
	result, err := made(ctx, s)
	if err != nil {
		return r.lose(s, err)
	}
	return r.keep(ctx, result)
}

// keep makes a result durable, unless the program has been replaced: then another program than the
// ledger would record may have made it.
func (r *run) keep(ctx context.Context, x *result) error {
	if err := r.program.Same(); err != nil {
		x.discard()
		return err
	}
	if err := r.commits.do(ctx, x); err != nil {
		return err
	}
	r.noteResult(x.source.Object.Path)
	r.done(x.source, func(c *Counts) {
		c.Filtered++
		c.UnitsIn += x.entry.UnitsIn
		c.UnitsOut += x.entry.UnitsOut
		c.Records += x.entry.Records
		c.BytesIn += x.source.Object.SizeBytes
		c.BytesOut += x.bytes
		if x.temp == "" {
			c.Dropped++
		}
	})
	return nil
}

// noteResult warns if DST also has the result of a path in another codec: that of a source that is
// gone, for example because it was compressed since.
func (r *run) noteResult(path string) {
	r.namesMu.Lock()
	defer r.namesMu.Unlock()
	twin := r.names.Twin(storage.Object{Path: path})
	r.names.Add(storage.Object{Path: path})
	if twin == "" || r.Mirror {
		return
	}
	for _, result := range []string{path, twin} {
		if _, err := os.Lstat(filepath.Join(r.Destination, result)); err != nil {
			return
		}
	}
	r.Warn(fmt.Sprintf("DST has %s and %s, one shard in two codecs: the source of %s is gone: delete its result, or run with --mirror", twin, path, twin))
}

// done records that a shard needs no more work.
func (r *run) done(s *source, count func(*Counts)) {
	if r.arrivals != nil {
		r.arrivals.end(s.Object, nil, time.Now())
	}
	r.Progress.change(func(c *Counts) {
		count(c)
		c.Bytes += s.Object.SizeBytes
	})
}

// lose records that a shard has no result. It returns the error if that ends the run.
func (r *run) lose(s *source, err error) error {
	failure, ok := errors.AsType[*Failure](err)
	if !ok {
		return err
	}
	// While SRC is watched, a damaged file may be incomplete, and an unreadable one may become
	// readable. Otherwise unreadable files are not skipped: the contents of DST would depend on
	// when it was made.
	if !(r.Watch && failure.Source) && (r.OnFailed == FailedFail || failure.unread()) {
		return err
	}
	news := r.arrivals == nil || r.arrivals.end(s.Object, failure, time.Now())
	r.Progress.change(func(c *Counts) {
		c.Bytes += s.Object.SizeBytes
		if news {
			c.Failed++
		}
	})
	switch {
	case !r.Watch:
		r.warnOf(failure, "left out")
	case news:
		r.warnOf(failure, "left out; tried again when it changes, and from time to time")
	}
	return nil
}

// loseUnit records that a unit is skipped. It returns the error if that ends the shard.
func (r *run) loseUnit(err error) error {
	failure, ok := errors.AsType[*Failure](err)
	if !ok || r.OnFailed == FailedFail {
		return err
	}
	r.Progress.change(func(c *Counts) { c.UnitsLost++ })
	r.warnOf(failure, "left out")
	return nil
}

// maxWarnings bounds the failures that are logged individually. All are counted.
const maxWarnings = 100

func (r *run) warnOf(f *Failure, what string) {
	switch n := r.warnings.Add(1); {
	case n < maxWarnings:
		r.Warn(fmt.Sprintf("%v (%s)", f, what))
	case n == maxWarnings:
		r.Warn("further failures are counted, and not listed")
	}
}

// verdict is what to do with a shard.
type verdict int

const (
	isDone   verdict = iota // it has a result
	isToDo                  // it must be filtered
	isOthers                // the file with the result's name was not made by a filter
)

// presence is the kind of what exists under the name of a result.
type presence int

const (
	absent presence = iota
	aFile
	aStranger // a directory, a link, …
)

// found is what is known about a result.
type found struct {
	entry    ledger.Entry
	known    bool // the ledger has an entry
	presence presence
	sum      ledger.Sum // of a file; only relevant if the entry is of this source and filter
}

// decide returns the verdict on a shard.
func decide(source, filter ledger.Sum, f found) verdict {
	switch {
	case f.presence == aStranger, !f.known && f.presence == aFile:
		return isOthers
	case !f.known || !f.entry.Of(source, filter):
		return isToDo
	case f.entry.Result == ledger.Nothing:
		if f.presence == absent {
			return isDone
		}
	case f.presence == aFile && f.entry.Result == f.sum:
		return isDone
	}
	return isToDo
}

// source is a shard to be filtered.
type source struct {
	discover.Shard
	path string // of the file
	sum  ledger.Sum
	mode fs.FileMode
}

// name returns the shard's path below SRC, which is also the result's below DST.
func (s *source) name() string { return s.Object.Path }

// open opens the file, which must be unchanged since it was listed.
func (s *source) open() (*os.File, error) {
	f, err := os.OpenFile(s.path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &Failure{Shard: s.name(), Err: err, Source: true}
	}
	if err := s.unchanged(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// findCodec determines the shard's compression from its first bytes.
func (s *source) findCodec(f *os.File, format format.Format) error {
	head := make([]byte, formats.CodecHeadBytes)
	n, err := f.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return err
	}
	s.Codec = formats.CodecOf(format, s.Object.Path, head[:n])
	return nil
}

// unchanged returns an error if an open file is not the one that was listed.
func (s *source) unchanged(f *os.File) error {
	var now unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &now); err != nil {
		return &Failure{Shard: s.name(), Err: err, Source: true}
	}
	o := storage.Object{SizeBytes: now.Size, Version: storage.Version{ModTimeNanos: now.Mtim.Nano(), Inode: now.Ino}}
	s.mode = fs.FileMode(now.Mode).Perm()
	if storage.Compare(s.Object, o) != nil {
		return &Failure{Shard: s.name(), Err: errChanged, Source: true}
	}
	return nil
}

var errChanged = errors.New("it changed while it was being filtered: wait until it is written, and run again")

// examine returns the verdict on a shard. It reads the shard once, and the result too if it may be
// the right one.
func (r *run) examine(ctx context.Context, d discover.Shard) (*source, verdict, error) {
	s := &source{Shard: d, path: filepath.Join(r.Source, d.Object.Path)}
	f, err := s.open()
	if err != nil {
		return s, isToDo, err
	}
	s.sum, err = sumOf(ctx, f)
	if err == nil {
		err = s.findCodec(f, r.format.Unpacker)
	}
	if err == nil {
		err = s.unchanged(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return s, isToDo, damaged(ctx, s, err)
	}
	result := filepath.Join(r.Destination, s.name())
	var x found
	x.entry, x.known = r.ledger.Get(s.name())
	x.presence, err = look(result)
	if err == nil && x.presence == aFile && x.known && x.entry.Of(s.sum, r.filterSum) {
		x.sum, err = sumOfFile(ctx, result)
	}
	if err != nil {
		return s, isToDo, fmt.Errorf("DST: %w", err)
	}
	v := decide(s.sum, r.filterSum, x)
	if v == isOthers {
		err = fmt.Errorf("%s is there, and was not made by a filter: move it away, or name another DST", result)
	}
	return s, v, err
}

// look returns what exists under a name.
func look(path string) (presence, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR):
		return absent, nil
	case err != nil:
		return absent, err
	case info.Mode().IsRegular():
		return aFile, nil
	}
	return aStranger, nil
}

func sumOfFile(ctx context.Context, path string) (ledger.Sum, error) {
	f, err := os.Open(path)
	if err != nil {
		return ledger.Sum{}, err
	}
	sum, err := sumOf(ctx, f)
	return sum, errors.Join(err, f.Close())
}

func sumOf(ctx context.Context, r io.Reader) (ledger.Sum, error) {
	h := sha256.New()
	buf := make([]byte, 1<<20)
	for {
		if err := ctx.Err(); err != nil {
			return ledger.Sum{}, err
		}
		n, err := r.Read(buf)
		_, _ = h.Write(buf[:n])
		if err == io.EOF {
			return ledger.Sum(h.Sum(nil)), nil
		} else if err != nil {
			return ledger.Sum{}, err
		}
	}
}
