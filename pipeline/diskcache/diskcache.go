package diskcache

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

// Storage is a cache over another storage. It is a storage.Storage that takes Hints.
type Storage struct {
	config  Config
	below   storage.Storage
	caps    storage.Caps // of below
	dir     *directory
	room    room
	scratch *buffers // for pages of which only a part is wanted
	buffers *buffers // for data from below
	readers *workers // check sums and pages
	writers *workers
	ahead   *ahead
	keeper  *keeper
	seals   *seals
	plain   sync.Map // of storage.Object: *plainShard
	health  health
	counts  counts
	claims  claims
	ops     sync.Pool // of *op
	pieces  sync.Pool // of *piece
	// unwritten is how many bytes have arrived and wait for the disk.
	unwritten atomic.Int64

	promoting sync.Mutex
	urgent    []*flight // that readers began to wait for before they were due

	mu       sync.Mutex
	quiet    sync.Cond // signals that underWay is 0
	underWay int       // reads and flights that have not ended
	closed   bool
	streams  map[*stream]struct{} // the open ones
	objects  map[storage.Object]*object
	mine     map[key]struct{} // what this mount has read or listed, and so uses
	idle     list.List        // of *object, least recently used first
	open     int              // objects with open files
}

var (
	_ storage.Storage = (*Storage)(nil)
	_ storage.Hints   = (*Storage)(nil)
)

// Caps implements storage.Storage. Objects are mapped in the cache's directory, never below.
// Streams and hints go through the cache.
func (s *Storage) Caps() storage.Caps {
	c := storage.Caps{
		StatStable: s.caps.StatStable, Omitted: s.caps.Omitted,
		OpenSequential: s.OpenSequential, Uncached: s.Uncached, Hints: s,
		Status: s.caps.Status, AdjustProfile: s.caps.AdjustProfile, HeldBytes: s.caps.HeldBytes,
	}
	if s.seals.files != nil && s.seals.files.Caps().Mapper != nil {
		c.Mapper = s
	}
	return c
}

// counts are the counters of Stats.
type counts struct {
	hits, misses, bad, written atomic.Uint64 // pages
	reads                      atomic.Uint64 // below
}

const (
	// scratchBytes is the memory for pieces that wait for a disk: 256 of the largest.
	scratchBytes = 16 << 20
	// numWriters is enough for any disk: writers copy into the page cache, and wait only when it is
	// full of dirty pages.
	numWriters = 2
	// leastReaders continue while some wait for files to be opened or sums to be read.
	leastReaders = 4
)

// Open opens a cache, and creates its directory if it does not exist. Errors are about the
// configuration, or about a directory that must not be used.
func Open(config Config) (*Storage, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	config.fillIn()
	dir, err := openDirectory(config.disk, config.Dir, config.Log)
	if err != nil {
		return nil, err
	}
	s := &Storage{
		config:  config,
		below:   config.Below,
		dir:     dir,
		scratch: newBuffers(scratchBytes),
		buffers: newBuffers(config.BufferBytes),
		readers: newWorkers(max(leastReaders, runtime.GOMAXPROCS(0))),
		writers: newWorkers(numWriters),
		streams: map[*stream]struct{}{},
		objects: map[storage.Object]*object{},
		mine:    map[key]struct{}{},
	}
	s.caps = s.below.Caps()
	s.quiet.L = &s.mu
	s.health.init(config.Clock, config.Log, dir.path)
	s.keeper = newKeeper(s)
	s.room = room{
		bound: config.BoundBytes, share: config.ShareBytes, reserve: config.ReserveBytes, clock: config.Clock,
		space: dir.space, punches: dir.punches, count: s.keeper.count, countNow: s.keeper.countNow, clean: s.keeper.clean,
	}
	s.ahead = newAhead(s)
	s.seals = newSeals(s)
	s.keeper.start()
	s.ahead.start()
	return s, nil
}

// List implements storage.Storage. Objects that are visited count as in use.
func (s *Storage) List(ctx context.Context, match func(path string, isDir bool) bool, visit func(storage.Object) error) error {
	return s.below.List(ctx, match, func(o storage.Object) error {
		s.Claim(o)
		return visit(o)
	})
}

