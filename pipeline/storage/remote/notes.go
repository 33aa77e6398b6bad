package remote

import (
	"slices"
	"strings"
	"time"
)

// mostNamed is how many keys are named of those that are left out.
const mostNamed = 3

// notes are what a listing has to say for people of what it has seen.
type notes struct {
	left  int      // objects that are left out, since their keys are no paths
	first []string // the first keys of those

	files int       // whose versions may be made of their times
	time  time.Time // of all of them
	mixed bool      // their times differ, or there are others
}

// leftOut notes an object whose key is no path. Empty ones that end in '/' stand for
// folders, and have nothing to leave out: it reports whether this one has.
func (n *notes) leftOut(o Listed) bool {
	if o.SizeBytes == 0 && strings.HasSuffix(o.Path, "/") || o.Path == "" {
		return false
	}
	n.left++
	at, _ := slices.BinarySearch(n.first, o.Path)
	n.first = slices.Insert(n.first, at, o.Path)
	n.first = n.first[:min(len(n.first), mostNamed)]
	return true
}

// taken notes an object that is visited.
func (n *notes) taken(o Listed) {
	if n.files++; n.files == 1 {
		n.time = o.Modified
	}
	n.mixed = n.mixed || o.Modified.IsZero() || !maybeTime(o.Validator) || !o.Modified.Equal(n.time)
}

// tell logs what there is to say, each thing once for an engine, however often it lists.
func (s *Storage) tell(n *notes) {
	if s.config.Log == nil {
		return
	}
	if n.left > 0 {
		s.toldLeft.Do(func() {
			s.config.Log.Warn("objects are left out, since empty parts, . and .. in their keys make them no paths: copy them to other keys", "objects", n.left, "first", n.first)
		})
	}
	if n.files > 1 && !n.mixed {
		s.toldTimes.Do(func() {
			s.config.Log.Warn("all files have the same time, by which the server tells versions apart: one that is replaced by another of that time and its size looks unchanged, so give it another time",
				"files", n.files, "time", n.time)
		})
	}
}
