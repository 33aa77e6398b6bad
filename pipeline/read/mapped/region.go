package mapped

import (
	"errors"
	"math"
	"runtime/debug"
	"sync/atomic"

	"github.com/lsiofs/lsiofs/pipeline/read/budget"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Region is a mapped piece: its bytes may be touched while it is pinned, under Faulted. In Live the
// owner counts the bytes of its undelivered records; a forgotten region has a negative count.
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
	gone := Faulted(func() { good = check() })
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

// Faulted runs touch, which accesses mapped memory, and reports whether that memory was gone: the
// goroutine then panics instead of the process getting a signal. Other panics propagate.
func Faulted(touch func()) (gone bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if !storage.IsFault(p) {
			panic(p) // our own mistake
		}
		gone = true
	}()
	touch()
	return false
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
