package fetch

import (
	"errors"
	"math"
	"time"

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
	never      map[int]bool // shards that are not mapped, or not any more
	// patience is how long pieces wait for their shard to be opened and mapped,
	// before they are read.
	patience time.Duration
	warned   bool // of a shard that a program has open for writing
	// After a piece that the page cache did not hold some are not tried, twice as
	// many each time: where all is cold, files are not opened to find that out.
	skip, skips int
}

// mappedShard is a shard in the address space, or on its way there. All is guarded
// by Fetcher.mu, but the mapping, which stays while there are users.
type mappedShard struct {
	shard   int
	mapping storage.Mapping // nil: it is being mapped
	waiting []*load         // that are mapped when the shard is
	late    bool            // they don't wait any more
	timer   *time.Timer     // makes it late
	users   int             // pieces that are mapped, or about to be
}

const (
	// fewSkips is for when a shard can't be mapped: others may be, soon.
	fewSkips = 8
	// maxSkips bounds how late it is seen that data has become hot.
	maxSkips = 64
	// mapPatience is how long an opening may take that is worth waiting for: a piece
	// that has been mapped costs less from then on than one that was read.
	mapPatience = 20 * time.Millisecond
	// sweepShare: one of so many of the bytes is unmapped at a time. A sweep
	// looks at all pieces.
	sweepShare = 32
	// sweepRounds: pieces that share blocks free nothing one by one.
	sweepRounds = 4
)

func (f *Fetcher) newMaps() maps {
	m := maps{
		least: storage.MapBlockBytes, limit: f.config.MemoryBytes, tableLimit: f.limits.cache / 4, patience: mapPatience,
		shards: map[int]*mappedShard{}, never: map[int]bool{},
	}
	if mapper, ok := f.storage.(storage.Mapper); ok && mapper.Maps() {
		m.mapper = mapper
	}
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
			if bytes <= 0 && tables <= 0 || s.Live.Load() > live || !s.Pins.Kill() {
				kept = append(kept, s)
				continue
			}
			bytes -= int64(len(s.Bytes))
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

// forgotten is for segment.Live: whatever is added to it, nothing is live.
const forgotten = -1 << 60

// forget takes a mapped entry out of the slots; its segment goes with a sweep.
func (f *Fetcher) forget(e *entry) {
	if f.slots.at(e.piece) != e {
		return
	}
	if live := e.liveBytes(); live > 0 && live < int64(len(e.seg.Bytes)) {
		f.cache.remember(e)
	}
	e.seg.Live.Store(forgotten)
	f.slots.set(e.piece, nil)
}

// unmap takes pages out of the address space. It is called with mu held, and
// lets go of it: others go on while the processors are told.
func (f *Fetcher) unmap(victims []*segment) {
	f.mu.Unlock()
	freed := int64(0)
	for _, s := range victims {
		freed += s.shard.mapping.Drop(s.off, int64(len(s.Bytes)))
	}
	f.mu.Lock()
	f.maps.bytes -= freed
	for _, s := range victims {
		s.shard.users--
	}
}

// mapShard has a shard opened and mapped, and what waits for it mapped then. It
// waits for nothing.
func (f *Fetcher) mapShard(s *mappedShard) {
	f.running.Add(2)
	f.mu.Lock()
	s.timer = time.AfterFunc(f.maps.patience, func() {
		defer f.running.Done()
		f.mapsLate(s)
	})
	f.mu.Unlock()
	object := f.index.Shard(s.shard).Object
	f.maps.mapper.Map(object, func(m storage.Mapping, err error) {
		if errors.Is(err, storage.ErrTooManyMappings) && f.closeIdleMappings() {
			f.maps.mapper.Map(object, func(m storage.Mapping, err error) { f.shardMapped(s, m, err) })
			return
		}
		f.shardMapped(s, m, err)
	})
}

// mapsLate reads what waits for a shard whose opening takes long: it may never end,
// and the file may be open for reads.
func (f *Fetcher) mapsLate(s *mappedShard) {
	var t todo
	f.mu.Lock()
	if s.mapping == nil {
		s.late = true
		f.readWaiting(s, &t)
	}
	f.mu.Unlock()
	f.carryOut(&t)
}

// readWaiting reads what waits for a shard. It is called with mu held.
func (f *Fetcher) readWaiting(s *mappedShard, t *todo) {
	waiting := s.waiting
	s.waiting = nil
	s.users -= len(waiting)
	for _, ld := range waiting {
		f.readInstead(ld, t)
	}
}

// shardMapped goes on with what waits for a shard that has been mapped, or can't
// be. It is called on a goroutine of the storage.
func (f *Fetcher) shardMapped(s *mappedShard, m storage.Mapping, err error) {
	defer f.running.Done()
	var t todo
	warn := false
	f.mu.Lock()
	if s.timer.Stop() {
		f.running.Done()
	}
	s.late = false
	if err == nil {
		s.mapping = m
		t.maps, s.waiting = s.waiting, nil
		warn = m.OpenForWriting() && !f.maps.warned
		f.maps.warned = f.maps.warned || warn
	} else {
		delete(f.maps.shards, s.shard) // it may be possible later
		if errors.Is(err, storage.ErrNotMapped) {
			f.maps.never[s.shard] = true
		}
		f.maps.skip = fewSkips
		f.readWaiting(s, &t)
	}
	f.mu.Unlock()
	if warn {
		f.log.Warn("a program has a shard open for writing: what it stores through a mapping of its own (mmap) may be read without being noticed", "shard", f.index.Shard(s.shard).Object.Path)
	}
	f.carryOut(&t)
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
		if s.users == 0 && s.mapping != nil {
			delete(m.shards, shard)
			idle = append(idle, s)
		}
	}
	return idle
}

// refuse makes a shard one that is not mapped, and forgets what is. It is called
// with mu held.
func (f *Fetcher) refuse(shard int) {
	f.maps.never[shard] = true
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
