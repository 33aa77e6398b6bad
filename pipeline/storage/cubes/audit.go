package cubes

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
	"github.com/lsiofs/lsiofs/pipeline/zarr/codec"
)

var _ storage.Auditor = (*Storage)(nil)

// AuditBytes implements storage.Auditor: the sizes of the objects that there are.
func (s *Storage) AuditBytes(o storage.Object) (n int64) {
	s.mu.Lock()
	c := s.cubes[o.Path]
	s.mu.Unlock()
	if c == nil {
		return 0
	}
	for _, f := range c.fields {
		f.Each(func(number int64) bool {
			x, _ := f.Object(number)
			n += x.SizeBytes
			return true
		})
	}
	return n
}

// Audit implements storage.Auditor: each brick is read and decoded once, on all cores, also those
// that no crop has.
func (s *Storage) Audit(ctx context.Context, o storage.Object, damage func(reason string), read func(bytes int64)) (decodedBytes int64, err error) {
	s.mu.Lock()
	c := s.cubes[o.Path]
	s.mu.Unlock()
	if c == nil {
		damage("it was not listed: run again")
		return 0, nil
	}
	if _, err := s.Stat(ctx, o.Path); err != nil {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		damage(err.Error())
	}
	a := &audit{Storage: s, damage: damage, read: read}
	g, ctx := errgroup.WithContext(ctx)
	batches := make(chan []auditBrick, runtime.GOMAXPROCS(0))
	g.Go(func() error {
		defer close(batches)
		for _, f := range c.fields {
			if err := a.find(ctx, f, batches); err != nil {
				return err
			}
		}
		return nil
	})
	for range runtime.GOMAXPROCS(0) {
		g.Go(func() error { return a.work(ctx, batches) })
	}
	err = g.Wait()
	return a.decoded, err
}

// audit is one call of Audit.
type audit struct {
	*Storage
	mu      sync.Mutex
	damage  func(reason string)
	read    func(bytes int64)
	decoded int64
}

// auditBrick is a brick that is to be looked at.
type auditBrick struct {
	f      *field
	of     storage.Object
	number int64 // of the brick
	place  zarr.Place
}

// auditAtOnce is how many bricks are handed over at a time.
const auditAtOnce = 16

// wrong tells of a damage.
func (a *audit) wrong(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.damage(fmt.Sprintf(format, args...))
}

// find finds the bricks of a field.
func (a *audit) find(ctx context.Context, f *field, batches chan<- []auditBrick) (err error) {
	var batch []auditBrick
	send := func(least int) bool {
		if len(batch) < least || len(batch) == 0 {
			return true
		}
		select {
		case batches <- batch:
		case <-ctx.Done():
			err = ctx.Err()
			return false
		}
		batch = nil
		return true
	}
	f.Each(func(number int64) bool {
		o, _ := f.Object(number)
		if len(f.Array.Levels) == 0 {
			batch = append(batch, auditBrick{f, o, number, zarr.Place{SizeBytes: o.SizeBytes}})
			return send(auditAtOnce)
		}
		places, wrong, failed := a.placesIn(ctx, f, o, number)
		if failed != nil && ctx.Err() != nil {
			err = ctx.Err()
			return false
		}
		if failed != nil {
			wrong = fmt.Errorf("%s: %w", o.Path, reasonOf(failed))
		}
		if wrong != nil {
			a.wrong("%v", wrong)
			return true
		}
		going := true
		f.eachBrick(number, func(brick int64, _ []int64) {
			p := places[0]
			if places = places[1:]; going && !p.Absent() {
				batch = append(batch, auditBrick{f, o, brick, p})
				going = send(auditAtOnce)
			}
		})
		return going
	})
	if err == nil {
		send(1)
	}
	return err
}

// reasonOf is an error without the place that is said before it.
func reasonOf(err error) error {
	if located, ok := err.(*storage.Error); ok {
		return located.Err
	}
	return err
}

// work looks at bricks until there are no more.
func (a *audit) work(ctx context.Context, batches <-chan []auditBrick) error {
	d := codec.NewDecoder()
	defer d.Close()
	var stored []byte
	var brick unkept
	defer brick.close()
	for batch := range batches {
		for _, b := range batch {
			if err := ctx.Err(); err != nil {
				return err
			}
			size := b.place.SizeBytes
			err := b.f.checkSize(size)
			if err == nil {
				stored = atLeast(stored, size)
				err = storage.ReadAt(ctx, a.under, b.of, stored[:size], b.place.OffsetBytes)
			}
			if err == nil && !b.f.Array.Chain.Raw() {
				var decoded []byte
				if decoded, err = brick.room(b.f.brickBytes); err == nil {
					err = d.Decode(decoded, stored[:size], b.f.Array.Chain)
				}
			}
			if err != nil && ctx.Err() != nil {
				return ctx.Err()
			}
			a.looked(&b, err)
		}
	}
	return nil
}

func atLeast(b []byte, n int64) []byte {
	if int64(len(b)) < n {
		return make([]byte, n)
	}
	return b
}

// looked counts a brick.
func (a *audit) looked(b *auditBrick, err error) {
	if err != nil {
		place := make([]int64, len(b.f.Array.Shape))
		b.f.bricks.Place(place, b.number)
		a.wrong("%s: brick %v at [%d, %d): %v", b.of.Path, numbersOf(place), b.place.OffsetBytes, b.place.OffsetBytes+b.place.SizeBytes, reasonOf(err))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.read(b.place.SizeBytes)
	a.decoded += b.f.brickBytes
}
