package stream

import "errors"

// Guard keeps what a source reads from open while something of the source is in use: an open
// handle, or a call of a set. Its methods may be called concurrently, and are not called for each
// read.
type Guard interface {
	// Enter returns false if the guarded data is closed or about to be.
	Enter() bool
	// Leave ends a successful Enter.
	Leave()
}

// ErrRetired is returned by sets and handles whose source is closed or about to be. The caller may
// ask for the same set again.
var ErrRetired = errors.New("this set of shards is no longer open: ask for its files again")

// SetGuard sets the guard. It must be called before the first set is made.
func (s *Source) SetGuard(g Guard) { s.guard = g }

func (s *Source) enter() bool { return s.guard == nil || s.guard.Enter() }

func (s *Source) leave() {
	if s.guard != nil {
		s.guard.Leave()
	}
}
