package growing

import (
	"cmp"
	"path"
	"slices"
	"sort"
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
		sort.Slice(shards, func(i, j int) bool {
			a, b := &shards[i], &shards[j]
			return cmp.Or(cmp.Compare(b.ModTimeNanos, a.ModTimeNanos), strings.Compare(b.Path, a.Path)) < 0
		})
		return
	}
	keys := keysOf(shards)
	slices.SortFunc(keys, func(a, b key) int {
		if a.text == b.text && a.text != 0 && a.number != b.number {
			return cmp.Compare(b.number, a.number)
		}
		x, y := shards[b.at].Path, shards[a.at].Path
		return cmp.Or(compareNames(base(x), base(y)), strings.Compare(x, y))
	})
	for i := range keys { // in place, from hole to hole
		if keys[i].at == uint32(i) {
			continue
		}
		first, hole := shards[i], i
		for from := int(keys[hole].at); from != i; from = int(keys[hole].at) {
			shards[hole], keys[hole].at = shards[from], uint32(hole)
			hole = from
		}
		shards[hole], keys[hole].at = first, uint32(hole)
	}
}

// key is what a shard's name says at first: most differ in their first number. It is small,
// as sorting half a million of them is mostly moving them.
type key struct {
	number uint64 // the first one
	text   uint32 // which text comes before it; 0: there is no number of at most 19 digits
	at     uint32 // among the shards
}

func keysOf(shards []Shard) []key {
	keys := make([]key, len(shards))
	texts := map[string]uint32{} // those before numbers
	last, lastText := "", uint32(0)
	for i := range shards {
		keys[i].at = uint32(i)
		name := base(shards[i].Path)
		n := 0
		for n < len(name) && !isDigit(name[n]) {
			n++
		}
		count := digits(name[n:])
		if count == 0 || count > 19 {
			continue
		}
		for _, d := range []byte(name[n : n+count]) {
			keys[i].number = 10*keys[i].number + uint64(d-'0')
		}
		if text := name[:n]; text != last || lastText == 0 { // most are as the one before
			last, lastText = text, texts[text]
			if lastText == 0 {
				lastText = uint32(len(texts) + 1)
				texts[text] = lastText
			}
		}
		keys[i].text = lastText
	}
	return keys
}

// base is path.Base, faster for paths of files.
func base(p string) string {
	if name := p[strings.LastIndexByte(p, '/')+1:]; name != "" {
		return name
	}
	return path.Base(p)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

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
	for n < len(name) && isDigit(name[n]) {
		n++
	}
	return n
}

// compareNumbers compares decimal numbers of any length.
func compareNumbers(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

// UnfinishedReason is why a file is left out that is not Finished.
const UnfinishedReason = "its name is that of a file that is being written"

// unfinished are the ends of names that programs give to files which they are writing.
var unfinished = []string{".tmp", ".part", ".partial", "~", "._COPYING_"}

// Finished says whether a file of that name may be a shard: its name does not say that it
// is still being written.
func Finished(name string) bool {
	return !slices.ContainsFunc(unfinished, func(end string) bool { return strings.HasSuffix(name, end) })
}
