package discover

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// file is a file of the listing, and its parsed name.
type file struct {
	Shard
	name formats.Name
	// settled means that it need not be opened: its name decides.
	settled bool
}

// NamingOf returns the naming pattern of a path: the path with each number in its last component
// replaced by "#". Files with the same naming pattern are decided together.
func NamingOf(path string) string {
	slash := strings.LastIndexByte(path, '/') + 1
	if !strings.ContainsAny(path[slash:], "0123456789") {
		return path
	}
	var b strings.Builder
	b.Grow(len(path))
	b.WriteString(path[:slash])
	for i := slash; i < len(path); i++ {
		if c := path[i]; c < '0' || c > '9' {
			b.WriteByte(c)
		} else if i == slash || path[i-1] < '0' || path[i-1] > '9' {
			b.WriteByte('#')
		}
	}
	return b.String()
}

// naming is the files with one naming pattern.
type naming struct {
	files     []int // their indexes, by path
	sizeBytes int64
	format    string // implied by their names, "" for none
}

// namingsOf groups files, which must be sorted by path; the groups are in the order of their first
// files.
func namingsOf(files []file) []naming {
	var list []naming
	of := map[string]int{}
	for i := range files {
		key := NamingOf(files[i].Object.Path)
		n, known := of[key]
		if !known {
			n = len(list)
			of[key] = n
			list = append(list, naming{})
		}
		g := &list[n]
		g.files = append(g.files, i)
		g.sizeBytes += files[i].Object.SizeBytes
		if g.format == "" {
			g.format = files[i].name.Format
		}
	}
	return list
}

// NamingText formats the paths of one naming pattern for a person: "train-{00000..00146}.tar". A
// range contains only existing paths: if numbers have gaps it is "s-{{0..3},7}.tar". paths must be
// sorted, and at least one.
func NamingText(paths []string) string {
	first, last := paths[0], paths[len(paths)-1]
	runs := runsOf(first)
	lows, highs := make([]string, len(runs)), make([]string, len(runs))
	for _, p := range paths {
		for k, r := range runsOf(p) {
			number := p[r.from:r.to]
			if lows[k] == "" || lessNumber(number, lows[k]) {
				lows[k] = number
			}
			if highs[k] == "" || lessNumber(highs[k], number) {
				highs[k] = number
			}
		}
	}
	text, at, varying, product := "", 0, -1, uint64(1)
	for k, r := range runs {
		text += first[at:r.from]
		if lows[k] == highs[k] {
			text += lows[k]
		} else {
			text += fmt.Sprintf("{%s..%s}", lows[k], highs[k])
			if varying >= 0 {
				varying = len(runs)
			} else {
				varying = k
			}
			product *= numbersBetween(lows[k], highs[k])
		}
		at = r.to
	}
	switch text += first[at:]; {
	case product == uint64(len(paths)):
		return text
	case varying == len(runs):
		return first + " … " + last
	}
	numbers := make([]string, len(paths))
	for i, p := range paths {
		r := runsOf(p)[varying]
		numbers[i] = p[r.from:r.to]
	}
	r := runs[varying]
	return first[:r.from] + stretchesText(numbers) + first[r.to:]
}

// numbersBetween returns how many numbers a range has. It returns 0 for more than any dataset has
// files, and if numbers of two widths leave open how those between are written.
func numbersBetween(low, high string) uint64 {
	x, err1 := strconv.ParseUint(low, 10, 32)
	y, err2 := strconv.ParseUint(high, 10, 32)
	if err1 != nil || err2 != nil || y < x || len(low) != len(high) && (low[0] == '0' && low != "0" || high[0] == '0') {
		return 0
	}
	return y - x + 1
}

// mostStretches is the largest number of gapless stretches in a text.
const mostStretches = 4

// stretchesText formats numbers with gaps between them: "{{0..3},7}".
func stretchesText(numbers []string) string {
	slices.SortFunc(numbers, func(a, b string) int {
		if lessNumber(a, b) {
			return -1
		}
		return 1
	})
	var list []string
	for from := 0; from < len(numbers); {
		to := from + 1
		for to < len(numbers) && numbersBetween(numbers[to-1], numbers[to]) == 2 {
			to++
		}
		if text := numbers[from]; to-from == 1 {
			list = append(list, text)
		} else {
			list = append(list, fmt.Sprintf("{%s..%s}", text, numbers[to-1]))
		}
		from = to
	}
	if n := len(list); n > mostStretches {
		list = append(list[:mostStretches-2:mostStretches-2], "…", list[n-1])
	}
	return "{" + strings.Join(list, ",") + "}"
}

type run struct{ from, to int }

// runsOf returns the positions of the digits in the last component of a path.
func runsOf(path string) (list []run) {
	for i := strings.LastIndexByte(path, '/') + 1; i < len(path); i++ {
		if path[i] < '0' || path[i] > '9' {
			continue
		}
		from := i
		for i < len(path) && path[i] >= '0' && path[i] <= '9' {
			i++
		}
		list = append(list, run{from, i})
	}
	return list
}

// lessNumber compares numbers of any length; equal numbers are ordered by the length of their text.
func lessNumber(a, b string) bool {
	x, y := strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	if len(x) != len(y) {
		return len(x) < len(y)
	}
	if x != y {
		return x < y
	}
	return len(a) < len(b)
}

// text describes a naming with its number of files, for errors. It includes the first file's path,
// which the user can search for.
func (n *naming) text(files []file) string {
	paths := make([]string, len(n.files))
	for i, k := range n.files {
		paths[i] = files[k].Object.Path
	}
	if len(paths) == 1 {
		return "1 file, " + paths[0]
	}
	return strconv.Itoa(len(paths)) + " files, " + NamingText(paths) + ", such as " + paths[0]
}

// asFiles returns the objects of a listing as files, in dataset order.
func asFiles(objects []storage.Object) []file {
	sort.Slice(objects, func(i, j int) bool { return objects[i].Path < objects[j].Path })
	files := make([]file, len(objects))
	for i, o := range objects {
		n := formats.ParseName(o.Path)
		files[i] = file{Shard: Shard{Object: o, Codec: n.Codec}, name: n}
	}
	return files
}
