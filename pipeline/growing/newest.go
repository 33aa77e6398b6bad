package growing

import (
	"cmp"
	"path"
	"slices"
	"strings"
)

// Shard is a settled shard, as far as a window goes by it.
type Shard struct {
	Path                  string // relative to the dataset's root
	ModTimeNanos          int64
	Records, Units, Bytes uint64 // Units are from an entry point to the next; Bytes are decoded
}

// By is what makes a shard newer than another.
type By string

const (
	ByName By = "name" // the numbers in base names, and the rest byte by byte
	ByTime By = "mtime"
)

// Newest sorts shards, the newest first.
func Newest(shards []Shard, by By) {
	slices.SortFunc(shards, func(a, b Shard) int {
		if by == ByTime {
			return cmp.Or(cmp.Compare(b.ModTimeNanos, a.ModTimeNanos), strings.Compare(b.Path, a.Path))
		}
		return cmp.Or(compareNames(path.Base(b.Path), path.Base(a.Path)), strings.Compare(b.Path, a.Path))
	})
}

// compareNames compares names byte by byte, but two runs of digits that begin at the same
// place by the numbers that they write. A name that is the beginning of another comes
// before it.
func compareNames(a, b string) int {
	for a != "" && b != "" {
		m, n := digits(a), digits(b)
		if m > 0 && n > 0 {
			if c := compareNumbers(a[:m], b[:n]); c != 0 {
				return c
			}
			a, b = a[m:], b[n:]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

// digits is how many a name begins with.
func digits(name string) int {
	n := 0
	for n < len(name) && name[n] >= '0' && name[n] <= '9' {
		n++
	}
	return n
}

// compareNumbers compares decimal numbers of any length.
func compareNumbers(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

// unfinished are the ends of names that programs give to files which they are writing.
var unfinished = []string{".tmp", ".part", ".partial", "~", "._COPYING_"}

// Finished says whether a file of that name may be a shard: its name does not say that it
// is still being written.
func Finished(name string) bool {
	return !slices.ContainsFunc(unfinished, func(end string) bool { return strings.HasSuffix(name, end) })
}
