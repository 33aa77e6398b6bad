package catalog

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/catalog/index"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/retry"
	"github.com/lsiofs/lsiofs/pipeline/unpack"
)

// StockConfig says what a Stock is of.
type StockConfig struct {
	// Config is as for Open. Dataset is a directory, or a pattern of files; Target is nil.
	// Format may be auto: it is then what the first shards are. Progress is not called.
	Config
	// Kind is what the shards are of (Catalog.Kind), "" until the first one says it. It is
	// of no use where a format takes several kinds (unpack.Mixer).
	Kind string
	// FormatLine, if not "", is what the shards have to be of (Stock.FormatLine), where Format
	// is auto: as a run has it that goes on.
	FormatLine string
	// Now is the clock of what waits; nil is time.Now.
	Now func() time.Time
}

// Stock is what is known of the shards of a dataset that grows. Its owner tells it which
// files there are (Index) and which are gone (Forget). It indexes each file once, and keeps
// what it found in journals in the index directory. A set of shards is made a Catalog by
// Seal, without reading a shard again.
//
// A file is in one of these states:
//
//	a shard      whole, of the stock's format and kind: Shards
//	waiting      not whole yet, of another kind, or a shard that counts already: Waiting
//	passed over  of another format
//	remembered   not there any more, or not seen yet by this process: Seal may use it
//
// Kept in memory are about 200 bytes a shard and its path; what is known of its records
// lies in mapped files. Its methods may be called concurrently. Those that give answers
// wait for no disk.
type Stock struct {
	config   StockConfig
	target   discover.Target
	store    *index.Store
	storage  storage.Storage
	reads    storage.Storage // storage, whose errors that are likely to pass are tried again
	arrivals *discover.Arrivals
	journals *index.Journals
	pass     *pass         // without a format until there is one; of whoever has the turn
	turn     chan struct{} // of one place: who has taken it reads files
	opened   time.Time
	formats  []spec.Format // that the shards may be of

	closing context.Context // ends when Close is called
	close   context.CancelFunc
	calls   sync.WaitGroup

	mu            sync.RWMutex
	closed        bool
	format        int             // among formats, -1 while it is not known
	found         discover.Found  // of the format; without Shards
	namesDecided  bool            // whether
	takesAll      bool            // shards need not have the format's extension
	named         bool            // names say which files are shards; of whoever has the turn
	namings       map[string]bool // of shards; likewise
	kind          string
	kinds         []string // that were met; the first is ""
	known         map[string]*known
	waiting       map[string]*waiting
	twins         twins
	passed        map[string]storage.Object // passed over
	left          map[string]string         // left out by name, and why: LeaveOut
	reading       map[string]storage.Object // by whoever has the turn
	gone          []gone                    // forgotten, the first one first
	droppedUnseen bool
	counts        StockCounts
	logged        logBudget
}

// StockCounts is how much there is.
type StockCounts struct {
	Shards                  int // what Shards gives
	Records, Units, Bytes   uint64
	Waiting, PassedOver     int
	OtherKind, Twice        int   // of those that wait
	Journals                int   // files of this process
	JournalBytes, LiveBytes int64 // of these files, and what of them is wanted
}

var errStockClosed = errors.New("the dataset is not indexed any more: the mount is being closed")

