package stream

import "errors"

// Guard keeps open what a source reads from while something of the source is in use: an
// open handle, or a call of a set. Its methods may be called concurrently, and are not
// called for each read.
type Guard interface {
	// Enter says no where it is closed, or about to be.
	Enter() bool
	// Leave ends what a successful Enter began.
	Leave()
}

// ErrRetired is what sets and handles answer of which the source is closed, or about to be.
// The same set may be had once more.
var ErrRetired = errors.New("this set of shards is no longer open: ask for its files again")

// SetGuard is called before the first set is made, if at all.
func (s *Source) SetGuard(g Guard) { s.guard = g }

func (s *Source) enter() bool { return s.guard == nil || s.guard.Enter() }

func (s *Source) leave() {
	if s.guard != nil {
		s.guard.Leave()
	}
}
