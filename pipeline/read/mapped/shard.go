package mapped

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// shard is a file in the address space, or on its way there. Everything is guarded by Maps.mu,
// except the mapping, which stays while there are users.
type shard struct {
	maps    *Maps
	number  int
	mapping storage.Mapping // nil: it is being opened
	waiting []taken         // populated when it is mapped
	late    bool            // requests no longer wait for it
	timer   *time.Timer     // makes it late
	users   int             // pieces that are regions, or about to be
}

// open has a shard opened and mapped; its waiting requests are populated then. It does not wait.
func (m *Maps) open(s *shard) {
	m.running.Add(2)
	m.mu.Lock()
	s.timer = time.AfterFunc(m.config.Patience, func() {
		defer m.running.Done()
		m.late(s)
	})
	m.mu.Unlock()
	object := m.config.Object(s.number)
	m.config.Mapper.Map(object, func(x storage.Mapping, err error) {
		if errors.Is(err, storage.ErrTooManyMappings) && m.closeIdle() {
			m.config.Mapper.Map(object, func(x storage.Mapping, err error) { m.opened(s, x, err) })
			return
		}
		m.opened(s, x, err)
	})
}

// late refuses requests that wait for a shard that takes long to open: it may take forever, and the
// file may be open for reads.
func (m *Maps) late(s *shard) {
	m.mu.Lock()
	var waiting []taken
	if s.mapping == nil {
		s.late = true
		waiting = s.sendAway()
	}
	m.mu.Unlock()
	m.answerNo(waiting)
}

// sendAway removes and returns the waiting requests of a shard, to be refused. It is called with mu
// held.
func (s *shard) sendAway() []taken {
	waiting := s.waiting
	s.waiting = nil
	s.users -= len(waiting)
	return waiting
}

// opened continues with the requests that wait for a shard that has been mapped, or can't be. It is
// called on a goroutine of the storage.
func (m *Maps) opened(s *shard, x storage.Mapping, err error) {
	defer m.running.Done()
	var ready, refused []taken
	warn := false
	m.mu.Lock()
	if s.timer.Stop() {
		m.running.Done()
	}
	s.late = false
	if err == nil {
		s.mapping = x
		ready, s.waiting = s.waiting, nil
		warn = x.OpenForWriting() && !m.warned
		m.warned = m.warned || warn
	} else {
		delete(m.shards, s.number) // it may be possible later
		if errors.Is(err, storage.ErrNotMapped) {
			m.never[s.number] = true
		}
		m.skip = fewSkips
		refused = s.sendAway()
	}
	m.mu.Unlock()
	if warn {
		m.config.Log.Warn("a program has a shard open for writing: what it stores through a mapping of its own (mmap) may be read without being noticed", "shard", m.config.Object(s.number).Path)
	}
	m.populate(ready)
	m.answerNo(refused)
}

// closeIdle closes the mappings of shards without regions or, if there are none, of shards whose
// records were all delivered. It reports whether it found some.
func (m *Maps) closeIdle() bool {
	m.mu.Lock()
	idle := m.takeIdle()
	if len(idle) == 0 {
		m.unmap(m.sweep(math.MaxInt64, 0, 0))
		idle = m.takeIdle()
	}
	m.mu.Unlock()
	m.close(idle)
	return len(idle) > 0
}

// takeIdle removes and returns the shards that have no users. It is called with mu held.
func (m *Maps) takeIdle() (idle []*shard) {
	idle = m.takeIdleStale()
	for number, s := range m.shards {
		if s.users == 0 && s.mapping != nil {
			delete(m.shards, number)
			idle = append(idle, s)
		}
	}
	return idle
}

// forgotten is a value of Live so low that nothing added to it makes the region live.
const forgotten = -1 << 60

// forget makes the owner forget regions, which may be pinned; sweeps unmap them first.
func (m *Maps) forget(regions []*Region) {
	if len(regions) == 0 {
		return
	}
	for _, r := range regions {
		r.Live.Store(forgotten)
	}
	m.owner.Forget(regions)
}

// mostStale is how often the mapping of a shard may turn out to be of a copy that is gone before
// the shard is read instead. Copies that are lost so often are of no use.
const mostStale = 8

// distrust handles an error of a shard's mapping. A file that has changed is not mapped any more. A
// copy that is gone (ErrReadAgain) leaves a stale mapping, which is closed when it is not pinned
// any more; the shard may be mapped again once there is another copy. All regions of the mapping
// are forgotten.
func (m *Maps) distrust(s *shard, err error) {
	again := errors.Is(err, storage.ErrReadAgain)
	if !again && !errors.Is(err, storage.ErrChanged) {
		return
	}
	m.mu.Lock()
	// First, so that what is forgotten is not mapped again from the stale mapping.
	if !again {
		m.never[s.number] = true
	} else if m.shards[s.number] == s {
		delete(m.shards, s.number)
		m.stale = append(m.stale, s)
		if m.losses[s.number]++; m.losses[s.number] >= mostStale {
			m.never[s.number] = true
		}
	}
	var regions []*Region
	for _, r := range m.regions {
		if r.of == s {
			regions = append(regions, r)
		}
	}
	m.mu.Unlock()
	m.forget(regions)
}

// dropStale unmaps regions of stale mappings that are not pinned, and closes mappings of which
// nothing is left.
func (m *Maps) dropStale() {
	m.mu.Lock()
	if len(m.stale) == 0 {
		m.mu.Unlock()
		return
	}
	var victims []*Region
	m.regions = slices.DeleteFunc(m.regions, func(r *Region) bool {
		if !slices.Contains(m.stale, r.of) || !r.Pins.Kill() {
			return false
		}
		victims = append(victims, r)
		return true
	})
	m.unmap(victims)
	idle := m.takeIdleStale()
	m.mu.Unlock()
	m.close(idle)
}

// takeIdleStale removes and returns the stale shards that have no users. It is called with mu held.
func (m *Maps) takeIdleStale() (idle []*shard) {
	m.stale = slices.DeleteFunc(m.stale, func(s *shard) bool {
		if s.users > 0 {
			return false
		}
		idle = append(idle, s)
		return true
	})
	return idle
}

// close closes mappings that are not in use.
func (m *Maps) close(idle []*shard) {
	for _, s := range idle {
		if err := s.mapping.Close(); err != nil {
			m.config.Log.Warn("a mapping stays", "error", err)
		}
	}
}
