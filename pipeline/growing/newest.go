package growing

import (
	"cmp"
	"path"
	"slices"
	"sort"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
)

// By is the criterion by which a shard is newer than another.
type By string

const (
	ByName By = "name" // the numbers in base names, and everything else byte by byte
	ByTime By = "mtime"
)

// Newest sorts shards, the newest first.
func Newest(shards []catalog.LiveShard, by By) {
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
	for i := range keys { // permute in place, cycle by cycle
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

// key is the part of a shard's name that is compared first: most names differ in their first
// number. It is small, because sorting half a million keys is mostly moving them.
type key struct {
	number uint64 // the first one
	text   uint32 // index of the text before it; 0: no number of at most 19 digits
	at     uint32 // index of the shard
}

func keysOf(shards []catalog.LiveShard) []key {
	keys := make([]key, len(shards))
	texts := map[string]uint32{} // texts before numbers
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
		if text := name[:n]; text != last || lastText == 0 { // most are the same as the previous one
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

// base is path.Base, but faster for paths of files.
func base(p string) string {
	if name := p[strings.LastIndexByte(p, '/')+1:]; name != "" {
		return name
	}
	return path.Base(p)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// compareNames compares names byte by byte, except that two runs of digits at the same position are
// compared as numbers. A name that is a prefix of another comes before it.
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

// digits returns the number of digits at the start of a name.
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
