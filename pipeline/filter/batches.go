package filter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/filter/units"
)

const (
	// batchUnits is how many units a program gets at a time: enough to make the cost of its start
	// negligible.
	batchUnits = 1000
	// batchBytes bounds the size of a batch, as stored in the shards. A single unit may be larger.
	batchBytes = 256 << 20
)

// item is a unit of a shard.
type item struct {
	units.Unit
	source *source
}

// batches filters units as files in directories: those of one shard, or of many shards with one
// unit each.
func (r *run) batches(ctx context.Context, job []*source) error {
	if len(job) == 1 && !r.cutter.Single(job[0].Codec) {
		x, err := r.batchesOf(ctx, job[0])
		if err != nil {
			return r.lose(job[0], err)
		}
		return r.keep(ctx, x)
	}
	b := newBatch(r)
	b.put = func(i item, o outcome) error {
		x, err := r.single(ctx, i, o)
		if err != nil {
			return r.lose(i.source, err)
		}
		return r.keep(ctx, x)
	}
	for _, s := range job {
		f, err := s.open()
		if err == nil {
			err = r.cutter.Each(ctx, s.name(), s.Codec, f, s.Object.SizeBytes, func(u units.Unit) error { return b.add(ctx, item{u, s}) })
			err = errors.Join(err, f.Close())
		}
		if err != nil && b.fatal == nil {
			err = r.lose(s, damaged(ctx, s, err))
		}
		if err != nil {
			return err
		}
	}
	return b.flush(ctx)
}

// single returns the result of a shard that is one unit.
func (r *run) single(ctx context.Context, i item, o outcome) (*result, error) {
	if o.err != nil {
		return nil, o.err
	}
	d, err := r.newDraft()
	if err != nil {
		return nil, err
	}
	w, err := r.cutter.NewWriter(i.source.Codec, d)
	t := tally{in: 1, cut: true}
	if err == nil {
		err = r.put(w, o, &t)
	}
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		f, openErr := i.source.open() // check that it is unchanged
		if err = openErr; err == nil {
			err = f.Close()
		}
	}
	if err = d.or(err); err != nil {
		d.discard()
		return nil, err
	}
	return r.finish(ctx, d, i.source, t)
}

// batchesOf filters the units of one shard.
func (r *run) batchesOf(ctx context.Context, s *source) (*result, error) {
	f, err := s.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	d, err := r.newDraft()
	if err != nil {
		return nil, err
	}
	w, err := r.cutter.NewWriter(s.Codec, d)
	t := tally{cut: true}
	if err == nil {
		b := newBatch(r)
		b.put = func(_ item, o outcome) error {
			t.in++
			return r.put(w, o, &t)
		}
		err = r.cutter.Each(ctx, s.name(), s.Codec, f, s.Object.SizeBytes, func(u units.Unit) error { return b.add(ctx, item{u, s}) })
		if err == nil {
			err = b.flush(ctx)
		} else if b.fatal == nil {
			err = damaged(ctx, s, err)
		}
	}
	return r.conclude(ctx, s, f, d, w, t, err)
}

// batch collects units, and calls put for each, in order, after the program has run. It must not be
// used concurrently.
type batch struct {
	run   *run
	put   func(item, outcome) error
	items []item
	names map[string]bool // names of their files
	bytes int64
	fatal error // error of flush, which does not concern the shard being read
}

func newBatch(r *run) *batch { return &batch{run: r, names: map[string]bool{}} }

// add adds a unit, after running the program if there is no room.
func (b *batch) add(ctx context.Context, i item) error {
	n := int64(len(i.Member))
	if len(b.items) > 0 && (len(b.items) >= batchUnits || b.bytes+n > batchBytes || b.names[i.File]) {
		if err := b.flush(ctx); err != nil {
			return err
		}
	}
	b.items, b.bytes = append(b.items, i), b.bytes+n
	b.names[i.File] = true
	return nil
}

// flush runs the program for the collected units. Its results are read one by one.
func (b *batch) flush(ctx context.Context) error {
	items := b.items
	b.items, b.bytes = nil, 0
	clear(b.names)
	if len(items) == 0 {
		return nil
	}
	b.fatal = b.run.batch(ctx, items, b.put)
	return b.fatal
}

