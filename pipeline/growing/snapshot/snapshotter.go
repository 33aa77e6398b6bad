package snapshot

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
	"strings"
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/growing"
	"github.com/lsiofs/lsiofs/pipeline/growing/watch"
	"github.com/lsiofs/lsiofs/pipeline/run"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/hardlink"
)

// LiveIndex is the part of catalog.LiveIndex that a snapshotter uses.
type LiveIndex interface {
	Index(ctx context.Context, settled []storage.Object) error
	Forget(path string)
	Has(o storage.Object) bool
	Shards() []catalog.LiveShard
	Waiting() []catalog.Waiting
	Due(now time.Time) (due []storage.Object, next time.Time)
	Counts() catalog.LiveIndexCounts
	FirstPassed() []string
	Format() spec.Format
	FormatLine() string
	Kind() string
	Text(shards []catalog.LiveShard) ([]byte, error)
	Seal(ctx context.Context, text []byte) (*catalog.Catalog, error)
	Match(path string, isDir bool) bool
	LeavesOut(path string) string
	LeaveOut(path, reason string)
}

var _ LiveIndex = (*catalog.LiveIndex)(nil)

// Config configures a Snapshotter.
type Config struct {
	// Index stays owned by the caller, who closes it after the snapshotter.
	Index LiveIndex
	// Storage is the dataset's; it stays owned by the caller.
	Storage storage.Storage
	// Root is the dataset's directory: absolute, links resolved.
	Root string
	// RunDir is the run directory; see Place. It is created with the first epoch.
	RunDir string
	Window growing.Window
	Newest growing.By // "" is growing.ByName
	MinNew growing.Amount
	// Settle, Poll and NoHints have the meanings in watch.Config.
	Settle, Poll time.Duration
	NoHints      bool
	// SampleOf is n if an epoch has one n-th of its snapshot's records; 0 is 1. It only affects
	// Status.
	SampleOf uint64
	// Hold makes hard links to the shards of snapshots, so that they can be read after they were
	// deleted; nil for none. Storage, and what the live index reads from, must then wrap it.
	Hold *hardlink.Links
	// Pinned makes RunDir continue a run whose own directory is elsewhere; nil for none.
	Pinned *Pinned
	Log    *slog.Logger
}

// Pinned is an epoch of a run that continues in another directory: from a checkpoint, and a
// snapshot's file (run.ReadSnapshot). Earlier epochs don't exist there.
type Pinned struct {
	Run   string // 32 hexadecimal digits
	Epoch uint64
	Text  []byte // of the snapshot
}

// Snapshotter starts and opens the epochs of a dataset that grows. Its methods may be called
// concurrently.
type Snapshotter struct {
	config  Config
	watcher *watch.Watcher
	queue   *queue
	retry   chan struct{} // capacity 1: a caller waits for files whose indexing failed
	// indexing has capacity 1: it is held while files are passed to the live index.
	indexing chan struct{}
	stop     context.CancelFunc
	running  sync.WaitGroup  // the goroutines
	ctx      context.Context // for attempts, which outlive their callers

	mu      sync.Mutex
	closed  bool
	run     *run.Directory // nil until there is a run
	latest  uint64         // the last one found; run.None
	attempt *attempt       // in progress
	judged  *judged        // result of the last attempt
	news    news           // for Status
	window  string         // the window that warnOfWindow last warned about
	ahead   string         // warning of lookAtClocks
	// text is the text of the snapshot that was used last: the next epoch is compared with it, and
	// its own catalog is built from it. For 500 000 games it is 22 MB.
	text     []byte
	textName string // its fingerprint

	comparing sync.Mutex // held while news is computed

	holding sync.Mutex // held from linking an epoch's shards until it is recorded, and while links are removed
	held    heldSnapshots
}

