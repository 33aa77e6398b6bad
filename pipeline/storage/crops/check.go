package crops

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

const (
	// checkedAtOnce is how many objects are checked at a time, each in a goroutine. There are fewer
	// if their indexes would take more than checkedBytes or a quarter of the memory, but at least
	// one.
	checkedAtOnce = 32
	checkedBytes  = 128 << 20
	// maxDamaged is how many objects an error names.
	maxDamaged = 10
)

// Check implements storage.Caps: it reads and checks the index of every shard, and compares the
// sizes of other objects with the sizes that a chunk can have.
func (s *Storage) Check(ctx context.Context, o storage.Object) error {
	s.mu.Lock()
	c := s.cubes[o.Path]
	s.mu.Unlock()
	if c == nil {
		return fmt.Errorf("%s was not listed: %w", o.Path, storage.ErrChanged)
	}
	if s.config.SkipDamaged {
		return nil // List has left out the crops that need damaged objects
	}
	d := damages{}
	for _, f := range c.fields {
		if err := s.checkField(ctx, f, &d); err != nil {
			return err
		}
	}
	return d.err()
}

// checks returns how many objects of an array are checked at a time. The memory that an object
// needs is computed from the array's documents, not from the stored size: a sparse file may be long
// without holding anything.
func (s *Storage) checks(f *field) int {
	chunks := int64(1)
	for d, n := range f.Array.Object {
		chunks *= n / f.Array.Chunk[d]
	}
	most := int64(checkedBytes)
	if s.room.totalBytes > 0 {
		most = min(most, s.room.totalBytes/4)
	}
	return int(min(max(most/(checkedEntryBytes*chunks), 1), checkedAtOnce))
}

// checkedEntryBytes is what an index entry takes while it is checked: its stored form, the place
// that it points to, and an element in each of two lists of numbers that are sorted.
const checkedEntryBytes = 40

// damages collects what is wrong with objects.
type damages struct {
	mu     sync.Mutex
	first  []string
	count  int
	chunks int64 // chunks that are missing because their object is damaged
}

// lose marks a chunk of a damaged object as missing.
func (d *damages) lose(l lacking, chunk int64) {
	l.set(chunk)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.chunks++
}

func (d *damages) add(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count++
	d.first = append(d.first, err.Error())
	slices.Sort(d.first)
	d.first = d.first[:min(len(d.first), maxDamaged)]
}

func (d *damages) err() error {
	if d.count == 0 {
		return nil
	}
	text := strings.Join(d.first, "; ")
	if more := d.count - len(d.first); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return errors.New(text + ": copy or write these files again, leave out the crops that need them with --on-corrupt skip, or remove them, so that crops have the fill value there")
}

// checkField checks the objects of an array. A failure to read is returned at once, and is not
// damage.
func (s *Storage) checkField(ctx context.Context, f *field, d *damages) error {
	g, reading := errgroup.WithContext(ctx)
	g.SetLimit(s.checks(f))
	f.Each(func(number int64) bool {
		if reading.Err() != nil {
			return false
		}
		o, _ := f.Object(number)
		if len(f.Array.Levels) == 0 {
			if err := f.checkSize(o.SizeBytes); err != nil {
				d.add(fmt.Errorf("%s: %w", o.Path, err))
			}
			return true
		}
		g.Go(func() error {
			damaged, err := s.checkIndexes(reading, f, o, 0, zarr.Place{SizeBytes: o.SizeBytes})
			if damaged != nil {
				d.add(damaged)
			}
			return err
		})
		return true
	})
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// checkSize checks the stored size of a chunk.
func (f *field) checkSize(n int64) error {
	if f.Array.Chain.Raw() && n != f.chunkBytes {
		return fmt.Errorf("it has %d bytes, and a chunk has %d", n, f.chunkBytes)
	}
	if most := zarr.Bound(f.chunkBytes); n == 0 || n > most {
		return fmt.Errorf("it has %d bytes, and a chunk of %d bytes decoded can have from 1 to %d", n, f.chunkBytes, most)
	}
	return nil
}

// LeftOut describes the crops of a cube that are left out of the order because they need something
// that is missing or damaged (Config.SkipDamaged, spec.MissingSkip).
type LeftOut struct {
	// Crops is the number of crops left out.
	Crops uint64
	// Absent is the number of chunks that are not stored, if crops that need one are left out.
	Absent int64
	// Damaged is the number of damaged objects, and First describes some of them.
	Damaged int
	First   []string
}

// maxLackChunks bounds the chunks of an array in a lacking, to a GiB of bits.
const maxLackChunks = 1 << 33

// lacking is a bitmap of the chunks of a field that no kept crop may need, lowest first.
type lacking []uint64

func (l lacking) has(chunk int64) bool { return l[chunk>>6]>>(chunk&63)&1 != 0 }

// clear is safe for concurrent use.
func (l lacking) clear(chunk int64) { atomic.AndUint64(&l[chunk>>6], ^(1 << (chunk & 63))) }

func (l lacking) set(chunk int64) { atomic.OrUint64(&l[chunk>>6], 1<<(chunk&63)) }

func (l lacking) count() (n int64) {
	for _, w := range l {
		n += int64(bits.OnesCount64(w))
	}
	return n
}

// leaveOut finds the crops to leave out of a cube, and replaces its cut by one without them.
func (s *Storage) leaveOut(ctx context.Context, c *cube) error {
	absent, damaged := s.config.Spec.Missing == spec.MissingSkip, s.config.SkipDamaged
	if !absent && !damaged || c.Cut.Total() == 0 {
		return nil
	}
	var found LeftOut
	lacks := make([]lacking, len(c.fields))
	for k, f := range c.fields {
		if f.chunks.Total() > maxLackChunks {
			return fmt.Errorf("%s: array %s has %d chunks: with --missing skip and --on-corrupt skip there may be %d", c.Object.Path, f.Path, f.chunks.Total(), int64(maxLackChunks))
		}
		var d damages
		l, err := s.lacking(ctx, f, absent, &d)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Object.Path, err)
		}
		if !damaged && d.count > 0 {
			d = damages{} // Check reports them
		}
		lacks[k] = l
		if absent {
			found.Absent += l.count() - d.chunks
		}
		found.Damaged += d.count
		found.First = append(found.First, d.first...)
	}
	kept, err := c.kept(ctx, lacks)
	if err != nil || kept == nil {
		return err
	}
	found.Crops = c.Cut.Total()
	for _, w := range kept {
		found.Crops -= uint64(bits.OnesCount64(w))
	}
	cut, err := c.Cut.Keep(kept)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Object.Path, err)
	}
	c.Object.SizeBytes += int64(len(cut.Header()) - len(c.header))
	c.Cut, c.header, c.leftOut = cut, cut.Header(), found
	return nil
}

