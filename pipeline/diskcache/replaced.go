package diskcache

import (
	"slices"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// A compressed object whose decoded form is complete in the cache is read in that form, so a fill
// that was started on behalf of readers (FillOnceRead) leaves it out: it would be fetched and stored
// for nothing. The keeper, which counts the directory every minute, notices if the decoded form is
// no longer there, and then the object is filled after all.

// DecodedOf states that the decoded form of an object, of decodedBytes, is identified by id if it is
// in the cache's directory. FillOnceRead leaves the object out as long as the decoded form is
// complete there.
func (s *Storage) DecodedOf(raw storage.Object, id Identity, decodedBytes int64) {
	w := &wanted{id, keyOf(id, decodedBytes), decodedBytes}
	s.mu.Lock()
	s.mine[w.key] = struct{}{}
	s.mu.Unlock()
	s.ahead.mu.Lock()
	defer s.ahead.mu.Unlock()
	s.ahead.decoded[raw] = w
}

// forgetDecoded forgets what DecodedOf has stated about other objects. a.mu is held.
func (a *ahead) forgetDecoded(except []Range) {
	was := a.decoded
	a.decoded = map[storage.Object]*wanted{}
	for i := range except {
		if w := was[except[i].Object]; w != nil {
			a.decoded[except[i].Object] = w
		}
	}
}

// leavesOut reports whether the fill leaves out a part of an object, because its decoded form is
// complete in the cache.
func (a *ahead) leavesOut(x Range) bool {
	a.mu.Lock()
	w := a.decoded[x.Object]
	looks := w != nil && a.onceRead
	a.mu.Unlock()
	if !looks || !a.s.holdsDecoded(w) {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.onceRead {
		a.leftOut[x] = w.key
	}
	return a.onceRead
}

// holdsDecoded reports whether a decoded shard is complete in the cache, by its sums.
func (s *Storage) holdsDecoded(w *wanted) bool {
	if s.health.off.Load() {
		return false
	}
	files, err := s.dir.openPair(w, false, s.config.Clock.Now())
	if err != nil {
		return false // it is absent, or can't be used
	}
	defer files.close()
	d := &Decoded{ground: &keptShard{a: &keptArena{s: s}, w: *w, files: files}, sizeBytes: w.sizeBytes}
	there, err := d.Look()
	return err == nil && there == w.sizeBytes
}

// replacing returns the keys of decoded shards in whose favour the fill has left something out.
func (a *ahead) replacing() map[key]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	keys := map[key]bool{}
	for _, by := range a.leftOut {
		keys[by] = true
	}
	return keys
}

// fillGone makes the fill fetch what it has left out in favour of decoded shards that are gone.
func (a *ahead) fillGone(gone map[key]bool) {
	if len(gone) == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at >= len(a.todo) {
		a.off = 0 // the fill ended within an object, as there was no room
	}
	todo := slices.Clone(a.todo[a.at:])
	for x, by := range a.leftOut {
		if gone[by] {
			todo = append(todo, x)
			a.done = max(a.done-x.SizeBytes, 0)
			delete(a.leftOut, x)
		}
	}
	a.todo, a.at = todo, 0
	a.reopen()
	a.poke()
}
