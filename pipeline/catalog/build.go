package catalog

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// builder indexes shards, several at a time, and hands each finished one to the
// journal. It holds as many packed shards as there are cores.
type builder struct {
	storage   storage.Storage
	reads     storage.Storage // the same, for ordinary reads
	table     *table
	unpacker  unpack.Format
	onCorrupt spec.OnCorrupt
	journal   *journal
	progress  *reporter
	pass      profile.Pass
	windows   *windows
}

// run indexes shards[i] for all i in todo. The first failure ends it; what was
// finished by then is in the journal.
func (b *builder) run(ctx context.Context, shards []candidate, todo []int) error {
	// Large shards first: a large one that comes last would leave cores idle.
	todo = slices.Clone(todo)
	slices.SortStableFunc(todo, func(i, j int) int {
		return int(min(1, max(-1, shards[j].object.SizeBytes-shards[i].object.SizeBytes)))
	})
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(b.pass.ShardsAtATime(runtime.GOMAXPROCS(0)))
	for _, i := range todo {
		if gctx.Err() != nil {
			break
		}
		g.Go(func() error {
			if err := gctx.Err(); err != nil {
				return err
			}
			done, err := b.shard(gctx, shards[i])
			if err != nil {
				return err
			}
			return b.journal.append(i, done)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// shard indexes one shard.
func (b *builder) shard(ctx context.Context, c candidate) (packed, error) {
	codec := b.table.byNumber(c.codec)
	if _, parts := codec.(unpack.PartCodec); !parts { // whose decoders are of one size
		codec = b.windows.codec(ctx, codec)
	}
	_, keyed := b.unpacker.(unpack.Renamer)
	p := newPacker(keyed, codec != nil)
	r, err := newShardReader(ctx, b.storage, b.reads, c.object, b.pass, &b.progress.bytes)
	if err != nil {
		return packed{}, errChangedMeanwhile(c.object.Path, err)
	}
	defer r.close()
	var records uint64 // told to progress
	tell := func() {
		b.progress.records.Add(p.h.records - records)
		records = p.h.records
	}
	emit := func(e unpack.Extent) error {
		if p.h.records&1023 == 0 {
			tell()
			if codec == nil { // what is skipped is not read, but done
				r.advance(e.OffsetBytes)
			}
		}
		return p.add(e)
	}
	restart := func() { p.restart(); tell() }
	sum, err := unpack.Scan(ctx, b.unpacker, codec, r, c.object.SizeBytes, emit, restart)
	unreadable := false
	if err != nil {
		if sum.Damage, err = b.judge(ctx, c, r.failure, err); err != nil {
			return packed{}, err
		}
		restart()
		unreadable = true
		sum = unpack.Summary{Damage: sum.Damage}
	}
	if codec == nil {
		sum.DecodedBytes = c.object.SizeBytes
	}
	if lost := sum.Lost(); len(lost.First) > 0 && b.onCorrupt != spec.CorruptSkip {
		return packed{}, fmt.Errorf("%s: %w: repair or remove the file; --on-corrupt skip leaves it out", c.object.Path, lost.First[0])
	}
	if !unreadable && r.outline == nil { // of which nothing was read that could have changed
		if err := b.unchanged(ctx, c.object); err != nil {
			return packed{}, err
		}
	}
	done, err := p.finish(sum, unreadable)
	if err != nil {
		return packed{}, fmt.Errorf("%s: %w", c.object.Path, err)
	}
	tell()
	r.advance(c.object.SizeBytes)
	b.progress.shards.Add(1)
	return packed{object: c.object, codec: c.codec, blob: done}, nil
}

// judge says what a failed scan means: damage where the file can't be read and
// the policy is to leave such out, else the error to return.
func (b *builder) judge(ctx context.Context, c candidate, failure, err error) (*unpack.CorruptError, error) {
	path := c.object.Path
	var refused *unpack.RefusedError
	var located *storage.Error
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.As(err, &refused):
		return nil, fmt.Errorf("%s: %w: lsiofs does not read this, whatever --on-corrupt says; leave the file out with a pattern", path, err)
	case errors.Is(err, storage.ErrChanged):
		return nil, errChangedMeanwhile(path, err)
	case failure == nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	case b.onCorrupt == spec.CorruptSkip:
		if errors.As(failure, &located) {
			failure = located.Err
		}
		return &unpack.CorruptError{Record: 0, RawOffset: -1, Reason: fmt.Sprintf("the file can't be read: %v", failure)}, nil
	case errors.As(failure, &located):
		return nil, fmt.Errorf("%w: make the file readable, or leave it out: --on-corrupt skip does", failure)
	}
	return nil, fmt.Errorf("%s: %w: make the file readable, or leave it out: --on-corrupt skip does", path, failure)
}

func errChangedMeanwhile(path string, err error) error {
	return fmt.Errorf("%s changed while it was being indexed: wait until it is written, then run again: %w", path, err)
}

// unchanged fails where an object is not any more what was listed.
func (b *builder) unchanged(ctx context.Context, o storage.Object) error {
	now, err := b.storage.Stat(ctx, o.Path)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return errChangedMeanwhile(o.Path, err)
	}
	if err := storage.Compare(o, now); err != nil {
		return errChangedMeanwhile(o.Path, err)
	}
	return nil
}

// counters are what workers tell of their progress.
type counters struct {
	shards  atomic.Int64
	bytes   atomic.Int64
	records atomic.Uint64
}