// Claim marks objects as used by this mount: they are not removed to make room, here or, as far as
// other processes can tell, elsewhere. Listing or reading an object does the same.
func (s *Storage) Claim(objects ...storage.Object) {
	for _, o := range objects {
		if id, ok := s.identify(o); ok {
			k := keyOf(id, o.SizeBytes)
			s.mu.Lock()
			s.mine[k] = struct{}{}
			s.mu.Unlock()
		}
	}
}

// Stat implements storage.Storage.
func (s *Storage) Stat(ctx context.Context, path string) (storage.Object, error) {
	return s.below.Stat(ctx, path)
}

// Uncached implements storage.Caps: reads of the result bypass the cache, and also the page cache
// if the storage below can do that.
func (s *Storage) Uncached() (storage.Storage, error) {
	if uncached := s.caps.Uncached; uncached != nil {
		if past, err := uncached(); past != nil || err != nil {
			return past, err
		}
	}
	return lent{s.below}, nil
}

// lent is a storage whose Close does nothing.
type lent struct{ storage.Storage }

func (lent) Close() error { return nil }

// Submit implements storage.Storage.
func (s *Storage) Submit(reads []*storage.Read) {
	if !s.begin(len(reads)) {
		s.below.Submit(reads) // it fails them: it is closed
		return
	}
	s.ahead.read()
	reads = s.seals.submit(reads)
	tasks := make([]task, len(reads))
	for i, r := range reads {
		tasks[i] = s.newOp(r)
	}
	s.readers.add(tasks...)
}

// begin counts n operations that Close waits for. It returns false after Close.
func (s *Storage) begin(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.underWay += n
	return true
}

// end counts the end of one of them.
func (s *Storage) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underWay--
	if s.underWay == 0 {
		s.quiet.Broadcast()
	}
}

// Close waits for the reads in progress and for data that is to be written, frees what is in the
// share, and closes the wrapped storage. Streams end. It is idempotent.
func (s *Storage) Close() error {
	s.ahead.close()
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	s.endStreams()
	s.mu.Lock()
	for s.underWay > 0 {
		s.quiet.Wait()
	}
	s.mu.Unlock()
	if first {
		s.seals.close()
		s.keeper.close()
		s.readers.close()
		s.writers.close()
		s.emptyShare()
		s.mu.Lock()
		s.closeIdle(0)
		s.mu.Unlock()
		s.dir.close()
	}
	return s.below.Close()
}

// Config configures a cache. Dir, Below, Engine, Identify and BoundBytes are required.
type Config struct {
	Dir    string          // created if it does not exist
	Below  storage.Storage // the storage to cache; closed with the cache
	Engine uring.Engine    // reads the cache's files; the caller closes it after the cache
	// Identify names the bytes of a listed object. If it can't, the object is not cached. It must
	// not wait, and may be called concurrently.
	Identify func(storage.Object) (Identity, bool)

	// BoundBytes is how much disk space the directory may take, in blocks, for all objects of all
	// processes together.
	BoundBytes int64
	// ShareBytes is the part of it for data that passes through: pages that are freed when they are
	// passed. 0 if the bound holds everything.
	ShareBytes int64
	// ReserveBytes is how much of the file system is left free.
	ReserveBytes int64

	// BufferBytes bounds the memory for data that has arrived and is not written yet.
	BufferBytes int64
	// MaxReadBytes is the size of the largest read below, a multiple of 4096.
	MaxReadBytes int64
	// GapBytes is the size up to which cached pages between missing ones are read again, so that
	// one read fetches all.
	GapBytes int64
	// MaxFiles is how many objects may be open at a time. Each takes two descriptors, within the
	// cache's part of the process's limit (storage.DescriptorShare).
	MaxFiles int

	Log *slog.Logger // nil for none
	// Clock is for tests; the zero value is the system's.
	Clock Clock

	disk    disk // nil: the kernel
	noSeals bool // for tests of reads page by page
}

