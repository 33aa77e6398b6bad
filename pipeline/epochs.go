package pipeline

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/growing"
	"github.com/lsiofs/lsiofs/pipeline/growing/taking"
)

// Grows says that epochs are of different sets of shards.
func (d *Dataset) Grows() bool { return d.generations != nil }

// Run names the run that epochs are recorded in, where the dataset grows: 32 hexadecimal
// digits. Else it is "".
func (d *Dataset) Run() string {
	if d.generations == nil {
		return ""
	}
	return d.generations.snapshots.Run()
}

// HasEpoch says whether an epoch may be asked for: any, but where the dataset grows those
// that are taken, and the one behind them. It takes none and opens nothing.
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

// Taken says that it is known which shards an epoch is of: always, but of a dataset that
// grows for those behind the latest.
func (d *Dataset) Taken(epoch uint64) bool {
	if d.generations == nil {
		return true
	}
	latest, any := d.generations.snapshots.Latest()
	return any && epoch <= latest
}

// CanTake returns nil if it is known which shards an epoch is of, or the epoch could be taken
// now. It takes none, and may have to wait for shards to be indexed.
func (d *Dataset) CanTake(ctx context.Context, epoch uint64) error {
	if d.generations == nil {
		return nil
	}
	return d.generations.snapshots.CanTake(ctx, epoch)
}

// Begin makes an epoch the current one, where the dataset grows: it stays open, and methods
// that are given no epoch answer for it. It takes the epoch where it is the next.
func (d *Dataset) Begin(ctx context.Context, epoch uint64) error {
	if d.generations == nil {
		return nil
	}
	g, err := d.generations.hold(ctx, epoch)
	if err != nil {
		return err
	}
	d.generations.begin(g)
	g.Leave()
	return nil
}

// waitingEvery is how often an epoch that is not there yet is asked for again. Each time
// looks at what has changed in the dataset since.
const waitingEvery = time.Second

// BeginWaiting is Begin, which waits while the epoch is not there yet, and tells told why,
// from this goroutine.
func (d *Dataset) BeginWaiting(ctx context.Context, epoch uint64, told func(taking.Status)) error {
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

// hold gives the current generation, which stays open until release. A dataset that has been
// closed has none.
func (d *Dataset) hold() (g *generation, release func()) {
	if d.generations == nil {
		return d.current, func() {}
	}
	if g = d.generations.holdCurrent(); g == nil {
		panic(errors.New("pipeline: use of a dataset that is closed"))
	}
	return g, g.Leave
}

// holdEpoch gives the generation of an epoch, which stays open until release.
func (d *Dataset) holdEpoch(ctx context.Context, epoch uint64) (g *generation, release func(), err error) {
	if d.generations == nil {
		return d.current, func() {}, nil
	}
	if g, err = d.generations.hold(ctx, epoch); err != nil {
		return nil, nil, err
	}
	return g, g.Leave, nil
}
