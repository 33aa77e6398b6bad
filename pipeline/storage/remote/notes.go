package remote

import (
	"slices"
	"strings"
	"time"
)

// mostNamed is how many of the keys that were left out are named.
const mostNamed = 3

// notes collects what a listing reports to the user.
type notes struct {
	left  int      // objects left out because their keys are not paths
	first []string // the first of those keys

	files int       // files whose versions may consist of their times
	time  time.Time // of all of them
	mixed bool      // their times differ, or other files exist
}

// leftOut notes an object whose key is not a path. Empty objects whose keys end in '/' represent
// folders and are not noted. It reports whether the object was noted.
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

// tell logs the notes. Each message is logged once per engine, however often it lists.
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
