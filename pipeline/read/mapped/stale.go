package mapped

import (
	"errors"
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

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
