package pipeline

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/growing/taking"
	"github.com/lsiofs/lsiofs/pipeline/run"
)

// snapshots says which shards each epoch of a dataset that grows is of. Its methods may be
// called concurrently, once Open has returned.
type snapshots interface {
	// Open is called once, before all else, with how the dataset's shards are found and
	// indexed. Config.OpenStorage is the mount's way to the storage, which Open must have
	// called when it returns.
	Open(ctx context.Context, c catalog.Config) error
	// Latest is the latest epoch that is taken.
	Latest() (epoch uint64, any bool)
	// Catalog gives a new catalog of just the shards of an epoch, which is the caller's. It
	// takes the epoch behind the latest, if take says so. Errors: growing.ErrNotYet,
	// growing.ErrNoEpoch, run.ErrGone, those of shards that are not here or differ.
	Catalog(ctx context.Context, epoch uint64, take bool) (*catalog.Catalog, run.Epoch, error)
	// CanTake returns nil if an epoch has been taken, or could be taken now. It takes none.
	CanTake(ctx context.Context, epoch uint64) error
	// Run names the run: checkpoints are of one.
	Run() string
	// Growing is how the dataset stands.
	Growing() taking.Status
	Close() error
}

const (
	// keptGenerations is how many generations that nothing uses stay open, keptUnused for
	// how long.
	keptGenerations = 4
	keptUnused      = 10 * time.Minute
	// rememberedEpochs bounds of how many epochs the catalog is remembered.
	rememberedEpochs = 4096
)

// errClosedDataset ends those who wait for a generation.
var errClosedDataset = errors.New("the dataset is closed")

// generations are those of a dataset that grows. One is opened when somebody asks for an
// epoch, by a goroutine that goes on when who asked gives up; it is closed when nothing has
// used it for a while, or when others are wanted more:
//
//	                    ┌─ uses > 0: files, calls of sets, whoever holds it
//	hold ──► opening ──► open ──► unused: up to 4, for 10 minutes ──► retired, closed
//	                    └─ current: the epoch that was begun last
//
// Epochs of the same files have one generation. The same snapshot is not enough: its text has
// no more of a shard than its name and figures, and the file may be another one by now. It is
// safe for concurrent use.
type generations struct {
	mount     *mount
	snapshots snapshots
	now       func() time.Time // tests have a clock of their own

	// life ends what is being opened, at the end of all; work are the goroutines. turn is
	// held by the one that opens.
	life context.Context
	end  context.CancelFunc
	work sync.WaitGroup
	turn chan struct{}

	mu      sync.Mutex
	closed  bool
	open    []*generation
	current *generation        // one of open
	coming  map[uint64]*coming // by epoch
	epochs  map[uint64]string  // the identities of their catalogs, as they were found last
}

// coming is a generation that is being opened for an epoch. err may be read when done is
// closed.
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

// hold gives the generation of an epoch, which stays open until release. It opens it where
// it is not, and takes the epoch where it is the next one: that can take long, and goes on
// when ctx ends.
func (d *generations) hold(ctx context.Context, epoch uint64) (*generation, error) {
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

// find is the open generation of an epoch, nil if there is none. It is called with mu held.
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

// isOf says whether a generation is known to be an epoch's.
func (d *generations) isOf(epoch uint64, g *generation) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.find(epoch) == g
}

// bring opens the generation of an epoch, and closes others for it.
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
		there.used = d.now() // it stays for who asked
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

// begin makes an epoch, of which the generation is held, the current one: its generation
// stays open.
func (d *generations) begin(g *generation) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current != nil {
		d.current.used = d.now()
	}
	d.current = g
}

// holdCurrent holds the generation of the current epoch; nil where there is none.
func (d *generations) holdCurrent() *generation {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current != nil {
		d.current.uses++
	}
	return d.current
}

// Enter implements stream.Guard.
func (g *generation) Enter() bool {
	g.home.mu.Lock()
	defer g.home.mu.Unlock()
	if g.retired || g.home.closed {
		return false
	}
	g.uses++
	return true
}

// Leave implements stream.Guard, and ends what hold has begun.
func (g *generation) Leave() {
	g.home.mu.Lock()
	defer g.home.mu.Unlock()
	g.uses--
	g.used = g.home.now()
}

// sweep closes what has been unused for long, or has too many used after it.
func (d *generations) sweep() {
	for _, g := range d.retire() {
		if err := g.close(); err != nil {
			d.mount.log.Warn("shards of an earlier epoch could not be closed", "error", err)
		}
	}
}

// retire takes those out of the list that are to be closed. Nothing uses them any more.
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

// close ends what is being opened and closes all. No handle may be in use.
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
