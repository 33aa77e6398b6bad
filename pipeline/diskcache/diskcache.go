package diskcache

import (
	"container/list"
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Storage is a cache over another storage. It is a storage.Storage, and a Planner.
type Storage struct {
	config  Config
	below   storage.Storage
	caps    storage.Caps // of below
	dir     *directory
	room    room
	scratch *buffers // for pages of which a part is wanted
	buffers *buffers // for what comes from below
	readers *workers // look at sums, check pages
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
	// unwritten are bytes that have come and wait for the disk.
	unwritten atomic.Int64

	hurried sync.Mutex
	urgent  []*flight // that readers came to wait for before they were due

	mu       sync.Mutex
	quiet    sync.Cond // underWay has become 0
	underWay int       // reads that are not done, and flights that have not ended
	closed   bool
	streams  map[*stream]struct{} // that are open
	objects  map[storage.Object]*object
	mine     map[key]struct{} // what this mount has read or listed: it is in use
	idle     list.List        // of *object, the one used longest ago first
	open     int              // objects whose files are open
}

var (
	_ storage.Storage = (*Storage)(nil)
	_ storage.Planner = (*Storage)(nil)
	_ storage.Keeper  = (*Storage)(nil)
)

// Caps implements storage.Storage. Objects are mapped in the cache's directory, never below, and
// streams and plans go through the cache.
func (s *Storage) Caps() storage.Caps {
	c := storage.Caps{
		StatStable: s.caps.StatStable, Omitted: s.caps.Omitted,
		OpenSequential: s.OpenSequential, Uncached: s.Uncached, Planner: s, Keeper: s,
		Status: s.caps.Status, AdjustProfile: s.caps.AdjustProfile, HeldBytes: s.caps.HeldBytes,
	}
	if s.seals.files != nil && s.seals.files.Caps().Mapper != nil {
		c.Mapper = s
	}
	return c
}

// counts are what Stats shows.
type counts struct {
	hits, misses, bad, written atomic.Uint64 // pages
	reads                      atomic.Uint64 // below
}

const (
	// scratchBytes is for pieces that wait for a disk: 256 of the largest.
	scratchBytes = 16 << 20
	// numWriters is enough for any disk: they copy into the page cache, and wait only where
	// that is full of what is not written yet.
	numWriters = 2
	// leastReaders go on when some wait, for files to be opened or sums to be read.
	leastReaders = 4
)

// Open opens a cache, and makes its directory where there is none. Errors are those of
// the configuration, and of directories that are not to be used.
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
		readers: newCrew(max(leastReaders, runtime.GOMAXPROCS(0))),
		writers: newCrew(numWriters),
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

// List implements storage.Storage. What is visited counts as in use.
func (s *Storage) List(ctx context.Context, match func(path string, isDir bool) bool, visit func(storage.Object) error) error {
	return s.below.List(ctx, match, func(o storage.Object) error {
		s.Claim(o)
		return visit(o)
	})
}

// Claim says that objects are this mount's: they are not removed to make room, here or, as
// far as others can tell, elsewhere. Listing an object and reading it do that, too.
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

// Uncached implements storage.Caps: reads of the result pass by the cache, and bypass
// the page cache where the storage below can do that.
func (s *Storage) Uncached() (storage.Storage, error) {
	if uncached := s.caps.Uncached; uncached != nil {
		if past, err := uncached(); past != nil || err != nil {
			return past, err
		}
	}
	return lent{s.below}, nil
}

// lent is a storage that stays open.
type lent struct{ storage.Storage }

func (lent) Close() error { return nil }

// Submit implements storage.Storage.
func (s *Storage) Submit(reads []*storage.Read) {
	if !s.begin(len(reads)) {
		s.below.Submit(reads) // it says that it is closed
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

// begin counts n things that Close waits for. After Close it says no.
func (s *Storage) begin(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.underWay += n
	return true
}

// end is the end of one of them.
func (s *Storage) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underWay--
	if s.underWay == 0 {
		s.quiet.Broadcast()
	}
}

// Close waits for the reads that are under way, and for what is to be written, frees what
// is in the share, and closes the wrapped storage. Streams end. It is idempotent.
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
