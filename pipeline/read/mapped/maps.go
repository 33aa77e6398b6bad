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

// Config configures what is mapped, and how much at a time.
type Config struct {
	Mapper storage.Mapper // nil: nothing is mapped
	// Object returns the file of a shard. It may be called by any goroutine.
	Object func(shard int) storage.Object
	// LimitBytes limits how much is mapped at a time, TableLimitBytes how much the owner's tables
	// of mapped pieces take.
	LimitBytes, TableLimitBytes int64
	// AllBytes is how much may be requested altogether. If that is more than the limit, what the
	// kernel maps in addition to a piece is unmapped.
	AllBytes int64
	// LeastBytes is the minimum size of a piece: a smaller one is read faster than mapped.
	LeastBytes int64
	// Patience is how long pieces wait for their shard to be opened and mapped before they are
	// refused.
	Patience time.Duration
	Log      *slog.Logger
}

// Patience is how long it is worth waiting for a file to be opened: from then on, a mapped piece
// costs less than one that was read.
const Patience = 20 * time.Millisecond

// Owner requests pieces, has the tables of their records, and reads what is not mapped. Maps calls
// it with no lock held, from any goroutine.
type Owner interface {
	// Mapped answers a request: the piece is a region now, pinned once. The owner takes over the
	// pin.
	Mapped(piece int, r *Region)
	// Refused answers requests: these pieces have to be read. It does not wait.
	Refused(pieces []int)
	// Forget makes the owner drop its tables of regions: when it returns, no reader finds these
	// regions through them. Regions may be pinned, have no table yet, or none any more; then
	// nothing has to be done.
	Forget(regions []*Region)
	// Lost returns the error to report for a record of a piece, with that index in it, whose bytes
	// can't be trusted because of err.
	Lost(piece, record int, err error) error
}

// Request asks for a piece: a range of a shard, not empty. There is at most one request for a piece
// at a time.
type Request struct {
	Piece, Shard           int
	OffsetBytes, SizeBytes int64
	TableBytes             int64 // of the owner's table of it
}

// Work is what requests have left to be done by their caller, without a lock. The zero value is
// empty.
type Work struct {
	shards []*shard // to be opened
	pieces []taken  // to be populated
}

// taken is an accepted request, a user of its shard.
type taken struct {
	Request
	of *shard
}

// Maps is the shards that are mapped, and their regions that may be touched. Its methods may be
// called concurrently; the package comment lists the locks.
type Maps struct {
	config Config
	owner  Owner
	// limit and tableLimit are Config's, until Allow changes them.
	limit, tableLimit atomic.Int64

	running sync.WaitGroup // files being opened, and the timers that make them late

	mu      sync.Mutex
	shards  map[int]*shard
	stale   []*shard     // mappings of copies that are gone, with users
	losses  map[int]int  // how often that happened to a shard
	regions []*Region    // oldest first
	bytes   int64        // mapped now
	coming  int64        // the maximum that is about to be mapped
	tables  int64        // of the regions, coming ones included
	never   map[int]bool // shards that are not mapped, or not any more
	warned  bool         // about a shard that a program has open for writing
	stopped bool
	// After a piece that is not in the page cache, the next ones are skipped, twice as many each
	// time: if everything is cold, files are not opened to find that out.
	skip, skips int
}

const (
	// fewSkips is for when a shard can't be mapped: others may be, soon.
	fewSkips = 8
	// maxSkips limits how late it is noticed that data is in the page cache again.
	maxSkips = 64
)

// New returns Maps in which nothing is mapped yet. Close ends them.
func New(c Config, owner Owner) *Maps {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	m := &Maps{config: c, owner: owner, shards: map[int]*shard{}, losses: map[int]int{}, never: map[int]bool{}}
	m.Allow(c.LimitBytes, c.TableLimitBytes)
	return m
}

// Allow changes Config.LimitBytes and TableLimitBytes. What exceeds them is unmapped by the next
// request, or by Shrink.
func (m *Maps) Allow(bytes, tableBytes int64) {
	m.limit.Store(bytes)
	m.tableLimit.Store(tableBytes)
}

// trims reports whether not everything fits into the limit.
func (m *Maps) trims() bool { return m.config.AllBytes > m.limit.Load() }

// Shrink unmaps what exceeds the limits and is not pinned. It calls the owner.
func (m *Maps) Shrink() {
	m.mu.Lock()
	defer m.mu.Unlock()
	bytesOver, tablesOver := m.bytes-m.limit.Load(), m.tables-m.tableLimit.Load()
	if bytesOver > 0 || tablesOver > 0 {
		m.unmap(m.sweep(bytesOver, tablesOver, math.MaxInt64))
	}
}

// Evictions returns the count that PinResident takes: it is called once before anything is pinned.
// See storage.Mapper.
func (m *Maps) Evictions() uint64 {
	if m.config.Mapper == nil {
		return 0
	}
	return m.config.Mapper.Evictions()
}

// Request asks for a piece to be mapped if it is in the page cache. true means that the owner will
// be answered once w has been done; false, that the piece has to be read. It does not wait.
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

// Cancel withdraws a request that waits for its shard to be mapped. true means that there will be
// no answer; false, that it has been given, or is about to be. It does not wait.
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

// Do does what requests have left to be done, and empties w. It may wait for system calls on open
// files, but neither for data nor for opening files.
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

// populate answers requests for pieces of mapped shards.
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

// answerNo refuses all pieces together, so that they are read together.
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
	ComingBytes int64 // about to be mapped, at most
	TableBytes  int64 // of what is mapped or about to be
	Leases      storage.LeaseStats
}

// Stats returns a snapshot.
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

// Stop refuses all requests from now on, and waits until accepted ones have been answered. It is
// separate from Close because the owner may still need Maps to act on an answer. No Do may be in
// progress.
func (m *Maps) Stop() {
	m.mu.Lock()
	m.stopped = true
	m.mu.Unlock()
	m.running.Wait()
}

// Close stops, and unmaps everything. A shard that has pinned regions stays mapped: a leak is
// better than a fault. It is called once, when nothing else is called.
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
