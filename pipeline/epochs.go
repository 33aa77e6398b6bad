package pipeline

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/growing"
	"github.com/lsiofs/lsiofs/pipeline/growing/snapshot"
)

// Grows reports whether epochs have different sets of shards.
func (d *Dataset) Grows() bool { return d.generations != nil }

// Run identifies the run that epochs are recorded in, if the dataset grows: 32 hexadecimal digits.
// Otherwise it is "".
func (d *Dataset) Run() string {
	if d.generations == nil {
		return ""
	}
	return d.generations.snapshots.Run()
}

// HasEpoch reports whether an epoch may be asked for. In a growing dataset these are the epochs
// already started and the next one; otherwise all. It starts none and opens nothing.
func (d *Dataset) HasEpoch(epoch uint64) bool {
	if d.generations == nil {
		return true
	}
	latest, any := d.generations.snapshots.Latest()
	if !any {
		return epoch == 0
	}
	return epoch <= latest || epoch == latest+1 && latest != math.MaxUint64
}

// Started reports whether the epoch's set of shards is fixed. It is always true, except after the
// latest epoch of a growing dataset.
func (d *Dataset) Started(epoch uint64) bool {
	if d.generations == nil {
		return true
	}
	latest, any := d.generations.snapshots.Latest()
	return any && epoch <= latest
}

// CanTake returns nil if the epoch's set of shards is fixed, or if the epoch could be started now.
// It starts none, and may have to wait for shards to be indexed.
func (d *Dataset) CanTake(ctx context.Context, epoch uint64) error {
	if d.generations == nil {
		return nil
	}
	return d.generations.snapshots.CanTake(ctx, epoch)
}

// Begin makes an epoch of a growing dataset the current one: it stays open, and methods without an
// epoch parameter answer for it. If it is the next epoch, Begin starts it.
func (d *Dataset) Begin(ctx context.Context, epoch uint64) error {
	if d.generations == nil {
		return nil
	}
	g, err := d.generations.acquire(ctx, epoch)
	if err != nil {
		return err
	}
	d.generations.begin(g)
	g.Leave()
	return nil
}

// waitingEvery is the interval at which an epoch that cannot start yet is tried again. Each attempt
// checks what has changed in the dataset.
const waitingEvery = time.Second

// BeginWaiting is Begin, but waits while the epoch cannot start yet. Meanwhile it calls told with
// the state, from this goroutine.
func (d *Dataset) BeginWaiting(ctx context.Context, epoch uint64, told func(snapshot.Status)) error {
	for {
		err := d.Begin(ctx, epoch)
		if !errors.Is(err, growing.ErrNotYet) {
			return err
		}
		told(d.generations.snapshots.Growing())
		timer := time.NewTimer(waitingEvery)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// acquire returns the current generation, which stays open until release. It panics if the dataset is
// closed.
func (d *Dataset) acquire() (g *generation, release func()) {
	if d.generations == nil {
		return d.current, func() {}
	}
	if g = d.generations.holdCurrent(); g == nil {
		panic(errors.New("pipeline: use of a dataset that is closed"))
	}
	return g, g.Leave
}

// holdEpoch returns the generation of an epoch, which stays open until release.
func (d *Dataset) holdEpoch(ctx context.Context, epoch uint64) (g *generation, release func(), err error) {
	if d.generations == nil {
		return d.current, func() {}, nil
	}
	if g, err = d.generations.acquire(ctx, epoch); err != nil {
		return nil, nil, err
	}
	return g, g.Leave, nil
}
