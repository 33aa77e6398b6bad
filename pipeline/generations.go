package pipeline

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/growing/snapshot"
	"github.com/lsiofs/lsiofs/pipeline/run"
)

// snapshots provides the set of shards of each epoch of a growing dataset. Its methods may be
// called concurrently, once Open has returned.
type snapshots interface {
	// Open is called once, before everything else, with how to find and index the dataset's shards.
	// Config.OpenStorage opens the mount's storage; Open must have called it when it returns.
	Open(ctx context.Context, c catalog.Config) error
	// Latest returns the latest epoch that has started.
	Latest() (epoch uint64, any bool)
	// Catalog returns a new catalog of exactly the shards of an epoch; the caller owns it. If take
	// is set and the epoch is the one after the latest, Catalog starts it. Errors:
	// growing.ErrNotYet, growing.ErrNoEpoch, run.ErrGone, and those of shards that are missing or
	// differ.
	Catalog(ctx context.Context, epoch uint64, take bool) (*catalog.Catalog, run.Epoch, error)
	// CanTake returns nil if an epoch has started, or could be started now. It starts none.
	CanTake(ctx context.Context, epoch uint64) error
	// Run identifies the run that checkpoints refer to.
	Run() string
	// Growing returns the state of the dataset.
	Growing() snapshot.Status
	Close() error
}

const (
	// keptGenerations is how many unused generations stay open, keptUnused for how long.
	keptGenerations = 4
	keptUnused      = 10 * time.Minute
	// rememberedEpochs bounds the epochs whose catalog identity is remembered.
	rememberedEpochs = 4096
)

// errClosedDataset ends the wait for a generation.
var errClosedDataset = errors.New("the dataset is closed")

// generations are the generations of a growing dataset. A generation is opened when one of its
// epochs is asked for, by a goroutine that continues even if the caller stops waiting. It is closed
// when it has been unused for a while, or when too many others were used later:
//
//	                       ┌─ uses > 0: files, calls of sets, callers of acquire
//	acquire ──► opening ──► open ──► unused: up to 4, for 10 minutes ──► retired, closed
//	                       └─ current: the epoch begun last
//
// Epochs of the same files share a generation. Equal snapshots are not enough: a snapshot's text
// has only the name and figures of a shard, and the file may have been replaced since. It is safe
// for concurrent use.
type generations struct {
	mount     *mount
	snapshots snapshots
	now       func() time.Time // tests replace it

	// life ends what is being opened when all is closed; work are the goroutines. turn is held by
	// the goroutine that opens a generation.
	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup
	turn chan struct{}

	mu      sync.Mutex
	closed  bool
	open    []*generation
	current *generation        // one of open
	coming  map[uint64]*coming // by epoch
	epochs  map[uint64]string  // the identities of their catalogs, as last found
}

// coming is a generation that is being opened for an epoch. err may be read once done is closed.
type coming struct {
	done chan struct{}
	err  error
}

func newGenerations(m *mount, s snapshots) *generations {
	d := &generations{
		mount: m, snapshots: s, now: time.Now, turn: make(chan struct{}, 1),
		coming: map[uint64]*coming{}, epochs: map[uint64]string{},
	}
	d.life, d.end = context.WithCancel(context.Background())
	d.work.Go(d.closeUnused)
	return d
}

