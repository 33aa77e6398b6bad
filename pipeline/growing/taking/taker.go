package taking

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/growing"
	"github.com/lsiofs/lsiofs/pipeline/growing/looking"
	"github.com/lsiofs/lsiofs/pipeline/run"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/held"
)

// Stock is what a taker uses of a catalog.Stock.
type Stock interface {
	Index(ctx context.Context, settled []storage.Object) error
	Forget(path string)
	Has(o storage.Object) bool
	Shards() []growing.Shard
	Waiting() []catalog.Waiting
	Due(now time.Time) (due []storage.Object, next time.Time)
	Counts() catalog.StockCounts
	FirstPassed() []string
	Format() spec.Format
	FormatLine() string
	Kind() string
	Text(shards []growing.Shard) ([]byte, error)
	Seal(ctx context.Context, text []byte) (*catalog.Catalog, error)
	Match(path string, isDir bool) bool
	LeavesOut(path string) string
	LeaveOut(path, reason string)
}

var _ Stock = (*catalog.Stock)(nil)

// Config says what is taken, and from where.
type Config struct {
	// Stock stays the caller's, who closes it after the taker.
	Stock Stock
	// Storage is that of the dataset; it stays the caller's.
	Storage storage.Storage
	// Root is the dataset's directory: absolute, links resolved.
	Root string
	// RunDir is the run directory; see Place. It is made with the first epoch.
	RunDir string
	Window growing.Window
	Newest growing.By // "" is growing.ByName
	MinNew growing.Amount
	// Settle, Poll and NoHints are those of looking.Config.
	Settle, Poll time.Duration
	NoHints      bool
	// SampleOf is n where an epoch is of an n-th of its snapshot's records; 0 is 1. It is
	// for Status alone.
	SampleOf uint64
	// Hold makes hard links to the shards of snapshots, so that they can be read after they
	// were deleted; nil for none. Storage, and what the stock reads from, is then over it.
	Hold *held.Links
	// Pinned makes RunDir go on with a run whose own directory is not here; nil for none.
	Pinned *Pinned
	Log    *slog.Logger
}

// Pinned is an epoch of a run that goes on elsewhere: from a checkpoint, and a snapshot's
// file (run.ReadSnapshot). Earlier epochs don't exist there.
type Pinned struct {
	Run   string // 32 hexadecimal digits
	Epoch uint64
	Text  []byte // of the snapshot
}

// Taker gives the epochs of a dataset that grows. Its methods may be called at the same
// time.
type Taker struct {
	config Config
	looker *looking.Looker
	queue  *queue
	retry  chan struct{} // of one place: somebody waits for what could not be indexed
	// indexing is of one place: whoever gives files to the stock has taken it.
	indexing chan struct{}
	stop     context.CancelFunc
	running  sync.WaitGroup  // the goroutines
	ctx      context.Context // of attempts, which outlive their askers

	mu      sync.Mutex
	closed  bool
	run     *run.Directory // nil until there is a run
	latest  uint64         // as it was found last; run.None
	attempt *attempt       // that is under way
	judged  *judged        // what the last attempt has found
	news    news           // for Status
	window  string         // that warnOfWindow has warned of
	ahead   string         // what lookAtClocks has found
	// text is that of the snapshot which was used last: the next epoch is compared with it,
	// and its own catalog is made of it. One of 500 000 games has 22 MB.
	text     []byte
	textName string // its fingerprint

	comparing sync.Mutex // while news is computed

	holding sync.Mutex // from the links of an epoch to its record, and while links are removed
	held    heldSnapshots
}

