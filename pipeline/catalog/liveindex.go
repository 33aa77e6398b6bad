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
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// LiveIndexConfig configures a LiveIndex.
type LiveIndexConfig struct {
	// Config is as for Open. Dataset is a directory, or a pattern of files; Target is nil. Format
	// may be auto: it is then determined by the first shards. Progress is not called.
	Config
	// Kind is the kind of the shards (Catalog.Kind), "" to take that of the first one. It is
	// ignored for formats that accept several kinds (format.Mixer).
	Kind string
	// FormatLine, if not "" and Format is auto, is the required format of the shards
	// (LiveIndex.FormatLine), taken from the run that is resumed.
	FormatLine string
	// Now is the clock for retries; nil is time.Now.
	Now func() time.Time
}

// LiveIndex is the index of the shards of a dataset that grows. Its owner reports which files exist
// (Index) and which are gone (Forget). It indexes each file once, and stores the result in journals
// in the index directory. Seal makes a Catalog from a set of shards without reading a shard again.
//
// A file is in one of these states:
//
//	a shard      whole, of the live index's format and kind: Shards
//	waiting      not whole yet, of another kind, or a duplicate of a shard: Waiting
//	passed over  of another format
//	remembered   gone, or not seen yet by this process: Seal may use it
//
// It holds about 200 bytes plus the path per shard in memory; the index of a shard's records is in
// mapped files. Its methods may be called concurrently. Those that only return state do not wait
// for the disk.
type LiveIndex struct {
	config LiveIndexConfig
	access
	arrivals *discover.Arrivals
	journals *index.Journals
	pass     *pass         // without a format until there is one; owned by the holder of turn
	turn     chan struct{} // buffered with one element: its holder reads files
	opened   time.Time
	formats  []spec.Format // that the shards may have

	closing context.Context // ends when Close is called
	close   context.CancelFunc
	calls   sync.WaitGroup

	mu            sync.RWMutex
	closed        bool
	format        int             // index into formats, -1 until it is known
	found         discover.Found  // for the format; without Shards
	namesDecided  bool            // whether takesAll is final
	takesAll      bool            // shards need not have the format's extension
	named         bool            // names determine which files are shards; owned by the holder of turn
	namings       map[string]bool // of shards; likewise
	kind          string
	kinds         []string // seen so far; the first is ""
	known         map[string]*known
	waiting       map[string]*waiting
	twins         twins
	passed        map[string]storage.Object // passed over
	left          map[string]string         // left out by name, and the reason: LeaveOut
	reading       map[string]storage.Object // by the holder of turn
	gone          []gone                    // forgotten, the oldest first
	droppedUnseen bool
	counts        LiveIndexCounts
	logged        logBudget
}

// LiveIndexCounts are the numbers of files and records in a LiveIndex.
type LiveIndexCounts struct {
	Shards                  int // what Shards returns
	Records, Units, Bytes   uint64
	Waiting, PassedOver     int
	OtherKind, Twice        int   // of the waiting files
	Journals                int   // files of this process
	JournalBytes, LiveBytes int64 // total size of these files, and how much of it is in use
}

var errLiveIndexClosed = errors.New("indexing has ended: the mount is being closed")

// OpenLiveIndex opens the stored index of a dataset from the index directory's journals, including
// those of processes that were killed, and from its sealed indexes. It indexes nothing, and opens
// no shard.
func OpenLiveIndex(ctx context.Context, c LiveIndexConfig) (*LiveIndex, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &LiveIndex{
		config: c, opened: c.Now(), format: -1, kinds: []string{""}, kind: c.Kind, turn: make(chan struct{}, 1),
		known: map[string]*known{}, waiting: map[string]*waiting{}, passed: map[string]storage.Object{}, left: map[string]string{},
		twins: twins{shards: map[uint64]*known{}, twice: map[uint64][]*known{}},
	}
	d, err := c.open(func(t *discover.Target) error {
		s.target = *t
		return s.setArrivals("") // before anything is created
	})
	if err != nil {
		return nil, err
	}
	s.access = d
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

// setArrivals sets arrivals, which judges files, and formats, those that shards may have.
func (s *LiveIndex) setArrivals(indexDir string) (err error) {
	c := &s.config
	s.arrivals, err = discover.NewArrivals(discover.Config{
		Target: s.target, Format: c.Format, Storage: s.storage, Reads: s.reads,
		AtATime: c.Profile.Or().Pass.Shards, IndexDir: indexDir, Log: c.Log,
	})
	if s.formats = nil; c.Format.Name != "auto" {
		s.formats = []spec.Format{c.Format.WithDefaults()}
		return err
	}
	for _, name := range formats.Detected() {
		f := c.Format.WithDefaults()
		f.Name = name
		if (name == "lc0" || !f.Lc0Check) && (f.As == "" || f.As.Format() == name) && (name == "parquet" || f.Rows == (spec.Rows{})) {
			s.formats = append(s.formats, formats.Resolutions(f)...)
		}
	}
	return err
}

// enter begins a call that may block; leave ends it. The context ends when the caller's does, or
// when the live index is closed.
func (s *LiveIndex) enter(ctx context.Context) (inner context.Context, leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, errLiveIndexClosed
	}
	s.calls.Add(1)
	inner, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.closing, cancel)
	return inner, func() { stop(); cancel(); s.calls.Done() }, nil
}

// closedOr returns the error of a call that Close may have ended.
func (s *LiveIndex) closedOr(err error) error {
	if errors.Is(err, context.Canceled) && s.closing.Err() != nil {
		return errLiveIndexClosed
	}
	return err
}

// Close ends running calls, and keeps the journals for the next run. Catalogs returned by Seal stay
// valid. It is idempotent.
func (s *LiveIndex) Close() error {
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

// Match reports whether a file may be a shard, or a directory may contain some, by its path
// relative to the dataset's root.
func (s *LiveIndex) Match(path string, isDir bool) bool { return s.arrivals.Match(path, isDir) }

// LeavesOut returns why a name that Match refuses is left out; "" if the dataset does not name it.
func (s *LiveIndex) LeavesOut(path string) string { return s.arrivals.LeavesOut(path) }

// LeaveOut records that a name is left out, and why; reason is "" once it no longer exists. The
// path of a directory ends in '/'.
func (s *LiveIndex) LeaveOut(path, reason string) {
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

// Root returns the dataset's root directory (absolute, symbolic links resolved).
func (s *LiveIndex) Root() string { return s.target.Root() }

// IndexDir returns the directory of journals and indexes, "" if nothing can be stored.
func (s *LiveIndex) IndexDir() string { return s.store.Dir() }

// Format returns the shards' format. If auto was requested, its name is auto until there is a first
// shard.
func (s *LiveIndex) Format() spec.Format {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.format < 0 {
		return s.config.Format
	}
	return s.found.Format
}

// FormatLine returns the format with all its parameters, as text.
func (s *LiveIndex) FormatLine() string { return formatLine(s.Format()) }

// Kind returns what all shards have in common (Catalog.Kind), as written by the first of them; ""
// until there is one, and for formats without kinds or that accept several.
func (s *LiveIndex) Kind() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.uniform() == nil {
		return ""
	}
	return s.kind
}

// uniform returns the format if it requires one kind, else nil. mu must be held.
func (s *LiveIndex) uniform() format.Uniform {
	u, ok := s.found.Unpacker.(format.Uniform)
	if _, mixes := s.found.Unpacker.(format.Mixer); !ok || mixes {
		return nil
	}
	return u
}

// Counts returns the current numbers.
func (s *LiveIndex) Counts() LiveIndexCounts {
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
