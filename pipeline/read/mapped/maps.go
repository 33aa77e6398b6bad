package mapped

import (
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Config says what is mapped, and how much of it at a time.
type Config struct {
	Mapper storage.Mapper // nil: nothing is mapped
	// Object is the file of a shard. It may be called by any goroutine.
	Object func(shard int) storage.Object
	// LimitBytes is how much is mapped at a time at most, TableLimitBytes how much
	// the owner's tables of mapped pieces take.
	LimitBytes, TableLimitBytes int64
	// AllBytes is how much may be asked for altogether. Where that is more than the
	// limit, what the kernel maps beside a piece along with it is unmapped.
	AllBytes int64
	// LeastBytes is the size of a piece: a smaller one is read sooner than mapped.
	LeastBytes int64
	// Patience is how long pieces wait for their shard to be opened and mapped,
	// before they are refused.
	Patience time.Duration
	Log      *slog.Logger
}

// Patience is how long an opening may take that is worth waiting for: a piece that
// has been mapped costs less from then on than one that was read.
const Patience = 20 * time.Millisecond

// Owner is who asks for pieces, has the tables of their records, and reads what is
// not mapped. Maps calls it with no lock held, from any goroutine.
type Owner interface {
	// Mapped answers a request: the piece is a region now, pinned once. The pin is
	// the owner's.
	Mapped(piece int, r *Region)
	// Refused answers requests: these pieces are to be read. It does not wait.
	Refused(pieces []int)
	// Forget has the owner drop its tables of regions: when it returns no reader
	// finds one by them. They may be pinned, have no table yet, or none any more; then
	// nothing is to be done.
	Forget(regions []*Region)
	// Lost gives the error to report for a record of a piece, counted from its first,
	// whose bytes can't be believed for err.
	Lost(piece, record int, err error) error
}

// Request is for a piece: a range of a shard, which is not empty. There is at most
// one request for a piece at a time.
type Request struct {
	Piece, Shard           int
	OffsetBytes, SizeBytes int64
	TableBytes             int64 // that the owner's table of it takes
}

// Work is what requests have left to be done, by who made them, without a lock. The
// zero value is none.
type Work struct {
	shards []*shard // to be opened
	pieces []taken  // to be populated
}

// taken is a request that was: a user of its shard.
type taken struct {
	Request
	of *shard
}

// Maps are the shards that are mapped, and the regions of them that may be touched.
// Its methods may be called concurrently; doc.go says with which locks.
type Maps struct {
	config Config
	owner  Owner
	// limit and tableLimit are Config's, until Allow changes them.
	limit, tableLimit atomic.Int64

	running sync.WaitGroup // openings, and the timers that make them late

	mu      sync.Mutex
	shards  map[int]*shard
	stale   []*shard     // mappings of copies that have gone, with users
	losses  map[int]int  // how often that happened to a shard
	regions []*Region    // oldest first
	bytes   int64        // mapped now
	coming  int64        // at most so many are about to be
	tables  int64        // of the regions, coming ones included
	never   map[int]bool // shards that are not mapped, or not any more
	warned  bool         // of a shard that a program has open for writing
	stopped bool
	// After a piece that the page cache did not hold some are not tried, twice as
	// many each time: where all is cold, files are not opened to find that out.
	skip, skips int
}

const (
	// fewSkips is for when a shard can't be mapped: others may be, soon.
	fewSkips = 8
	// maxSkips bounds how late it is seen that data has become hot.
	maxSkips = 64
)

// New gives maps of which nothing is mapped yet. Close ends them.
func New(c Config, owner Owner) *Maps {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	m := &Maps{config: c, owner: owner, shards: map[int]*shard{}, losses: map[int]int{}, never: map[int]bool{}}
	m.Allow(c.LimitBytes, c.TableLimitBytes)
	return m
}

// Allow changes Config.LimitBytes and TableLimitBytes. What is mapped beyond them goes when
// there is a request, or with Shrink.
func (m *Maps) Allow(bytes, tableBytes int64) {
	m.limit.Store(bytes)
	m.tableLimit.Store(tableBytes)
}

// trims says that not all fits into the limit.
func (m *Maps) trims() bool { return m.config.AllBytes > m.limit.Load() }

// Shrink unmaps what is beyond the limits and not pinned. It calls the owner.
func (m *Maps) Shrink() {
	m.mu.Lock()
	defer m.mu.Unlock()
	bytesOver, tablesOver := m.bytes-m.limit.Load(), m.tables-m.tableLimit.Load()
	if bytesOver > 0 || tablesOver > 0 {
		m.unmap(m.sweep(bytesOver, tablesOver, math.MaxInt64))
	}
}

// Evictions is what PinResident goes by: it is asked once before anything is
// pinned. See storage.Mapper.
func (m *Maps) Evictions() uint64 {
	if m.config.Mapper == nil {
		return 0
	}
	return m.config.Mapper.Evictions()
}

// Request asks for a piece to be mapped, if the page cache holds it. Yes means that
// the owner will be answered, once w has been done; no, that it is to be read. It
// waits for nothing.
func (m *Maps) Request(w *Work, q Request) bool {
	if m.config.Mapper == nil || q.SizeBytes < m.config.LeastBytes {
		return false
	}
	if q.blocks() > m.limit.Load() || q.TableBytes > m.tableLimit.Load() {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.shards[q.Shard]
	if m.stopped || m.never[q.Shard] || s != nil && s.late {
		return false
	}
	if m.skip > 0 {
		m.skip--
		return false
	}
	if s == nil {
		s = &shard{maps: m, number: q.Shard}
		m.shards[q.Shard] = s
		w.shards = append(w.shards, s)
	}
	s.users++
	if p := (taken{q, s}); s.mapping != nil {
		w.pieces = append(w.pieces, p)
	} else {
		s.waiting = append(s.waiting, p)
	}
	return true
}

// Cancel takes a request back that waits for its shard to be mapped. Yes means that
// there will be no answer; no, that it has been given, or is about to be. It waits
// for nothing.
func (m *Maps) Cancel(shard, piece int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.shards[shard]
	if s == nil {
		return false
	}
	i := slices.IndexFunc(s.waiting, func(p taken) bool { return p.Piece == piece })
	if i < 0 {
		return false
	}
	s.waiting = slices.Delete(s.waiting, i, i+1)
	s.users--
	return true
}

// Do does what requests have left to be done, and empties w. It may wait for system
// calls on files that are open, but neither for data nor for openings.
func (m *Maps) Do(w *Work) {
	if len(w.shards) > 0 {
		m.dropStale() // before there are others
	}
	for _, s := range w.shards {
		m.open(s)
	}
	m.populate(w.pieces)
	clear(w.shards)
	clear(w.pieces)
	w.shards, w.pieces = w.shards[:0], w.pieces[:0]
}

// populate answers requests for pieces of shards that are mapped.
func (m *Maps) populate(pieces []taken) {
	var refused []taken
	for _, p := range pieces {
		if r := m.region(p); r != nil {
			m.owner.Mapped(p.Piece, r)
		} else {
			refused = append(refused, p)
		}
	}
	m.answerNo(refused)
}

// answerNo has pieces read, all together, so that their reads are.
func (m *Maps) answerNo(refused []taken) {
	if len(refused) == 0 {
		return
	}
	pieces := make([]int, len(refused))
	for i, p := range refused {
		pieces[i] = p.Piece
	}
	m.owner.Refused(pieces)
}

// Stats is a snapshot.
type Stats struct {
	Bytes       int64 // mapped
	ComingBytes int64 // that are about to be, at most
	TableBytes  int64 // of what is mapped or about to be
	Leases      storage.LeaseStats
}

// Stats gives one.
func (m *Maps) Stats() Stats {
	var s Stats
	if m.config.Mapper != nil {
		s.Leases = m.config.Mapper.LeaseStats()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s.Bytes, s.ComingBytes, s.TableBytes = m.bytes, m.coming, m.tables
	return s
}

// Stop turns down all requests from now on, and waits until those that were taken
// have been answered. What an owner does for an answer may need it to be there still.
// No Do may be under way.
func (m *Maps) Stop() {
	m.mu.Lock()
	m.stopped = true
	m.mu.Unlock()
	m.running.Wait()
}

// Close stops, and unmaps everything. A shard of which something is still pinned is
// left to who has pinned it: a leak is better than a fault. It is called once, when
// nobody calls anything else.
func (m *Maps) Close() error {
	m.Stop()
	m.mu.Lock()
	m.unmap(m.sweep(math.MaxInt64, math.MaxInt64, math.MaxInt64))
	idle := m.takeIdle()
	m.mu.Unlock()
	var errs []error
	for _, s := range idle {
		errs = append(errs, s.mapping.Close())
	}
	return errors.Join(errs...)
}