// Open begins to follow a dataset: it looks at everything once, and indexes new files in the
// background. The first epoch may take long: see Wait. An existing run directory must match the
// live index's format and kind, as far as the live index knows them.
func Open(ctx context.Context, c Config) (*Snapshotter, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Newest == "" {
		c.Newest = growing.ByName
	}
	t := &Snapshotter{config: c, queue: newQueue(), retry: make(chan struct{}, 1), indexing: make(chan struct{}, 1), latest: run.None}
	if c.Pinned != nil {
		if err := t.pin(); err != nil {
			return nil, err
		}
	}
	if _, err := t.directory(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	watcher, err := watch.Open(ctx, watch.Config{
		Root: c.Root, Match: c.Index.Match, LeavesOut: c.Index.LeavesOut, LeftOut: c.Index.LeaveOut, Known: c.Index.Has, StatStable: t.queue.add,
		Gone: func(path string) {
			t.queue.remove(path)
			c.Index.Forget(path)
		},
		Settle: c.Settle, Poll: c.Poll, NoHints: c.NoHints, NoChangeTimes: c.Hold != nil, Log: c.Log,
	})
	if err != nil {
		return nil, err
	}
	t.watcher = watcher
	t.ctx, t.stop = context.WithCancel(context.Background())
	t.running.Add(1)
	go t.index(t.ctx)
	return t, nil
}

var errClosed = errors.New("the mount is being closed")

// Close stops watching, indexing and attempts, and waits for them. It is idempotent.
func (t *Snapshotter) Close() error {
	t.mu.Lock()
	already := t.closed
	t.closed = true
	t.mu.Unlock()
	t.stop()
	t.running.Wait()
	if already {
		return nil
	}
	return t.watcher.Close()
}

// Place returns the run directory of a dataset: asked, if it is not empty; else
// DATASET/.lsiofs/runs/default if that directory exists; else one in the index directory, which is
// sufficient for one node. dataset is the name that the user gave.
func Place(asked, dataset, root, indexDir string) (string, error) {
	if asked != "" {
		dir, err := filepath.Abs(asked)
		if err == nil {
			_, err = os.Stat(filepath.Dir(dir))
		}
		if err != nil { // a typo, or a missing mount: otherwise another run would begin by mistake
			return "", fmt.Errorf("--run %s: %w: create its parent directory, or mount the file system that it is on", asked, err)
		}
		return dir, nil
	}
	shared := filepath.Join(root, ".lsiofs", "runs", "default")
	if info, err := os.Stat(shared); err == nil && info.IsDir() {
		return shared, nil
	}
	if indexDir == "" {
		return "", errors.New("there is no directory for the run, because no index can be stored: name one with --run")
	}
	name := sha256.Sum256([]byte(root + "\x00" + dataset))
	return filepath.Join(indexDir, hex.EncodeToString(name[:8])+".run"), nil
}

// InfoOf returns the description of the run in a directory; ok is false if none has begun. A live
// index that is opened with its format and kind accepts no other shards.
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

// pin makes the run directory continue another run. The run's format is the live index's, so the
// live index must already know it: Seal takes it from the text.
func (t *Snapshotter) pin() error {
	p := t.config.Pinned
	shards, err := catalog.ShardsOf(p.Text)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	e := epochOf(p.Epoch, shards, catalog.News{}, t.config.Window)
	_, err = run.Pin(t.config.RunDir, run.Info{
		Run: p.Run, Format: t.config.Index.FormatLine(), Kind: t.config.Index.Kind(), Newest: string(t.config.Newest),
		Made: now(),
	}, e, p.Text)
	return err
}

// directory returns the run directory, or fs.ErrNotExist if no run has begun.
func (t *Snapshotter) directory() (*run.Directory, error) {
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

// want returns the properties that the run must have. Those that the live index does not know yet
// are taken from the run.
func (t *Snapshotter) want(there run.Info) run.Info {
	s := t.config.Index
	w := run.Info{Format: there.Format, Kind: there.Kind, Newest: string(t.config.Newest)}
	if s.Format().Name != "auto" {
		w.Format = s.FormatLine()
	}
	if kind := s.Kind(); kind != "" {
		w.Kind = kind
	}
	return w
}

// begin returns the run directory, and creates it if it does not exist.
func (t *Snapshotter) begin() (*run.Directory, error) {
	d, err := t.directory()
	if !errors.Is(err, fs.ErrNotExist) {
		return d, err
	}
	s := t.config.Index
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

// Run returns the run's identifier, 32 hexadecimal digits; "" until its first epoch has been
// started.
func (t *Snapshotter) Run() string {
	d, err := t.directory()
	if err != nil {
		return ""
	}
	return d.Info().Run
}

// Latest returns the highest epoch that any node has started; any is false if there is none. If the
// run directory can't be read, it returns the last one found.
func (t *Snapshotter) Latest() (epoch uint64, any bool) {
	n, err := t.find()
	if err != nil {
		t.config.Log.Warn("the run directory can't be read", "error", err)
	}
	return n, n != run.None
}

// find returns the highest epoch that has been started, or run.None.
func (t *Snapshotter) find() (uint64, error) {
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

// now returns the time in the format of records.
func now() string { return time.Now().UTC().Format(time.RFC3339) }

// Status is the state of a dataset that grows. Its fields are those of "growing" in a mount's
// status.json.
type Status struct {
	Run      string  `json:"run"`             // "" if none has begun
	RunDir   string  `json:"run_directory"`   // absolute
	Epoch    *uint64 `json:"epoch,omitempty"` // the latest that has been started
	Snapshot string  `json:"snapshot"`        // of that epoch, like the next two fields
	Taken    string  `json:"taken"`
	By       string  `json:"by"`
	// Latest is the whole record of that epoch.
	Latest *run.Epoch `json:"latest,omitempty"`
	Window string     `json:"window"`
	// Watch is "inotify" or "poll"; WatchWhy is the reason for poll.
	Watch    string `json:"watch"`
	WatchWhy string `json:"watch_why,omitempty"`
	// The New fields are what the next epoch would add to the latest. The Needed fields are how
	// much must be new; only one of them is not 0.
	NewShards     uint64 `json:"new_shards"`
	NewRecords    uint64 `json:"new_records"`
	NewUnits      uint64 `json:"new_units"`
	NeededUnits   uint64 `json:"needed_units"`
	NeededRecords uint64 `json:"needed_records,omitempty"`
	NeededShards  uint64 `json:"needed_shards,omitempty"`
	// NextEpoch describes why the next epoch can't start yet; "" if it may.
	NextEpoch string `json:"next_epoch,omitempty"`
	// UsesPerRecord is how often a record is used in the long run, if each epoch brings as much new
	// data as required, or as the latest did; nil if unknown.
	UsesPerRecord *float64 `json:"uses_per_record,omitempty"`
	// Warning is a warning for the user about these settings.
	Warning  string `json:"warning,omitempty"`
	Shards   int    `json:"shards"`   // indexed now, whether in the window or not
	Indexing int    `json:"indexing"` // settled files still to be indexed
	Settling int    `json:"settling"` // files that may still be written
	// Waiting has settled files that are incomplete, or of another kind; only some if there are
	// very many.
	Waiting         []Waiting `json:"waiting"`
	WaitingShards   int       `json:"waiting_shards"`
	PassedOver      int       `json:"passed_over"` // files that are not shards
	PassedOverFirst []string  `json:"passed_over_first,omitempty"`
	Overflows       uint64    `json:"overflows"` // times the kernel lost reports
	LastScanSeconds float64   `json:"last_scan_seconds"`
	NewestShard     string    `json:"newest_shard"`
	// Error is the current problem: directories that can't be listed, or a full disk.
	Error string `json:"error,omitempty"`
}

// Waiting is a file that may become a shard later.
type Waiting struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

const (
	// mostWaiting is the maximum number of them in a Status.
	mostWaiting = 100
	// manyUses of a record warrant a warning: a network memorizes it.
	manyUses = 4
)

// news is what the next epoch would add, as last computed.
type news struct {
	version uint64 // of the queue
	latest  uint64
	at      time.Time
	took    time.Duration

	news   catalog.News
	newest string
	short  *growing.NotYetError
	err    error
}

// Status returns the current state. The new data of the next epoch may be slightly out of date if
// there are very many shards: computing it is limited to a twentieth of a core.
func (t *Snapshotter) Status() Status {
	looks, live := t.watcher.Status(), t.config.Index
	counts := live.Counts()
	s := Status{
		Run: t.Run(), RunDir: t.config.RunDir, Window: t.config.Window.String(), Watch: looks.Watch, WatchWhy: looks.Why,
		Shards: counts.Shards, Indexing: t.queue.left(), Settling: looks.Settling, WaitingShards: counts.Waiting,
		PassedOver: counts.PassedOver, PassedOverFirst: live.FirstPassed(), Overflows: looks.Overflows, LastScanSeconds: looks.Scan.Seconds(), Waiting: []Waiting{},
	}
	for i, w := range live.Waiting() {
		if i == mostWaiting {
			break
		}
		s.Waiting = append(s.Waiting, Waiting{w.Path, w.Reason})
	}
	switch a := t.config.MinNew; a.Measure {
	case growing.Units:
		s.NeededUnits = a.N
	case growing.Records:
		s.NeededRecords = a.N
	case growing.Shards:
		s.NeededShards = a.N
	}
	latest, failure := t.find()
	if e, err := t.epoch(latest); err == nil && latest != run.None {
		s.Epoch, s.Snapshot, s.Taken, s.By, s.Latest = &latest, e.Snapshot, e.Taken, e.By, &e
		s.UsesPerRecord = t.uses(e)
	}
	n := t.newsNow(latest)
	s.NewShards, s.NewRecords, s.NewUnits, s.NewestShard = n.news.NewShards, n.news.NewRecords, n.news.NewUnits, n.newest
	if n.short != nil {
		s.NextEpoch = n.short.Error()
	}
	s.Warning = strings.Join(t.warnings(looks, s.UsesPerRecord), "; ")
	state, _ := t.queue.state()
	if err := errors.Join(failure, n.err, looks.Err, state.failure); err != nil {
		s.Error = err.Error()
	}
	return s
}

// warnings returns the warnings for the user.
func (t *Snapshotter) warnings(looks watch.Status, uses *float64) (list []string) {
	if uses != nil && *uses > manyUses {
		list = append(list, fmt.Sprintf("a record is used %.1f times: raise --min-new, narrow the --window, or take a --sample", *uses))
	}
	if !looks.Replaced.IsZero() {
		list = append(list, fmt.Sprintf("the dataset's directory was replaced by another one, which was seen at %s", looks.Replaced.UTC().Format(time.RFC3339)))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ahead != "" {
		list = append(list, t.ahead)
	}
	return list
}

// epoch returns the record of an epoch.
func (t *Snapshotter) epoch(number uint64) (run.Epoch, error) {
	d, err := t.directory()
	if err != nil {
		return run.Epoch{}, err
	}
	return d.Epoch(number)
}

// uses returns how often a record is used in the long run, from the size of an epoch and how much
// is new in each; nil if unknown.
func (t *Snapshotter) uses(e run.Epoch) *float64 {
	all, fresh := e.Records, e.NewRecords
	switch a := t.config.MinNew; {
	case a.N > 0 && a.Measure == growing.Units:
		all, fresh = e.Units, a.N
	case a.N > 0 && a.Measure == growing.Shards:
		all, fresh = e.Shards, a.N
	case a.N > 0:
		fresh = a.N
	case e.Epoch == 0: // all of the first epoch is new, which predicts nothing
		return nil
	}
	if fresh == 0 {
		return nil
	}
	u := growing.Uses(all, fresh) / float64(max(t.config.SampleOf, 1))
	return &u
}

// newsNow returns the new data, computed again if something has changed since and the last
// computation is not too recent. While an epoch is being started the old value is returned:
// starting computes the same, and must be quick.
func (t *Snapshotter) newsNow(latest uint64) news {
	t.comparing.Lock() // concurrent callers share the result of the first one
	defer t.comparing.Unlock()
	state, _ := t.queue.state()
	t.mu.Lock()
	n := t.news
	fresh := n.latest == latest && (n.version == state.version || time.Since(n.at) < 20*n.took)
	fresh = !n.at.IsZero() && (fresh || t.attempt != nil)
	t.mu.Unlock()
	if fresh {
		return n
	}
	began := time.Now()
	n = t.compute(latest)
	n.version, n.latest, n.at, n.took = state.version, latest, time.Now(), time.Since(began)
	t.mu.Lock()
	t.news = n
	t.mu.Unlock()
	return n
}

// compute compares the current shards with the latest epoch.
func (t *Snapshotter) compute(latest uint64) (n news) {
	chosen := t.choose()
	if len(chosen) > 0 {
		n.newest = chosen[0].Path
	}
	if _, n.news, n.err = t.compare(latest+1, chosen); n.err == nil {
		n.short = t.enough(latest+1, chosen, n.news)
	}
	return n
}
