package budget

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Member keeps records within a share of memory: a fetcher. Its methods may be called while other
// members hold locks of their own, so they must not wait for a lock that is held while the member
// asks for more.
type Member interface {
	// Allow sets how many bytes the member may hold from now on. It only stores the number.
	Allow(bytes int64)
	// Held returns how many bytes it holds.
	Held() int64
	// Lent returns how many bytes of records it has returned so far.
	Lent() int64
	// Readers returns how many readers it has.
	Readers() int64
	// Shrink frees what it holds beyond what it is allowed, as far as that is not in use at the
	// moment.
	Shrink()
	// ShrinkDisk frees what it has on a disk, as far as that is not in use.
	ShrinkDisk()
}

// Shared is one budget of memory for any number of fetchers. A fetcher that is alone has all of it.
// If there are several, those that are being read have equal shares, and each idle one keeps a
// little, so that it can start again.
//
//	one fetcher         │ all                                            │
//	another opens       │ half                   │ half                  │
//	the first is idle   │ floor │ the rest                               │
//
// A share is never given memory that another one still holds. A fetcher that is out of memory asks
// for more (Share.Ask): then idle fetchers free what they hold, and then those that hold more than
// their share. The methods may be called concurrently.
type Shared struct {
	bytes   int64
	several atomic.Bool // there is more than one

	mu     sync.Mutex
	shares []*Share
	lent   int64 // by those that have left

	disk         sync.Mutex // taken last
	used, cached int64      // bytes of disk, and of a disk cache
}

// Share is one fetcher's part.
type Share struct {
	of     *Shared
	member Member // nil until Join, and from Retire on
	floor  int64
	frozen int64 // what it holds once it has no member any more

	allowed int64
	// seen is Member.Lent when it was last looked at, and when is the sum of all at the time it
	// last changed.
	seen, when int64

	onDisk int64 // guarded by Shared.disk
	cached int64 // likewise
}

// restsAfter: a fetcher is idle when others have returned this fraction (1/8) of the memory in
// records since it last returned any.
const restsAfter = 8

// NewShared returns a budget of that many bytes.
func NewShared(bytes int64) *Shared { return &Shared{bytes: bytes} }

// Bytes returns the size of the budget.
func (m *Shared) Bytes() int64 { return m.bytes }

// Share returns a new share, which has nothing until Join. Leave ends it.
func (m *Shared) Share() *Share { return &Share{of: m} }

// Join gives a share to a member, which keeps at least about floor bytes while it is idle. The
// others free what exceeds their shares.
func (s *Share) Join(member Member, floor int64) {
	m := s.of
	m.mu.Lock()
	defer m.mu.Unlock()
	s.member, s.floor = member, floor
	s.when = m.look()
	m.shares = append(m.shares, s)
	m.several.Store(len(m.shares) > 1)
	m.divide(s)
	member.Allow(s.allowed)
}

// Retire stops calls to the member, which is about to be closed. What it holds stays counted until
// Leave.
func (s *Share) Retire() {
	m := s.of
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.member != nil {
		s.frozen = max(s.member.Held(), s.allowed)
		m.lent += s.member.Lent()
		s.member = nil
	}
}

// Leave ends a share whose memory was freed. It is idempotent.
func (s *Share) Leave() {
	s.TakeDisk(-s.onDisk, 0)
	s.SetCached(0)
	m := s.of
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shares = slices.DeleteFunc(m.shares, func(x *Share) bool { return x == s })
	m.several.Store(len(m.shares) > 1)
	if len(m.shares) == 1 && m.shares[0].member != nil {
		m.shares[0].allow(m.bytes)
	}
}

// Ask is called by a member that is out of memory, and reports whether it may have more now. A
// member that is alone has all. It may be called with locks of the member held: it does not wait
// for locks that others hold while they ask.
func (s *Share) Ask() (more bool) {
	m := s.of
	if !m.several.Load() || !m.mu.TryLock() {
		return false
	}
	defer m.mu.Unlock()
	before := s.allowed
	m.divide(s)
	return s.allowed > before
}

// look updates which members have returned records, and returns the sum of all bytes that were
// returned.
func (m *Shared) look() (sum int64) {
	sum = m.lent
	for _, s := range m.shares {
		if s.member != nil {
			sum += s.member.Lent()
		}
	}
	for _, s := range m.shares {
		if s.member == nil {
			continue
		}
		if lent := s.member.Lent(); lent != s.seen {
			s.seen, s.when = lent, sum
		}
	}
	return sum
}

// rests reports whether a member is idle.
func (s *Share) rests(sum int64) bool {
	return s.member.Readers() == 0 || sum-s.when > s.of.bytes/restsAfter
}

// divide finds memory for one share. It is called with mu held.
func (m *Shared) divide(wants *Share) {
	sum := m.look()
	left, floors, active := m.bytes, int64(0), int64(0)
	for _, s := range m.shares {
		switch {
		case s.member == nil:
			left -= s.frozen
		case s == wants || !s.rests(sum):
			active++
		default:
			floors += s.floor
		}
	}
	left = max(left, 0)
	scale := 1.0
	if floors > left/2 {
		scale = float64(left/2) / float64(floors)
	}
	part := (left - int64(float64(floors)*scale)) / max(active, 1)
	free := left
	for _, s := range m.shares {
		if s == wants || s.member == nil {
			continue
		}
		most := part
		if s.rests(sum) {
			most = int64(float64(s.floor) * scale)
		}
		if s.allowed > most {
			s.allow(most)
		}
		if s.member.Held() > s.allowed {
			s.member.Shrink()
		}
		free -= max(s.allowed, s.member.Held())
	}
	if n := min(part, free); n > wants.allowed {
		wants.allow(n)
	}
}

func (s *Share) allow(bytes int64) {
	s.allowed = bytes
	s.member.Allow(bytes)
}

// TakeDisk takes that many bytes of disk, or returns them if negative, and reports whether it
// could: all shares together have up to most, 0 for any number.
func (s *Share) TakeDisk(bytes, most int64) bool {
	m := s.of
	m.disk.Lock()
	defer m.disk.Unlock()
	if bytes > 0 && most > 0 && m.used+bytes > most {
		return false
	}
	m.used += bytes
	s.onDisk += bytes
	return true
}

// DiskLeft returns how many bytes of most are not taken, after idle members have freed what they
// have. It must not be called with a lock of a member held.
func (s *Share) DiskLeft(most int64) int64 {
	m := s.of
	m.mu.Lock()
	sum := m.look()
	for _, x := range m.shares {
		if x != s && x.member != nil && x.rests(sum) {
			x.member.ShrinkDisk()
		}
	}
	m.mu.Unlock()
	m.disk.Lock()
	defer m.disk.Unlock()
	return max(most-m.used, 0)
}

// SetCached sets how much of a disk cache the share needs, and returns the sum of all shares.
func (s *Share) SetCached(bytes int64) (all int64) {
	m := s.of
	m.disk.Lock()
	defer m.disk.Unlock()
	m.cached += bytes - s.cached
	s.cached = bytes
	return m.cached
}

// Allowed returns how many bytes the member may hold now.
func (s *Share) Allowed() int64 {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	return s.allowed
}