// OpenStock opens what is known of a dataset: from the index directory's journals, also
// those of processes that were killed, and its sealed indexes. It indexes nothing, and
// looks at no shard.
func OpenStock(ctx context.Context, c StockConfig) (*Stock, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	t, err := c.find()
	if err != nil {
		return nil, err
	}
	s := &Stock{
		config: c, target: t, opened: c.Now(), format: -1, kinds: []string{""}, kind: c.Kind, turn: make(chan struct{}, 1),
		known: map[string]*known{}, waiting: map[string]*waiting{}, passed: map[string]storage.Object{}, left: map[string]string{},
		twins: twins{shards: map[uint64]*known{}, twice: map[uint64][]*known{}},
	}
	if err := s.target.Exclude(c.Exclude); err != nil {
		return nil, err
	}
	if err := s.setArrivals(""); err != nil { // before anything is made
		return nil, err
	}
	s.store = index.OpenStore(c.IndexDir, wholeRoot(&t), index.KeyOf(t.Root(), s.target.Text(), formatLine(c.Format)), c.Log)
	if s.storage, err = c.OpenStorage(t.Root(), s.store.Dir()); err != nil {
		return nil, err
	}
	s.reads = retry.New(lent{s.storage})
	if err := s.setArrivals(s.store.Dir()); err != nil {
		_ = s.reads.Close()
		return nil, err
	}
	s.closing, s.close = context.WithCancel(context.Background())
	s.remember()
	switch {
	case c.Format.Name != "auto":
		err = s.pin(0, "")
	case c.FormatLine != "":
		err = s.pinLine(c.FormatLine)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// setArrivals makes what judges files; formats are those that shards may be of.
func (s *Stock) setArrivals(indexDir string) (err error) {
	c := &s.config
	s.arrivals, err = discover.NewArrivals(discover.Config{
		Target: s.target, Format: c.Format, Storage: s.storage, Reads: s.reads,
		AtATime: c.Profile.Or().Pass.Shards, IndexDir: indexDir, Log: c.Log,
	})
	if s.formats = nil; c.Format.Name != "auto" {
		s.formats = []spec.Format{c.Format.WithDefaults()}
		return err
	}
	for _, name := range discover.Names() {
		f := c.Format.WithDefaults()
		if f.Name = name; name == "lc0" || !f.Lc0Check && f.As == "" {
			s.formats = append(s.formats, f)
		}
	}
	return err
}

// enter begins a call that does more than answer; leave ends it. The context ends when the
// caller's does, or the stock is closed.
func (s *Stock) enter(ctx context.Context) (inner context.Context, leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, errStockClosed
	}
	s.calls.Add(1)
	inner, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.closing, cancel)
	return inner, func() { stop(); cancel(); s.calls.Done() }, nil
}

// closedOr is the error of a call that Close has ended.
func (s *Stock) closedOr(err error) error {
	if errors.Is(err, context.Canceled) && s.closing.Err() != nil {
		return errStockClosed
	}
	return err
}

// Close ends what runs, and keeps the journals for the next run. Catalogs that Seal has
// given stay. It is idempotent.
func (s *Stock) Close() error {
	s.mu.Lock()
	already := s.closed
	s.closed = true
	s.mu.Unlock()
	s.close()
	s.calls.Wait()
	if already {
		return nil
	}
	s.journals.Close()
	return s.reads.Close()
}

// Match says whether a file may be a shard, or a directory have some, by its path relative
// to the dataset's root.
func (s *Stock) Match(path string, isDir bool) bool { return s.arrivals.Match(path, isDir) }

// LeavesOut returns why a name that Match refuses is left out; "" where the dataset does not name it.
func (s *Stock) LeavesOut(path string) string { return s.arrivals.LeavesOut(path) }

// LeaveOut is told of a name that is left out, and why; reason is "" once it is not there any
// more. The path of a directory ends in '/'.
func (s *Stock) LeaveOut(path, reason string) {
	if reason != "" && !s.arrivals.MayName(strings.TrimSuffix(path, "/")) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if reason == "" {
		delete(s.left, path)
		return
	}
	s.left[path] = reason
}

// Root is the dataset's root directory, absolute, links resolved.
func (s *Stock) Root() string { return s.target.Root() }

// IndexDir is the directory of journals and indexes, "" where nothing can be stored.
func (s *Stock) IndexDir() string { return s.store.Dir() }

// Format is how shards are cut. Its name is auto until there is a first shard, where that
// is what was asked for.
func (s *Stock) Format() spec.Format {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.format < 0 {
		return s.config.Format
	}
	return s.found.Format
}

// FormatLine is the format with all its parameters, as text.
func (s *Stock) FormatLine() string { return formatLine(s.Format()) }

// Kind is what all shards have in common (Catalog.Kind), as the first of them writes it;
// "" until there is one, and for formats without kinds or that take several.
func (s *Stock) Kind() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.uniform() == nil {
		return ""
	}
	return s.kind
}

// uniform is the format where it demands one kind, else nil. mu is held.
func (s *Stock) uniform() unpack.Uniform {
	u, ok := s.found.Unpacker.(unpack.Uniform)
	if _, mixes := s.found.Unpacker.(unpack.Mixer); !ok || mixes {
		return nil
	}
	return u
}

// Counts says how much there is.
func (s *Stock) Counts() StockCounts {
	s.mu.RLock()
	c := s.counts
	c.Waiting, c.PassedOver = len(s.waiting)+c.OtherKind+c.Twice, len(s.passed)+len(s.left)
	closed := s.closed
	s.mu.RUnlock()
	if !closed {
		c.JournalBytes, c.LiveBytes, c.Journals = s.journals.Size()
	}
	return c
}
