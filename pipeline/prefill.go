package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/diskcache"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// warmEvery is how often Warm reports progress.
const warmEvery = 250 * time.Millisecond

// ErrNoCache means that there is no cache to fill.
var ErrNoCache = errors.New("there is no cache to fill: the dataset is on a disk of this machine, or --cache-size is off")

// Warm fills the disk cache with the missing parts of the dataset, waits until that is done, and
// reports progress now and then: how many bytes of how many are present. It fails if some could not
// be fetched (diskcache.ErrNotFilled), and with ctx's error; what was fetched until then stays. For a
// mixture it fills the caches of all sources that have one.
func (d *Dataset) Warm(ctx context.Context, progress func(done, total int64)) error {
	g, release := d.acquire()
	defer release()
	var caches []*diskcache.Storage
	for _, s := range d.mount.leaves() {
		if s.cache != nil {
			s.cache.Fill(s.own(g.objects()))
			caches = append(caches, s.cache)
		}
	}
	if caches == nil {
		return ErrNoCache
	}
	return waitForFill(ctx, caches, progress)
}

// own returns those of a dataset's objects that are this mount's, with their paths in it.
func (m *mount) own(all []storage.Object) (own []storage.Object) {
	for _, o := range all {
		if path, within := strings.CutPrefix(o.Path, m.prefix()); within {
			o.Path = path
			own = append(own, o)
		}
	}
	return own
}

// WarmRecords is Warm for what an epoch reads for its records from … to-1, of all workers together,
// in the order without a checkpoint: the chunks that contain them, but with a sample only the
// records themselves, and compressed shards whole. to is at most the number of the epoch's records.
func (d *Dataset) WarmRecords(ctx context.Context, epoch, from, to uint64, progress func(done, total int64)) error {
	c := d.mount.cache
	if c == nil {
		return ErrNoCache
	}
	g, release, err := d.holdEpoch(ctx, epoch)
	if err != nil {
		return err
	}
	defer release()
	ranges, err := g.rangesOf(ctx, epoch, from, to)
	if err != nil {
		return err
	}
	c.FillRanges(ranges)
	return waitForFill(ctx, []*diskcache.Storage{c}, progress)
}

func waitForFill(ctx context.Context, caches []*diskcache.Storage, progress func(done, total int64)) error {
	ended := make(chan error, len(caches))
	for _, c := range caches {
		c.PauseFill(false)
		go func() { ended <- c.Warm(ctx) }()
	}
	tell := func() {
		var done, total int64
		for _, c := range caches {
			d, t := c.Filled()
			done, total = done+d, total+t
		}
		progress(done, total)
	}
	tick := time.NewTicker(warmEvery)
	defer tick.Stop()
	var errs []error
	for len(errs) < len(caches) {
		select {
		case err := <-ended:
			errs = append(errs, err)
		case <-tick.C:
			tell()
		}
	}
	tell()
	return errors.Join(errs...)
}

// warmRecords is how many records are looked up at a time.
const warmRecords = 4096

// rangesOf returns the ranges of objects that contain records of an epoch, in dataset order.
func (g *generation) rangesOf(ctx context.Context, epoch, from, to uint64) ([]diskcache.Range, error) {
	e, err := g.epoch(epoch)
	if err != nil {
		return nil, err
	}
	if from > to || to > e.Len() {
		return nil, fmt.Errorf("records %d to %d: epoch %d has %d", from, to, epoch, e.Len())
	}
	defer e.Hold()()
	var wanted []catalog.Extent
	sampled := g.sampled()
	starts := g.catalog.ChunkStarts(g.spec.Order.ChunkBytes, g.spec.Order.ChunkRecords)
	seen := make([]bool, len(starts))
	numbers, extents := make([]uint64, warmRecords), make([]catalog.Extent, 2*warmRecords)
	cursor := e.Cursor(from)
	for at := from; at < to && ctx.Err() == nil; {
		n := cursor.Next(numbers[:min(warmRecords, to-at)])
		at += uint64(n)
		if sampled {
			g.catalog.Extents(numbers[:n], extents)
			wanted = append(wanted, extents[:n]...)
			continue
		}
		for _, number := range numbers[:n] {
			chunk := sort.Search(len(starts), func(i int) bool { return starts[i] > number }) - 1
			if seen[chunk] {
				continue
			}
			seen[chunk] = true
			// A chunk is in one shard, so it spans from its first to its last record.
			g.catalog.Extents([]uint64{starts[chunk], starts[chunk+1] - 1}, extents)
			x := extents[0]
			x.SizeBytes = extents[1].OffsetBytes + extents[1].SizeBytes - x.OffsetBytes
			wanted = append(wanted, x)
		}
	}
	slices.SortFunc(wanted, func(a, b catalog.Extent) int {
		if a.Shard != b.Shard {
			return a.Shard - b.Shard
		}
		return int(min(max(a.OffsetBytes-b.OffsetBytes, -1), 1))
	})
	var ranges []diskcache.Range
	last := -1 // shard
	for _, x := range wanted {
		s := g.catalog.Shard(x.Shard)
		if s.Codec != nil { // offsets in it are of decoded bytes
			x.OffsetBytes, x.SizeBytes = 0, s.Object.SizeBytes
		}
		end := x.OffsetBytes + x.SizeBytes
		if x.Shard == last {
			if r := &ranges[len(ranges)-1]; x.OffsetBytes <= r.OffsetBytes+r.SizeBytes+g.mount.profile.GapBytes {
				r.SizeBytes = max(r.SizeBytes, end-r.OffsetBytes)
				continue
			}
		}
		last = x.Shard
		ranges = append(ranges, diskcache.Range{Object: s.Object, OffsetBytes: x.OffsetBytes, SizeBytes: x.SizeBytes})
	}
	return ranges, ctx.Err()
}
