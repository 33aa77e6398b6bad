package mapped

import (
	"errors"
	"math"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Region is a mapped piece: its bytes may be touched while it is pinned, under storage.Faulted. In
// Live the owner counts the bytes of its undelivered records; a forgotten region has a negative
// count.
type Region struct {
	budget.Memory
	of    *shard
	seen  atomic.Uint64 // Evictions when the page cache held all of it
	piece int
	off   int64
	table int64 // bytes of the owner's table
}

// Piece returns the number in its request.
func (r *Region) Piece() int { return r.piece }

// PinResident pins a region that a reader has found, as Pins.Pin does, unless it is not entirely in
// the page cache any more: touching it would then wait for a disk, and hold a processor. Such a
// region is forgotten. evictions is a previous result of Maps.Evictions.
func (r *Region) PinResident(evictions uint64) bool {
	if !r.Pins.Pin() {
		return false
	}
	return r.seen.Load() == evictions || r.look(evictions)
}

// look reports whether the page cache holds all of a pinned region, and unpins it if not.
func (r *Region) look(evictions uint64) bool {
	if r.of.mapping.Resident(r.off, int64(len(r.Bytes))) {
		r.seen.Store(evictions)
		return true
	}
	r.of.maps.forget([]*Region{r})
	r.Pins.Unpin()
	return false
}

// Verify runs check, which reads a pinned region and reports whether its bytes are good. If they
// are not, it looks for the cause: it returns ErrChanged's error, after which nothing of the shard
// is mapped any more, ErrReadAgain's, after which it may be mapped again, or ErrFault's. nil means
// that the file is unchanged: check saw its content, good or bad.
func (r *Region) Verify(check func() (good bool)) error {
	good := false
	gone := storage.Faulted(func() { good = check() })
	if good && !gone {
		return nil
	}
	err := r.of.mapping.Check()
	if err == nil && gone {
		err = r.fault()
	}
	r.of.maps.distrust(r.of, err)
	return err
}

// ErrFault is wrapped if mapped memory can't be read, although the file is unchanged.
var ErrFault = errors.New("its mapped bytes can't be read: its disk may be failing")

// fault returns the error for a region whose memory is gone.
func (r *Region) fault() error {
	if err := r.of.mapping.Lost(); err != nil {
		return err
	}
	return &storage.Error{Object: r.of.maps.config.Object(r.of.number).Path, OffsetBytes: r.off, SizeBytes: int64(len(r.Bytes)), Err: ErrFault}
}

const (
	// One sweepShare-th of the bytes is unmapped at a time. A sweep looks at all regions.
	sweepShare = 32
	// sweepRounds is more than one because regions that share blocks free nothing one by one.
	sweepRounds = 4
)

// blocks returns the maximum that is mapped for a piece: whole blocks.
func (q *Request) blocks() int64 {
	const block = storage.MapBlockBytes
	return (q.OffsetBytes+q.SizeBytes+block-1)/block*block - q.OffsetBytes/block*block
}

// region populates a piece of a mapped shard, and pins it. It returns nil if the page cache does
// not hold it, or there is no room; then the piece no longer counts as a user.
func (m *Maps) region(p taken) *Region {
	most := p.blocks()
	if !m.reserve(p, most) {
		return nil
	}
	r := &Region{of: p.of, piece: p.Piece, off: p.OffsetBytes, table: p.TableBytes}
	r.seen.Store(m.config.Mapper.Evictions()) // before the page cache is asked
	r.Pins.Reset(1)
	added, ok := p.of.mapping.Populate(p.OffsetBytes, p.SizeBytes)
	if ok && m.trims() {
		p.of.mapping.Trim(p.OffsetBytes, p.SizeBytes)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.coming -= most
	m.bytes += added
	if !ok {
		m.tables -= p.TableBytes
		p.of.users--
		m.skips = min(max(2*m.skips, 1), maxSkips)
		m.skip = m.skips
		return nil
	}
	m.skip, m.skips = 0, 0
	end := p.OffsetBytes + p.SizeBytes
	r.Bytes = p.of.mapping.Bytes()[p.OffsetBytes:end:end]
	m.regions = append(m.regions, r)
	return r
}

// reserve finds room for a piece, for which at most most bytes will be mapped, and counts these and
// its table as coming. Others may be unmapped for it. If there is no room, because everything is
// pinned at the moment, the piece no longer counts as a user.
func (m *Maps) reserve(p taken, most int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	limit, tableLimit := m.limit.Load(), m.tableLimit.Load()
	for range sweepRounds {
		bytesOver := m.bytes + m.coming + most - limit
		tablesOver := m.tables + p.TableBytes - tableLimit
		if bytesOver <= 0 && tablesOver <= 0 {
			break
		}
		if bytesOver > 0 {
			bytesOver = max(bytesOver, limit/sweepShare)
		}
		if tablesOver > 0 {
			tablesOver = max(tablesOver, tableLimit/sweepShare)
		}
		victims := m.sweep(bytesOver, tablesOver, math.MaxInt64)
		if len(victims) == 0 {
			break
		}
		m.unmap(victims)
	}
	if m.bytes+m.coming+most > limit || m.tables+p.TableBytes > tableLimit {
		p.of.users--
		return false
	}
	m.coming += most
	m.tables += p.TableBytes
	return true
}

// sweep removes about that many bytes, and tables, of regions from the list, dead, for unmap: first
// those whose records were all delivered, then the oldest with at most most live bytes. Pinned ones
// stay. It is called with mu held.
func (m *Maps) sweep(bytes, tables, most int64) (victims []*Region) {
	for _, live := range [...]int64{0, most} {
		kept := m.regions[:0]
		for _, r := range m.regions {
			if bytes <= 0 && tables <= 0 || r.Live.Load() > live || !r.Pins.Kill() {
				kept = append(kept, r)
				continue
			}
			bytes -= int64(len(r.Bytes))
			tables -= r.table
			victims = append(victims, r)
		}
		clear(m.regions[len(kept):])
		m.regions = kept
	}
	return victims
}

// unmap removes dead regions from the address space, after no table refers to them. It is called
// with mu held, and releases it meanwhile: the owner takes its own lock, and other calls continue
// during the TLB shootdown.
func (m *Maps) unmap(victims []*Region) {
	if len(victims) == 0 {
		return
	}
	m.mu.Unlock()
	m.owner.Forget(victims)
	freed := int64(0)
	for _, r := range victims {
		freed += r.of.mapping.Drop(r.off, int64(len(r.Bytes)))
	}
	m.mu.Lock()
	m.bytes -= freed
	for _, r := range victims {
		m.tables -= r.table
		r.of.users--
	}
}

// Lent is the mapped records in a budget.Records, each with a pin. The zero value has none; a
// reused one allocates nothing. It is not for concurrent use.
//
// Bytes of such records are right if nothing can have altered them before they were copied:
//
//	Add …        the records, pinned
//	Leased       before anything is copied
//	Faulted(…)   copy
//	Check        nil: what was copied is what was indexed
//	Fault        instead, if the copy faulted
type Lent struct {
	records []lentRecord
	asked   asked
	leased  bool   // Leased has returned true, for all records
	breaks  uint64 // Leaser.Breaks at that time
}

type lentRecord struct {
	region *Region
	index  int // of the record in its piece
}

// asked is the shards that were checked already. If there are more than fit, some are checked
// twice.
type asked [128]*shard

// first reports whether a shard was not checked yet.
func (a *asked) first(s *shard) bool {
	slot := &a[s.number%len(a)]
	if *slot == s {
		return false
	}
	*slot = s
	return true
}

// Add takes over a pin of a region, for the record with that index in the piece.
func (l *Lent) Add(r *Region, record int) {
	l.records = append(l.records, lentRecord{r, record})
	l.leased = false // this one's file was not checked
}

// Mapped reports whether there are any records.
func (l *Lent) Mapped() bool { return len(l.records) > 0 }

// Len returns how many records there are.
func (l *Lent) Len() int { return len(l.records) }

// Release unpins the records, and empties l.
func (l *Lent) Release() {
	for _, x := range l.records {
		x.region.Pins.Unpin()
	}
	clear(l.records)
	l.records = l.records[:0]
}

// Leased reports whether all files of the records have leases. If so, they are only altered after a
// break, which Check would detect: breaks are counted before leases are checked.
func (l *Lent) Leased() bool {
	l.leased = false
	if len(l.records) == 0 {
		return true
	}
	l.breaks = l.maps().config.Mapper.Breaks()
	defer clear(l.asked[:])
	for _, x := range l.records {
		if s := x.region.of; l.asked.first(s) && !s.mapping.Leased() {
			return false
		}
	}
	l.leased = true
	return true
}

// maps returns the Maps of the records; there must be some.
func (l *Lent) maps() *Maps { return l.records[0].region.of.maps }

// Check returns nil if what was copied from the records so far is what was indexed, else the error
// of Owner.Lost. If that is not certain, because leases may have been lost meanwhile, or never
// existed, it checks each file once.
func (l *Lent) Check() error {
	if len(l.records) == 0 || l.leased && l.maps().config.Mapper.Unbroken(l.breaks) {
		return nil
	}
	defer clear(l.asked[:])
	var again error // of copies: all lost ones are handled at once
	for _, x := range l.records {
		if s := x.region.of; l.asked.first(s) {
			err := s.mapping.Check()
			switch {
			case err == nil:
			case errors.Is(err, storage.ErrReadAgain):
				again = x.lost(err)
			default:
				return x.lost(err)
			}
		}
	}
	return again
}

// Fault returns the error to report after copying from the records has faulted, nil if there are no
// records.
func (l *Lent) Fault() error {
	if err := l.Check(); err != nil || len(l.records) == 0 {
		return err
	}
	// It is not known which record it was: none of the pieces stays mapped.
	regions := make([]*Region, len(l.records))
	for i, x := range l.records {
		regions[i] = x.region
	}
	l.maps().forget(regions)
	x := l.records[0]
	err := x.region.of.mapping.Check()
	if err == nil {
		err = x.region.fault()
	}
	return x.lost(err)
}

// lost returns the error to report for a record whose error is err. After that its piece is no
// longer mapped or, if the shard has changed, nothing of the shard. (A shard of which a copy is
// gone may be mapped again.)
func (x lentRecord) lost(err error) error {
	s := x.region.of
	again := errors.Is(err, storage.ErrReadAgain)
	s.maps.distrust(s, err)
	s.maps.forget([]*Region{x.region})
	if again {
		return err // nothing is wrong with the record
	}
	return s.maps.owner.Lost(x.region.piece, x.index, err)
}
