package fetch

import (
	"errors"
	"math"
	"sync"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// maps are the shards that are mapped, and the pieces of them that may be
// touched: each is a segment, that costs nothing of the budget but its tables.
// All but the mapper and the limits is guarded by Fetcher.mu.
type maps struct {
	mapper     storage.Mapper // nil: nothing is mapped
	least      int64          // bytes of a piece: a smaller one is read sooner than mapped
	limit      int64          // of bytes
	trims      bool           // not all fits into limit
	tableLimit int64
	shards     map[int]*mappedShard
	segs       []*segment   // oldest first
	bytes      int64        // mapped now
	coming     int64        // at most so many are about to be
	tables     int64        // of the pieces, coming ones included
	changed    map[int]bool // shards that are not mapped any more
	// After a piece that the page cache did not hold some are not tried, twice as
	// many each time: where all is cold, files are not opened to find that out.
	skip, skips int
}

// mappedShard is a shard in the address space, from when it is first wanted.
type mappedShard struct {
	shard   int
	once    sync.Once // makes mapping, or err
	mapping storage.Mapping
	err     error
	users   int // pieces that are mapped, or about to be; under Fetcher.mu
}

const (
	// fewSkips is for when a shard can't be mapped: others may be, soon.
	fewSkips = 8
	// maxSkips bounds how late it is seen that data has become hot.
	maxSkips = 64
	// sweepShare: one of so many of the bytes is unmapped at a time. A sweep
	// looks at all pieces.
	sweepShare = 32
	// sweepRounds: pieces that share blocks free nothing one by one.
	sweepRounds = 4
)

func (f *Fetcher) newMaps() maps {
	m := maps{least: storage.MapBlockBytes, limit: f.config.MemoryBytes, tableLimit: f.limits.cache / 4, shards: map[int]*mappedShard{}, changed: map[int]bool{}}
	m.mapper, _ = f.storage.(storage.Mapper)
	m.trims = f.held.bytes > m.limit
	return m
}

// evictions is what segment.seen is compared with.
func (m *maps) evictions() uint64 {
	if m.mapper == nil {
		return 0
	}
	return m.mapper.Evictions()
}

func (m *maps) fits(bytes, tables int64) bool {
	return m.bytes+m.coming+bytes <= m.limit && m.tables+tables <= m.tableLimit
}

// reserve finds room for a piece's bytes and tables, for which others may have
// to go, and counts them as coming. It is called with mu held, and lets go of it.
func (f *Fetcher) reserve(bytes, tables int64) bool {
	m := &f.maps
	for range sweepRounds {
		if m.fits(bytes, tables) {
			break
		}
		bytesOver, tablesOver := m.bytes+m.coming+bytes-m.limit, m.tables+tables-m.tableLimit
		if bytesOver > 0 {
			bytesOver = max(bytesOver, m.limit/sweepShare)
		}
		if tablesOver > 0 {
			tablesOver = max(tablesOver, m.tableLimit/sweepShare)
		}
		victims := f.sweep(bytesOver, tablesOver, math.MaxInt64)
		if len(victims) == 0 {
			return false
		}
		f.unmap(victims)
	}
	if !m.fits(bytes, tables) {
		return false
	}
	m.coming += bytes
	m.tables += tables
	return true
}

// sweep takes about so many bytes, and tables, of pieces out of the maps, for
// unmap: those of which all has gone out, then, if their records' live bytes may
// be up to most, the oldest.
func (f *Fetcher) sweep(bytes, tables, most int64) (victims []*segment) {
	m := &f.maps
	for _, live := range [...]int64{0, most} {
		kept := m.segs[:0]
		for _, s := range m.segs {
			if bytes <= 0 && tables <= 0 || s.live.Load() > live || !s.kill() {
				kept = append(kept, s)
				continue
			}
			bytes -= int64(len(s.mem))
			tables -= s.tables
			for _, e := range s.entries {
				f.forget(e)
			}
			m.tables -= s.tables
			f.cache.tables -= s.tables
			s.entries, s.tables = nil, 0
			victims = append(victims, s)
		}
		clear(m.segs[len(kept):])
		m.segs = kept
	}
	return victims
}

// forgotten is for segment.live: whatever is added to it, nothing is live.
const forgotten = -1 << 60

// forget takes a mapped entry out of the slots; its segment goes with a sweep.
func (f *Fetcher) forget(e *entry) {
	if f.slots.at(e.piece) != e {
		return
	}
	if live := e.liveBytes(); live > 0 && live < int64(len(e.seg.mem)) {
		f.cache.remember(e)
	}
	e.seg.live.Store(forgotten)
	f.slots.set(e.piece, nil)
}

// unmap takes pages out of the address space. It is called with mu held, and
// lets go of it: others go on while the processors are told.
func (f *Fetcher) unmap(victims []*segment) {
	f.mu.Unlock()
	freed := int64(0)
	for _, s := range victims {
		freed += s.shard.mapping.Drop(s.off, int64(len(s.mem)))
	}
	f.mu.Lock()
	f.maps.bytes -= freed
	for _, s := range victims {
		s.shard.users--
	}
}

// mapShard gives a shard's mapping, one user more, or nil. It is called without
// mu.
func (f *Fetcher) mapShard(shard int) *mappedShard {
	for range 2 {
		f.mu.Lock()
		s := f.maps.shards[shard]
		if s == nil {
			s = &mappedShard{shard: shard}
			f.maps.shards[shard] = s
		}
		s.users++
		f.mu.Unlock()
		s.once.Do(func() { s.mapping, s.err = f.maps.mapper.Map(f.index.Shard(shard).Object) })
		if s.err == nil {
			return s
		}
		f.mu.Lock()
		if f.maps.shards[shard] == s {
			delete(f.maps.shards, shard) // it may be possible later
		}
		f.mu.Unlock()
		if !errors.Is(s.err, storage.ErrTooManyMappings) || !f.closeIdleMappings() {
			return nil
		}
	}
	return nil
}

// closeIdleMappings closes the mappings of shards without pieces, and if there
// are none those of which all has gone out. It says whether it found some.
func (f *Fetcher) closeIdleMappings() bool {
	f.mu.Lock()
	idle := f.maps.takeIdle()
	if len(idle) == 0 {
		f.unmap(f.sweep(math.MaxInt64, 0, 0))
		idle = f.maps.takeIdle()
	}
	f.mu.Unlock()
	for _, s := range idle {
		if err := s.mapping.Close(); err != nil {
			f.log.Warn("a mapping stays", "error", err)
		}
	}
	return len(idle) > 0
}

// takeIdle takes out the shards that have no users.
func (m *maps) takeIdle() (idle []*mappedShard) {
	for shard, s := range m.shards {
		if s.users == 0 {
			delete(m.shards, shard)
			idle = append(idle, s)
		}
	}
	return idle
}

// refuse makes a shard one that is not mapped, and forgets what is. It is called
// with mu held.
func (f *Fetcher) refuse(shard int) {
	f.maps.changed[shard] = true
	for _, s := range f.maps.segs {
		if s.shard.shard == shard {
			for _, e := range s.entries {
				f.forget(e)
			}
		}
	}
}

// closeMaps unmaps everything. A shard of which a loan still pins something is
// left to it. It is called with mu held, when nothing runs.
func (f *Fetcher) closeMaps() error {
	m := &f.maps
	f.unmap(f.sweep(math.MaxInt64, math.MaxInt64, math.MaxInt64))
	var errs []error
	for _, s := range m.takeIdle() {
		errs = append(errs, s.mapping.Close())
	}
	return errors.Join(errs...)
}
