package identity

import "errors"

// Way is a directory on the path from the root of a listing, together with the directories above
// it; nil is the way to the root. It is immutable.
type Way struct {
	device, inode uint64
	above         *Way
}

// Down returns the way into a subdirectory.
func (w *Way) Down(device, inode uint64) *Way { return &Way{device, inode, w} }

// Has reports whether a directory is on the way, so that a link to it leads back.
func (w *Way) Has(device, inode uint64) bool {
	for ; w != nil; w = w.above {
		if w.device == device && w.inode == inode {
			return true
		}
	}
	return false
}

// mostAgain bounds how often directories are entered again through links. If a few directories
// contain links to each other, there are as many paths as orderings of them.
const mostAgain = 1000

// ErrManyLinks means that links give the same directories too many names.
var ErrManyLinks = errors.New("links lead to the same directories by more than 1000 names: remove some of them, or leave them out with --exclude")

// Entered counts the directories that a walk has entered through links. The zero value is empty.
type Entered struct {
	times map[entered]int
	again int
}

type entered struct{ device, inode uint64 }

// Enter counts a directory, and returns ErrManyLinks if it must not be entered.
func (e *Entered) Enter(device, inode uint64) error {
	at := entered{device, inode}
	if e.times[at] > 0 {
		if e.again == mostAgain {
			return ErrManyLinks
		}
		e.again++
	}
	if e.times == nil {
		e.times = map[entered]int{}
	}
	e.times[at]++
	return nil
}

// Leave undoes an Enter.
func (e *Entered) Leave(device, inode uint64) {
	at := entered{device, inode}
	switch n := e.times[at]; {
	case n == 0:
	case n == 1:
		delete(e.times, at)
	default:
		e.times[at] = n - 1
		e.again--
	}
}
