package catalog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/pipeline/catalog/decoding"
	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/profile"
)

// pass indexes shards, several at a time, and stores each one that is finished. Besides decoders
// (room) and index entries of records (admission), each shard takes some buffers.
type pass struct {
	storage   storage.Storage
	reads     storage.Storage // storage, for ordinary reads
	streams   storage.Storage // storage, if shards are read as streams; else nil
	unpacker  format.Format
	onCorrupt spec.OnCorrupt
	build     *index.Build
	progress  *reporter
	portions  profile.Pass
	room      *decoding.Room
	admission *admission
	atATime   int // shards
}

// newPass returns a pass for o.found, within the configured memory: half of it is for decoders, and
// a quarter each for buffers and for index entries of records.
func (o *opening) newPass(b *index.Build) *pass {
	memory, cores := max(o.MemoryBytes, decoding.LeastBytes), runtime.GOMAXPROCS(0)
	p := &pass{
		storage: o.storage, reads: o.reads, unpacker: o.found.Unpacker, onCorrupt: o.OnCorrupt, build: b, progress: o.reporter,
		portions: o.Profile.Or().Pass, room: decoding.NewRoom(memory/2, cores), admission: newAdmission(memory / 4),
	}
	p.streams = streamsOf(o.storage, p.portions)
	p.atATime = ShardsAtATime(p.portions, p.streams != nil, memory/4, cores)
	return p
}

// ShardsAtATime returns how many shards are read at a time on a machine with that many cores: as
// many as the profile asks for and whose buffers take at most boundBytes, but no fewer than the
// lesser of the profile's number and the cores. streamed reports whether they are read as streams.
func ShardsAtATime(p profile.Pass, streamed bool, boundBytes int64, cores int) int {
	each := 2*p.ReadBytes + smallBuffers // a window of the shard, and the storage's buffer
	if streamed {
		each = 2*p.StreamBytes + smallBuffers // a window, and occasionally a longer one
	}
	most := p.ShardsAtATime(cores)
	return max(min(most, int(boundBytes/each)), min(most, cores), 1)
}

// smallBuffers is the other memory of a shard: a decoder's input of 256 KiB, decoded bytes, a
// connection's buffers, the stacks of its goroutines.
const smallBuffers = 384 << 10

// run indexes shards[i] for all i in todo. It ends at the first failure; what was finished by then
// is kept.
func (p *pass) run(ctx context.Context, shards []discover.Shard, todo []int) error {
	// Large shards first: a large one at the end would leave cores idle.
	todo = slices.Clone(todo)
	slices.SortStableFunc(todo, func(i, j int) int {
		return int(min(1, max(-1, shards[j].Object.SizeBytes-shards[i].Object.SizeBytes)))
	})
	return p.each(ctx, shards, todo, func(ctx context.Context, i int, held *admitted) error {
		done, err := p.shard(ctx, shards[i], held)
		if err != nil {
			return err
		}
		return p.build.Add(i, done)
	})
}

