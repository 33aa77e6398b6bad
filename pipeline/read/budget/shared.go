package budget

import (
	"slices"
	"sync"
	"sync/atomic"
)

// Member is who keeps records within a share of memory: a fetcher. Its methods may be
// called while other members hold locks of their own, so they wait for none that is held
// while the member asks for more.
type Member interface {
	// Allow says how many bytes it may hold from now on. It is only noted.
	Allow(bytes int64)
	// Held is how many bytes it holds.
	Held() int64
	// Lent is how many bytes of records it has given out so far.
	Lent() int64
	// Readers is how many readers it has.
	Readers() int64
	// Shrink gives up what it holds beyond what it is allowed, as far as nobody uses it at
	// this moment.
	Shrink()
	// ShrinkDisk gives up what it has on a disk, as far as nobody uses it.
	ShrinkDisk()
}

// Shared is one budget of memory for any number of fetchers. One that is alone has all of
// it. Of several, those that are read share alike, and each of the others keeps a little,
// with which it can begin again.
//
//	one fetcher       │ all                                            │
//	another opens     │ half                   │ half                  │
//	the first rests   │ floor │ the rest                               │
//
// Nobody is given what somebody else still holds. Who finds no memory asks (Share.Ask):
// then those that rest give up what they hold, then those that hold more than their part.
// The methods may be called concurrently.
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
	// seen is Member.Lent when somebody looked last, and when the sum of all at that time.
	seen, when int64

	onDisk int64 // under Shared.disk
	cached int64 // likewise
}

// restsAfter: a fetcher rests when others have lent this part of the memory since it has
// lent anything.
const restsAfter = 8

// NewShared is a budget of so many bytes.
func NewShared(bytes int64) *Shared { return &Shared{bytes: bytes} }

// Bytes is how much there is.
func (m *Shared) Bytes() int64 { return m.bytes }

// Share makes a share, which has nothing until Join. Leave ends it.
func (m *Shared) Share() *Share { return &Share{of: m} }

// Join gives a share to a member, which keeps at least about floor bytes while it rests. The
// others give up what they have too much.
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

// Retire has the member be left alone from now on, since it is about to be closed. What it
// holds stays counted until Leave.
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

// Leave ends a share that nothing is held of any more. It is idempotent.
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

// Ask is called by a member that has no memory for what it wants, and says whether it may
// have more now. One that is alone has all. It may be called with locks of the member held:
// it waits for nothing that others hold while they ask.
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

// look finds out who has lent anything, and gives the sum of all that was lent.
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

// rests says that nobody reads from a member.
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

// TakeDisk takes so many bytes of disk more, or gives them back, and says whether that
// could be: all shares together have up to most, 0 for any number.
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

// DiskLeft is how many bytes of most are not taken, once those that rest have given up what
// they have. It is not to be called with a lock of a member held.
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

// SetCached notes how much of a disk cache the share needs, and gives the sum of all.
func (s *Share) SetCached(bytes int64) (all int64) {
	m := s.of
	m.disk.Lock()
	defer m.disk.Unlock()
	m.cached += bytes - s.cached
	s.cached = bytes
	return m.cached
}

// Allowed is how many bytes the member may hold now.
func (s *Share) Allowed() int64 {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	return s.allowed
}
