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
	if by == ByTime {
		slices.SortFunc(shards, func(a, b Shard) int {
			return cmp.Or(cmp.Compare(b.ModTimeNanos, a.ModTimeNanos), strings.Compare(b.Path, a.Path))
		})
		return
	}
	names := make([]name, len(shards))
	for i := range shards {
		names[i] = nameOf(shards[i].Path, i)
	}
	slices.SortFunc(names, func(a, b name) int { return b.compare(&a) })
	before := slices.Clone(shards)
	for i := range names {
		shards[i] = before[names[i].at]
	}
}

// name is what a shard's name says at first: most differ in their first number.
type name struct {
	path   string
	base   string // the end of path
	number uint64 // the first one
	text   int32  // bytes before its first digit
	at     int32  // among the shards
	plain  bool   // it has a first number, of at most 19 digits
}

func nameOf(p string, at int) name {
	n := name{path: p, base: path.Base(p), at: int32(at)}
	text := strings.IndexAny(n.base, "0123456789")
	if text < 0 {
		return n
	}
	if count := digits(n.base[text:]); count <= 19 {
		n.text, n.plain = int32(text), true
		for _, d := range n.base[text : text+count] {
			n.number = 10*n.number + uint64(d-'0')
		}
	}
	return n
}

func (a *name) compare(b *name) int {
	if a.plain && b.plain && a.number != b.number && a.base[:a.text] == b.base[:b.text] {
		return cmp.Compare(a.number, b.number)
	}
	return cmp.Or(compareNames(a.base, b.base), strings.Compare(a.path, b.path))
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