// anyLeft returns an error if all crops of all cubes are left out.
func anyLeft(cubes map[string]*cube) error {
	damaged, err := &storage.DamagedError{Shards: len(cubes)}, error(nil)
	for _, path := range slices.Sorted(maps.Keys(cubes)) {
		c := cubes[path]
		if c.leftOut.Crops < c.Cut.Total() {
			return nil
		}
		if err == nil && c.leftOut.Crops > 0 {
			err = fmt.Errorf("%s: all %d crops are left out: %s", path, c.leftOut.Crops, c.leftOut.reason())
		}
		for _, reason := range c.leftOut.First[:min(len(c.leftOut.First), storage.MaxDamages-len(damaged.Damages))] {
			damaged.Damages = append(damaged.Damages, storage.Damage{Shard: path, Record: -1, OffsetBytes: -1, RawOffset: -1, Reason: reason})
		}
		damaged.Total += uint64(c.leftOut.Damaged)
	}
	if err == nil || damaged.Total == 0 {
		return err
	}
	damaged.Err = err
	return damaged
}

// reason returns why crops are left out.
func (l *LeftOut) reason() string {
	switch {
	case l.Damaged == 0:
		return fmt.Sprintf("they need some of %d chunks that are not stored (--missing skip)", l.Absent)
	case l.Absent == 0:
		return fmt.Sprintf("they need some of %d damaged files (--on-corrupt skip), such as %s", l.Damaged, l.First[0])
	default:
		return fmt.Sprintf("they need some of %d chunks that are not stored (--missing skip), or of %d damaged files (--on-corrupt skip), such as %s", l.Absent, l.Damaged, l.First[0])
	}
}

