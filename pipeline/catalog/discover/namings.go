package discover

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/unpack/formats"
)

// file is a file of the listing, and what its name says.
type file struct {
	Shard
	name formats.Name
	// settled says that it need not be looked at: its name decides.
	settled bool
}

// NamingOf is what the paths of the files of one naming have in common: all of it but the
// digits of the name. Files of one naming are one decision.
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

// naming is the files of one naming.
type naming struct {
	files     []int // their numbers, by path
	sizeBytes int64
	format    string // that it is of by name, "" for none
}

// namingsOf groups files, which are in order of their paths; the namings are in the order of
// their first files.
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

// NamingText is the paths of one naming for people: "train-{00000..00146}.tar". A range stands for
// paths alone that are there: of numbers with gaps it is "s-{{0..3},7}.tar". paths are sorted, at
// least one.
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

// numbersBetween returns how many numbers a range has; 0 for more than any dataset has files, and where
// numbers of two widths don't say how those between are written.
func numbersBetween(low, high string) uint64 {
	x, err1 := strconv.ParseUint(low, 10, 32)
	y, err2 := strconv.ParseUint(high, 10, 32)
	if err1 != nil || err2 != nil || y < x || len(low) != len(high) && (low[0] == '0' && low != "0" || high[0] == '0') {
		return 0
	}
	return y - x + 1
}

// mostStretches is how many stretches of numbers without a gap a text has.
const mostStretches = 4

// stretchesText is numbers with gaps between them: "{{0..3},7}".
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

// runsOf are the places of the digits in the last component of a path.
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

// lessNumber compares numbers of any length, and what is as large by how it is written.
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

// text is a naming with its number of files, for errors: with the first file's path, since
// that can be looked for.
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

// asFiles are the objects of a listing, in dataset order.
func asFiles(objects []storage.Object) []file {
	sort.Slice(objects, func(i, j int) bool { return objects[i].Path < objects[j].Path })
	files := make([]file, len(objects))
	for i, o := range objects {
		n := formats.ParseName(o.Path)
		files[i] = file{Shard: Shard{Object: o, Codec: n.Codec}, name: n}
	}
	return files
}
