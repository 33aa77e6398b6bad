package crops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

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