// acquire returns the generation of an epoch, which stays open until Leave. It opens it if
// necessary, and starts the epoch if it is the next one. That can take long, and continues when ctx
// ends.
func (d *generations) acquire(ctx context.Context, epoch uint64) (*generation, error) {
	for {
		d.mu.Lock()
		if d.closed {
			d.mu.Unlock()
			return nil, errClosedDataset
		}
		if g := d.find(epoch); g != nil {
			g.uses++
			d.mu.Unlock()
			return g, nil
		}
		c := d.coming[epoch]
		if c == nil {
			c = &coming{done: make(chan struct{})}
			d.coming[epoch] = c
			d.work.Go(func() { d.bring(epoch, c) })
		}
		d.mu.Unlock()
		select {
		case <-c.done:
			if c.err != nil {
				return nil, c.err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// find returns the open generation of an epoch, or nil. The caller must hold mu.
func (d *generations) find(epoch uint64) *generation {
	identity, known := d.epochs[epoch]
	if !known {
		return nil
	}
	i := slices.IndexFunc(d.open, func(g *generation) bool { return g.catalog.Identity() == identity })
	if i < 0 {
		return nil
	}
	return d.open[i]
}

// isOf reports whether g is the open generation of an epoch.
func (d *generations) isOf(epoch uint64, g *generation) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.find(epoch) == g
}

// bring opens the generation of an epoch, and closes others to make room.
func (d *generations) bring(epoch uint64, c *coming) {
	err := d.openEpoch(epoch)
	d.mu.Lock()
	c.err = err
	delete(d.coming, epoch)
	d.mu.Unlock()
	close(c.done)
	d.sweep()
}

func (d *generations) openEpoch(epoch uint64) error {
	c, _, err := d.snapshots.Catalog(d.life, epoch, true)
	if err != nil {
		return err
	}
	select {
	case d.turn <- struct{}{}:
		defer func() { <-d.turn }()
	case <-d.life.Done():
		return errors.Join(errClosedDataset, c.Close())
	}
	d.mu.Lock()
	if len(d.epochs) >= rememberedEpochs {
		clear(d.epochs)
	}
	d.epochs[epoch] = c.Identity()
	there := d.find(epoch)
	if there != nil {
		there.used = d.now() // keep it open for the caller
	}
	d.mu.Unlock()
	if there != nil {
		return c.Close()
	}
	g, err := openSnapshot(d.life, d.mount, c, epoch, d)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	g.used = d.now()
	d.open = append(d.open, g)
	return nil
}

// begin makes g, which the caller holds, the generation of the current epoch: it stays open.
func (d *generations) begin(g *generation) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current != nil {
		d.current.used = d.now()
	}
	d.current = g
}

// holdCurrent holds the generation of the current epoch; nil if there is none.
func (d *generations) holdCurrent() *generation {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current != nil {
		d.current.uses++
	}
	return d.current
}

// Enter is that of a stream.Guard.
func (g *generation) Enter() bool {
	g.home.mu.Lock()
	defer g.home.mu.Unlock()
	if g.retired || g.home.closed {
		return false
	}
	g.uses++
	return true
}

// Leave is that of a stream.Guard. It also releases what acquire took.
func (g *generation) Leave() {
	g.home.mu.Lock()
	defer g.home.mu.Unlock()
	g.uses--
	g.used = g.home.now()
}

// sweep closes generations that have been unused for long, or have too many used after them.
func (d *generations) sweep() {
	for _, g := range d.retire() {
		if err := g.close(); err != nil {
			d.mount.log.Warn("shards of an earlier epoch could not be closed", "error", err)
		}
	}
}

// retire removes the generations to close from the list. Nothing uses them any more.
func (d *generations) retire() (gone []*generation) {
	d.mu.Lock()
	defer d.mu.Unlock()
	unused := slices.DeleteFunc(slices.Clone(d.open), func(g *generation) bool { return g.uses > 0 || g == d.current })
	slices.SortFunc(unused, func(a, b *generation) int { return b.used.Compare(a.used) })
	for i, g := range unused {
		if i >= keptGenerations || d.now().Sub(g.used) >= keptUnused {
			g.retired = true
			gone = append(gone, g)
		}
	}
	d.open = slices.DeleteFunc(d.open, func(g *generation) bool { return g.retired })
	return gone
}

// closeUnused sweeps from time to time.
func (d *generations) closeUnused() {
	every := time.NewTicker(keptUnused / 10)
	defer every.Stop()
	for {
		select {
		case <-d.life.Done():
			return
		case <-every.C:
			d.sweep()
		}
	}
}

// close cancels what is being opened and closes everything. No handle may be in use.
func (d *generations) close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.end()
	d.work.Wait()
	d.mu.Lock()
	open := d.open
	d.open, d.current = nil, nil
	d.mu.Unlock()
	var errs []error
	for _, g := range slices.Backward(open) {
		errs = append(errs, g.close())
	}
	return errors.Join(append(errs, d.snapshots.Close())...)
}