// Clock returns the time, and timers.
type Clock struct {
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
}

// DefaultConfig returns the defaults. 8 MiB is the size of a part of the fill, at which a bucket
// serves at full speed. 64 MiB of buffers hold 170 chunks of 337 KB in transit.
func DefaultConfig() Config {
	return Config{BufferBytes: 64 << 20, MaxReadBytes: 8 << 20, MaxFiles: 2048}
}

// Validate reports all problems at once.
func (c *Config) Validate() error {
	var errs []error
	bad := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(c.Dir == "", "dir must not be empty")
	bad(c.Below == nil, "below must be given")
	bad(c.Engine == nil, "engine must be given")
	bad(c.Identify == nil, "identify must be given")
	bad(c.BoundBytes <= 0, "bound (%d bytes) must be > 0", c.BoundBytes)
	bad(c.ShareBytes < 0 || c.ShareBytes > c.BoundBytes, "share (%d bytes) must be >= 0 and at most the bound (%d bytes)", c.ShareBytes, c.BoundBytes)
	bad(c.ReserveBytes < 0, "reserve (%d bytes) must be >= 0", c.ReserveBytes)
	bad(c.BufferBytes < 1, "buffer (%d bytes) must be > 0", c.BufferBytes)
	bad(c.MaxReadBytes < pageBytes || c.MaxReadBytes%pageBytes != 0, "max_read (%d bytes) must be a multiple of %d", c.MaxReadBytes, pageBytes)
	bad(c.GapBytes < 0, "gap (%d bytes) must be >= 0", c.GapBytes)
	bad(c.MaxFiles < 1, "max_files (%d) must be > 0", c.MaxFiles)
	return errors.Join(errs...)
}

// fillIn sets the defaults of optional fields.
func (c *Config) fillIn() {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Clock.Now == nil {
		c.Clock.Now = time.Now
	}
	if c.Clock.After == nil {
		c.Clock.After = time.After
	}
	if c.disk == nil {
		c.disk = kernel{}
	}
	c.MaxFiles = max(1, storage.CacheShare.Of(2, 2*c.MaxFiles)/2)
}

// Stats is a snapshot for status.
type Stats struct {
	Dir        string  `json:"dir"`
	State      string  `json:"state"`            // on; full: nothing is added for a while; off: not used by this mount any more
	Reason     string  `json:"reason,omitempty"` // why it is not on
	Bytes      int64   `json:"bytes"`            // on the disk, all objects of all processes, as far as is known
	Bound      int64   `json:"bound"`            // the most that they may take
	ShareBytes int64   `json:"share_bytes"`      // the part for what passes through, of this mount
	Hits       uint64  `json:"hits"`             // pages that were read from the cache, or mapped
	Misses     uint64  `json:"misses"`           // pages that were wanted and missing
	BadPages   uint64  `json:"bad_pages"`        // the part of these that did not match their sums
	Written    uint64  `json:"written"`          // pages
	Unwritten  int64   `json:"unwritten_bytes"`  // have arrived and wait for the disk
	Reads      uint64  `json:"reads"`            // by the storage below
	Fill       float64 `json:"fill"`             // fraction of what is to be filled
	Sealed     int     `json:"sealed_objects"`   // complete, and read like local files
}

// Stats returns a snapshot.
func (s *Storage) Stats() Stats {
	used, shared, _ := s.room.usage()
	state, reason := s.health.state()
	return Stats{
		Dir: s.dir.path, State: state, Reason: reason,
		Bytes: used, Bound: s.room.boundBytes(), ShareBytes: shared,
		Hits: s.counts.hits.Load(), Misses: s.counts.misses.Load(), BadPages: s.counts.bad.Load(),
		Written: s.counts.written.Load(), Unwritten: s.unwritten.Load(), Reads: s.counts.reads.Load(), Fill: s.ahead.filled(), Sealed: s.seals.count(),
	}
}

// SetBound sets how much the directory may take from now on. What it holds beyond that stays,
// except objects that no mount uses.
func (s *Storage) SetBound(bytes int64) { s.room.setBound(bytes) }