// batch runs the program for units, and calls put for each of them, in order.
func (r *run) batch(ctx context.Context, items []item, put func(item, outcome) error) error {
	bad := map[int]error{} // unreadable units, by index
	for i := range items {
		err := items[i].Err
		if n := len(items[i].File); err == nil && n > unix.NAME_MAX {
			err = fmt.Errorf("its name has %d bytes, and a file's at most %d: filter it with --by process", n, unix.NAME_MAX)
		}
		if err == nil {
			_, err = r.cutter.Data(items[i].Unit)
		}
		if err != nil {
			bad[i] = err
		}
	}
	d, err := r.runBatch(ctx, items, bad)
	if d.root != "" {
		defer d.remove()
	}
	if err != nil && !r.isFilters(ctx, err) {
		return err
	}
	if err != nil && r.OnFailed == FailedSkip && len(items) > 1 && !isHopeless(err) {
		d.remove()
		return r.halves(ctx, items, put)
	}
	if n := len(items) - len(bad); err != nil && n > 1 {
		err = fmt.Errorf("%w (on this one or another of the %d units that it was given: --on-failed skip finds out on which)", err, n)
	}
	for i, x := range items {
		o := outcome{unit: x.Unit}
		switch unreadable := bad[i]; {
		case unreadable != nil:
			o.err = unitDamaged(x.source, x.Unit, unreadable)
		case err != nil:
			o.err = unitFailed(ctx, x.source, x.Unit, err)
		default:
			o = r.fromFile(ctx, d, x)
		}
		if err := put(x, o); err != nil {
			return err
		}
	}
	return nil
}

// halves runs the program for each half of the units, to find out on which it fails.
func (r *run) halves(ctx context.Context, items []item, put func(item, outcome) error) error {
	n := len(items) / 2
	if err := r.batch(ctx, items[:n], put); err != nil {
		return err
	}
	return r.batch(ctx, items[n:], put)
}

// ranBadly is a failure of a program that gets directories.
type ranBadly struct{ error }

func (e ranBadly) Unwrap() error { return e.error }

// isFilters reports whether an error is the program's fault.
func (r *run) isFilters(ctx context.Context, err error) bool {
	_, ok := errors.AsType[ranBadly](err)
	return ok && ctx.Err() == nil
}

// runBatch runs the program for all units except the bad ones, a second time if it fails. The
// caller removes the directories.
func (r *run) runBatch(ctx context.Context, items []item, bad map[int]error) (d dirs, err error) {
	if len(bad) == len(items) {
		return d, nil
	}
	if err := r.crashes.tooMany(); err != nil {
		return d, ranBadly{err}
	}
	names := map[string]bool{}
	for try := range tries {
		if try > 0 {
			d.remove()
		}
		if d, err = r.newDirs(); err != nil {
			return d, fmt.Errorf("DST: %w", err)
		}
		for i, x := range items {
			if bad[i] != nil {
				continue
			}
			if err := d.put(x.File, bytes.NewReader(r.cutter.FileOf(x.Unit))); err != nil {
				return d, fmt.Errorf("DST: %w", err)
			}
			names[x.File] = true
		}
		if err = r.program.Run(ctx, about(items), d.values()); err == nil {
			r.crashes.end()
			if err = d.strangers(func(name string) bool { return names[name] }); err == nil {
				return d, nil
			}
		} else if ctx.Err() == nil && !isHopeless(err) {
			err = r.crashes.add(items[0].Name, err)
		}
		if ctx.Err() != nil {
			return d, ctx.Err()
		}
		if err = (ranBadly{err}); isHopeless(err) {
			break
		}
	}
	return d, err
}

// about names the shards of units, for the program's messages.
func about(items []item) string {
	names := map[string]bool{}
	for _, x := range items {
		names[x.source.name()] = true
	}
	if len(names) == 1 {
		return items[0].source.name()
	}
	sorted := slices.Sorted(maps.Keys(names))
	return fmt.Sprintf("%s … %s", sorted[0], sorted[len(sorted)-1])
}

// fromFile reads the result of a unit. If the format rejects it, the program is run once more for
// this unit alone.
func (r *run) fromFile(ctx context.Context, d dirs, x item) outcome {
	o := r.readFile(d, x)
	if o.err == nil {
		return o
	}
	again, err := r.runBatch(ctx, []item{x}, nil)
	if again.root != "" {
		defer again.remove()
	}
	if err == nil {
		o = r.readFile(again, x)
	} else if o.err = err; !r.isFilters(ctx, err) {
		return o
	}
	if o.err != nil {
		o.err = unitFailed(ctx, x.source, x.Unit, o.err)
	}
	return o
}

func (r *run) readFile(d dirs, x item) outcome {
	o := outcome{unit: x.Unit}
	f, err := d.get(x.File)
	if err != nil || f == nil {
		o.dropped, o.err = err == nil, err
		return o
	}
	defer func() { _ = f.Close() }() // only read
	b, err := io.ReadAll(io.LimitReader(f, r.UnitBytes+1))
	switch {
	case err != nil:
	case int64(len(b)) > r.UnitBytes:
		err = fmt.Errorf("its result has more than %d bytes: raise --unit-bytes", r.UnitBytes)
	default:
		if o.member, o.records, err = r.cutter.FromFile(b); err != nil {
			err = errRefused(err)
		}
	}
	o.err = err
	return o
}

// errRefused is the error for a result that is not a unit.
func errRefused(err error) error { return fmt.Errorf("the filter's result is refused: %w", err) }