// Open begins to follow a dataset: it looks at all of it once, and indexes in the
// background what is new. The first epoch may be long in coming: see Wait. A run directory
// that is there has to be of the stock's format and kind, as far as the stock knows them.
func Open(ctx context.Context, c Config) (*Taker, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Newest == "" {
		c.Newest = growing.ByName
	}
	t := &Taker{config: c, queue: newQueue(), retry: make(chan struct{}, 1), indexing: make(chan struct{}, 1), latest: run.None}
	if c.Pinned != nil {
		if err := t.pin(); err != nil {
			return nil, err
		}
	}
	if _, err := t.directory(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	looker, err := looking.Open(ctx, looking.Config{
		Root: c.Root, Match: c.Stock.Match, LeavesOut: c.Stock.LeavesOut, LeftOut: c.Stock.LeaveOut, Known: c.Stock.Has, Settled: t.queue.add,
		Gone: func(path string) {
			t.queue.remove(path)
			c.Stock.Forget(path)
		},
		Settle: c.Settle, Poll: c.Poll, NoHints: c.NoHints, NoChangeTimes: c.Hold != nil, Log: c.Log,
	})
	if err != nil {
		return nil, err
	}
	t.looker = looker
	t.ctx, t.stop = context.WithCancel(context.Background())
	t.running.Add(1)
	go t.index(t.ctx)
	return t, nil
}

var errClosed = errors.New("the mount is being closed")

// Close ends looking, indexing and taking, and waits for them. It is idempotent.
func (t *Taker) Close() error {
	t.mu.Lock()
	already := t.closed
	t.closed = true
	t.mu.Unlock()
	t.stop()
	t.running.Wait()
	if already {
		return nil
	}
	return t.looker.Close()
}

// Place is where the run directory of a dataset is: asked, if it is not empty; else
// DATASET/.lsiofs/runs/default where that directory exists; else one in the index
// directory, which is right for one node. dataset is what the user has written.
func Place(asked, dataset, root, indexDir string) (string, error) {
	if asked != "" {
		dir, err := filepath.Abs(asked)
		if err == nil {
			_, err = os.Stat(filepath.Dir(dir))
		}
		if err != nil { // a typo, or nothing is mounted there: another run would begin by mistake
			return "", fmt.Errorf("--run %s: %w: make its parent directory, or mount the file system that it is on", asked, err)
		}
		return dir, nil
	}
	shared := filepath.Join(root, ".lsiofs", "runs", "default")
	if info, err := os.Stat(shared); err == nil && info.IsDir() {
		return shared, nil
	}
	if indexDir == "" {
		return "", errors.New("there is no directory for the run: no index can be stored: name one with --run")
	}
	name := sha256.Sum256([]byte(root + "\x00" + dataset))
	return filepath.Join(indexDir, hex.EncodeToString(name[:8])+".run"), nil
}

// InfoOf is what the run in a directory is; ok is false where none has been begun. A stock
// that is opened with its format and kind takes no other shards.
func InfoOf(runDir string) (info run.Info, ok bool, err error) {
	d, err := run.Read(runDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return run.Info{}, false, nil
	case err != nil:
		return run.Info{}, false, err
	}
	return d.Info(), true, nil
}

// pin makes the run directory go on with another run. Its format is the stock's, so the
// stock has to know it: by the text, which Seal takes it from.
func (t *Taker) pin() error {
	p := t.config.Pinned
	shards, err := catalog.ShardsOf(p.Text)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	e := epochOf(p.Epoch, shards, growing.News{}, t.config.Window)
	_, err = run.Pin(t.config.RunDir, run.Info{
		Run: p.Run, Format: t.config.Stock.FormatLine(), Kind: t.config.Stock.Kind(), Newest: string(t.config.Newest),
		Made: now(),
	}, e, p.Text)
	return err
}

// directory is the run directory, or fs.ErrNotExist while no run has been begun.
func (t *Taker) directory() (*run.Directory, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.run != nil {
		return t.run, nil
	}
	d, err := run.Read(t.config.RunDir)
	if err != nil {
		return nil, err
	}
	if err := d.Suits(t.want(d.Info())); err != nil {
		return nil, fmt.Errorf("run directory: %w", err)
	}
	if t.run, err = run.Open(t.config.RunDir, d.Info()); err != nil {
		return nil, err
	}
	return t.run, nil
}

// want is what the run has to be. What the stock does not know yet is as the run says.
func (t *Taker) want(there run.Info) run.Info {
	s := t.config.Stock
	w := run.Info{Format: there.Format, Kind: there.Kind, Newest: string(t.config.Newest)}
	if s.Format().Name != "auto" {
		w.Format = s.FormatLine()
	}
	if kind := s.Kind(); kind != "" {
		w.Kind = kind
	}
	return w
}

// begin is the run directory, which is made where there is none yet.
func (t *Taker) begin() (*run.Directory, error) {
	d, err := t.directory()
	if !errors.Is(err, fs.ErrNotExist) {
		return d, err
	}
	s := t.config.Stock
	d, err = run.Open(t.config.RunDir, run.Info{Format: s.FormatLine(), Kind: s.Kind(), Newest: string(t.config.Newest)})
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.run == nil {
		t.run = d
	}
	return t.run, nil
}

// Run is the number of the run, 32 hexadecimal digits; "" until its first epoch is taken.
func (t *Taker) Run() string {
	d, err := t.directory()
	if err != nil {
		return ""
	}
	return d.Info().Run
}

// Latest is the highest epoch that is taken, by any node; any is false where none is. Where
// the run directory can't be read, it is the one that was found last.
func (t *Taker) Latest() (epoch uint64, any bool) {
	n, err := t.find()
	if err != nil {
		t.config.Log.Warn("the run directory can't be read", "error", err)
	}
	return n, n != run.None
}

// find is the highest epoch that is taken, or run.None.
func (t *Taker) find() (uint64, error) {
	d, err := t.directory()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return run.None, nil
	case err != nil:
		return run.None, err
	}
	n, err := d.Latest()
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.latest = n
	}
	return t.latest, err
}

// now is the time as records have it.
func now() string { return time.Now().UTC().Format(time.RFC3339) }