// each calls do for shards[i] for all i in todo, in that order and for several at a time, up to the
// first failure.
func (p *pass) each(ctx context.Context, shards []discover.Shard, todo []int, do func(ctx context.Context, i int, held *admitted) error) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(p.atATime)
	for _, i := range todo {
		held, err := p.admission.begin(gctx, shards[i].Object.SizeBytes)
		if err != nil {
			break
		}
		g.Go(func() error {
			defer held.end()
			if err := gctx.Err(); err != nil {
				return err
			}
			return do(gctx, i, held)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// shard indexes one shard.
func (p *pass) shard(ctx context.Context, c discover.Shard, held *admitted) (index.Shard, error) {
	if check := p.storage.Caps().Check; check != nil {
		if err := check(ctx, c.Object); errors.Is(err, storage.ErrChanged) {
			return index.Shard{}, errChangedMeanwhile(c.Object.Path, err)
		} else if err != nil { // damaged or unreadable; the error names the shard
			return index.Shard{}, fmt.Errorf("%s: %w", c.Object.Path, err)
		}
	}
	r, err := p.open(ctx, c)
	defer r.close()
	if err != nil {
		return index.Shard{}, unread(ctx, c.Object.Path, err)
	}
	if c.Assumed {
		if err := r.asNamed(ctx); err != nil {
			return index.Shard{}, err
		}
	}
	codecOf, err := r.codec(p.unpacker, c)
	codec := p.room.Codec(ctx, codecOf)
	_, keyed := p.unpacker.(format.Renamer)
	packer := index.NewPacker(keyed, codec != nil, p.admission.boundBytes)
	r.told = func(reached int64) { held.reached(reached, packer.HeldBytes()) }
	var records uint64 // already added to progress
	tell := func() {
		p.progress.records.Add(packer.Records() - records)
		records = packer.Records()
	}
	emit := func(e format.Extent) error {
		if packer.Records()&1023 == 0 {
			tell()
			if codec == nil { // skipped bytes are not read, but done
				r.advance(e.OffsetBytes)
			}
		}
		return packer.Add(e)
	}
	restart := func() { packer.Restart(); tell() }
	var sum format.Summary
	if err == nil {
		sum, err = format.Scan(ctx, p.unpacker, codec, r, c.Object.SizeBytes, emit, restart)
	}
	name := c.Object.Path
	if named := formats.ParseName(name).Codec; named != nil && codecOf == nil {
		name += " (not " + named.Name() + ", unlike its name)"
	}
	if err != nil || r.failure != nil { // a decoder may have taken a failed read for the end of the data
		return index.Shard{}, p.judge(ctx, c, name, r.failure, err)
	}
	if codec == nil {
		sum.DecodedBytes = c.Object.SizeBytes
	}
	if lost := sum.Lost(); len(lost.First) > 0 && p.onCorrupt != spec.CorruptSkip {
		next := "repair or remove the file; --on-corrupt skip leaves out only what is damaged"
		if packer.Records() == 0 { // it may be intact, and of another kind
			next = "leave it out with --exclude if it is not a shard; repair or remove it if it is damaged (--on-corrupt skip leaves it out)"
		}
		return index.Shard{}, fmt.Errorf("%s: %w: %s", name, lost.First[0], next)
	}
	// With an outline, nothing was read that could have changed, and a stream is always of the
	// version that was listed.
	if r.outline == nil && p.streams == nil {
		if err := p.unchanged(ctx, c.Object); err != nil {
			return index.Shard{}, err
		}
	}
	done, err := packer.Finish(sum)
	if err != nil {
		return index.Shard{}, fmt.Errorf("%s: %w", c.Object.Path, err)
	}
	tell()
	r.advance(c.Object.SizeBytes)
	p.progress.shards.Add(1)
	return index.Shard{Object: c.Object, Codec: formats.CodecNumber(codecOf), Blob: done}, nil
}

// judge returns the error of a scan that failed, or whose reads failed. Damage that may be left out
// is not an error but in the scan's summary. A refusal has name in place of the path.
func (p *pass) judge(ctx context.Context, c discover.Shard, name string, failure, err error) error {
	if failure != nil {
		return unread(ctx, c.Object.Path, failure)
	}
	var refused *format.RefusedError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &refused):
		return fmt.Errorf("%s: %w; or leave the file out with --exclude or a pattern (--on-corrupt skip does not)", name, err)
	case errors.Is(err, storage.ErrChanged):
		return errChangedMeanwhile(c.Object.Path, err)
	}
	return fmt.Errorf("%s: %w", c.Object.Path, err)
}

// unread returns the error for a shard that could not be read because of err.
func unread(ctx context.Context, path string, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, storage.ErrChanged) || errors.Is(err, fs.ErrNotExist):
		return errChangedMeanwhile(path, err)
	}
	return discover.Unread(path, err)
}

func errChangedMeanwhile(path string, err error) error {
	return fmt.Errorf("%s changed while it was being indexed: wait until it is written, then run again: %w", path, err)
}

// unchanged fails if an object has changed since it was listed.
func (p *pass) unchanged(ctx context.Context, o storage.Object) error {
	now, err := p.storage.Stat(ctx, o.Path)
	if err != nil {
		return unread(ctx, o.Path, err)
	}
	if err := storage.Compare(o, now); err != nil {
		return errChangedMeanwhile(o.Path, err)
	}
	return nil
}

// counters are updated by workers to report their progress.
type counters struct {
	shards  atomic.Int64
	bytes   atomic.Int64
	records atomic.Uint64
}