// lacking returns the chunks of a field that are in damaged objects and, if absent is set, those
// that are not stored.
func (s *Storage) lacking(ctx context.Context, f *field, absent bool, d *damages) (lacking, error) {
	l := make(lacking, (f.chunks.Total()+63)/64)
	if absent {
		for n := range f.chunks.Total() {
			l.set(n)
		}
	}
	g, reading := errgroup.WithContext(ctx)
	g.SetLimit(s.checks(f))
	f.Each(func(number int64) bool {
		if reading.Err() != nil {
			return false
		}
		o, _ := f.Object(number)
		if len(f.Array.Levels) == 0 {
			l.clear(number) // the object is the chunk
			if err := f.checkSize(o.SizeBytes); err != nil {
				d.add(fmt.Errorf("%s: %w", o.Path, err))
				d.lose(l, number)
			}
			return true
		}
		g.Go(func() error {
			places, wrong, err := s.placesIn(reading, f, o, number)
			if err != nil {
				return err
			}
			if wrong != nil {
				d.add(wrong)
			}
			f.eachChunk(number, func(chunk int64, place []int64) {
				switch {
				case wrong != nil:
					d.lose(l, chunk)
				case !places[0].Absent():
					l.clear(chunk)
				}
				if wrong == nil {
					places = places[1:]
				}
			})
			return nil
		})
		return true
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return l, ctx.Err()
}

// placesIn returns the places of the chunks in an object that is a shard, in the order of
// eachChunk. It reads all indexes in the object. wrong is why one of them is invalid, err why one
// can't be read.
func (s *Storage) placesIn(ctx context.Context, f *field, o storage.Object, number int64) (places []zarr.Place, wrong, err error) {
	indexes := map[shard][]zarr.Place{}
	find := func(chunk []int64) (p zarr.Place) {
		p.SizeBytes = o.SizeBytes
		for level := range f.Array.Levels {
			of := shard{f, level, f.Array.ShardOf(level, chunk)}
			index := indexes[of]
			if index == nil {
				if index, wrong, err = s.indexOf(ctx, f, o, level, p); index == nil {
					return p
				}
				indexes[of] = index
			}
			if p = index[f.Array.EntryOf(level, chunk)]; p.Absent() {
				break
			}
		}
		return p
	}
	f.eachChunk(number, func(_ int64, place []int64) {
		if wrong == nil && err == nil {
			places = append(places, find(place))
		}
	})
	return places, wrong, err
}

// eachChunk calls visit for the chunks of an object that have elements of the array. place is only
// valid during the call.
func (f *field) eachChunk(object int64, visit func(chunk int64, place []int64)) {
	a := f.Array
	first, counts, place := make([]int64, len(a.Shape)), make([]int64, len(a.Shape)), make([]int64, len(a.Shape))
	f.objects.Place(first, object)
	for d := range first {
		each := a.Object[d] / a.Chunk[d]
		first[d] *= each
		counts[d] = min(each, f.chunks.Counts[d]-first[d])
	}
	grid := zarr.Grid{Counts: counts}
	for n := range grid.Total() {
		grid.Place(place, n)
		for d := range place {
			place[d] += first[d]
		}
		visit(f.chunks.Number(place), place)
	}
}

// keptWork is how many crops one piece of work examines; a multiple of 64, so that no two pieces
// share a word of bits.
const keptWork = 1 << 14

// kept returns a bitmap, by ordinal, of the crops that need no lacking chunk; nil if all crops are
// kept.
func (c *cube) kept(ctx context.Context, lacks []lacking) ([]uint64, error) {
	any := false
	for _, l := range lacks {
		any = any || l.count() > 0
	}
	if !any {
		return nil, nil
	}
	total := c.Cut.Total()
	kept := make([]uint64, (total+63)/64)
	var all atomic.Bool
	all.Store(true)
	g, working := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for from := uint64(0); from < total; from += keptWork {
		g.Go(func() error {
			if !c.mark(kept, from, min(from+keptWork, total), lacks) {
				all.Store(false)
			}
			return working.Err()
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if all.Load() {
		return nil, nil
	}
	return kept, ctx.Err()
}

// mark sets the bits of the crops from … to-1 that are kept, and reports whether all of them are.
func (c *cube) mark(kept []uint64, from, to uint64, lacks []lacking) bool {
	spot, crops, all := c.Cut.NewSpot(), make([]*zarr.Crop, len(c.fields)), true
	for k := range crops {
		crops[k] = c.Cut.NewReach(k)
	}
	for n := from; n < to; n++ {
		c.Cut.Locate(spot, n, nil)
		if c.needs(spot, crops, lacks) {
			all = false
			continue
		}
		kept[n>>6] |= 1 << (n & 63)
	}
	return all
}

// errLacks ends the walk over the chunks of a crop.
var errLacks = fmt.Errorf("a chunk is missing")

// needs reports whether a crop may need a lacking chunk, in any epoch.
func (c *cube) needs(spot *zarr.Spot, crops []*zarr.Crop, lacks []lacking) bool {
	for k, f := range c.fields {
		c.Cut.Reach(k, crops[k], spot)
		if crops[k].Parts(f.Array.Shape, f.Array.Chunk, func(p *zarr.Part) error {
			if lacks[k].has(f.chunks.Number(p.Chunk)) {
				return errLacks
			}
			return nil
		}) != nil {
			return true
		}
	}
	return false
}

// LeftOut returns what is left out of a listed cube.
func (s *Storage) LeftOut(path string) LeftOut {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.cubes[path]; c != nil {
		return c.leftOut
	}
	return LeftOut{}
}

// Reason returns why crops are left out of a cube, or "" if none are.
func (l LeftOut) Reason() string {
	if l.Crops == 0 {
		return ""
	}
	return l.reason()
}
