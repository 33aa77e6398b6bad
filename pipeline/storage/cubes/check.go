package cubes

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
	// checkedAtOnce is how many objects are looked at at a time, in so many goroutines; fewer
	// where their indexes have more than checkedBytes or a quarter of the memory, and at least one.
	checkedAtOnce = 32
	checkedBytes  = 128 << 20
	// maxDamaged is how many objects an error names.
	maxDamaged = 10
)

// Check implements storage.Checker: it reads and checks the index of every shard, and compares
// the sizes of other objects with what a brick can have.
func (s *Storage) Check(ctx context.Context, o storage.Object) error {
	s.mu.Lock()
	c := s.cubes[o.Path]
	s.mu.Unlock()
	if c == nil {
		return fmt.Errorf("%s was not listed: %w", o.Path, storage.ErrChanged)
	}
	if s.config.SkipDamaged {
		return nil // List has left out the crops that need what is damaged
	}
	d := damages{}
	for _, f := range c.fields {
		if err := s.checkField(ctx, f, &d); err != nil {
			return err
		}
	}
	return d.err()
}

// checks is how many objects of an array are looked at at a time. What an object needs is bounded by
// what its documents say, and not by what is stored: a file may be long without having anything.
func (s *Storage) checks(f *field) int {
	bricks := int64(1)
	for d, n := range f.Array.Object {
		bricks *= n / f.Array.Brick[d]
	}
	most := int64(checkedBytes)
	if s.room.totalBytes > 0 {
		most = min(most, s.room.totalBytes/4)
	}
	return int(min(max(most/(checkedEntryBytes*bricks), 1), checkedAtOnce))
}

// checkedEntryBytes is what an entry of an index takes while it is checked: as it is stored, where it leads,
// and in two lists of numbers that are sorted.
const checkedEntryBytes = 40

// damages are what is wrong with objects.
type damages struct {
	mu     sync.Mutex
	first  []string
	count  int
	bricks int64 // in objects that are damaged, and that lack for that
}

// lose has a brick of a damaged object lack.
func (d *damages) lose(l lacking, brick int64) {
	l.set(brick)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bricks++
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

// checkField checks the objects of an array. What can't be read is an error at once, and no damage.
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

// checkSize looks at the stored size of a brick.
func (f *field) checkSize(n int64) error {
	if f.Array.Chain.Raw() && n != f.brickBytes {
		return fmt.Errorf("it has %d bytes, and a chunk has %d", n, f.brickBytes)
	}
	if most := zarr.Bound(f.brickBytes); n == 0 || n > most {
		return fmt.Errorf("it has %d bytes, and a chunk of %d bytes decoded can have from 1 to %d", n, f.brickBytes, most)
	}
	return nil
}
