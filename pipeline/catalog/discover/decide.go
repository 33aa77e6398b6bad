package discover

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// textFormat counts only if there are no other shards.
const textFormat = "lines"

// Reasons of verdicts.
const (
	byItsName    = "its name says the format"
	byAsking     = "the format was asked for"
	byContent    = "its content shows the format"
	byNaming     = "files of its naming show the format"
	noName       = "its name does not say the shards' format"
	noContent    = "its content is not of a format that lsiofs knows"
	onlyText     = "it is text, which counts only where nothing else does"
	otherName    = "another name of a shard"
	notAskedName = "its name does not say the format that was asked for"

	describesShard = "it describes a shard"
)

// decision is the verdict on each file of a listing.
type decision struct {
	format  string // "" if there are no shards
	named   bool   // by their names
	taken   []bool
	reasons []string // for each file
}

// contested reports whether a file has the name of a tar, which may contain games of lc0.
func contested(f *file) bool {
	return f.name.Format == "tar" && f.name.Codec == nil && strings.HasSuffix(f.Object.Path, ".tar")
}

// named reports whether any name of the target implies a format. The name of a tar does not count
// if the tar turns out to contain games, whose names imply nothing.
func named(files []file, namings []naming, shown []string) bool {
	return slices.ContainsFunc(namings, func(n naming) bool {
		return n.format != "" && n.format != textFormat && n.formatOf(files, shown) == n.format
	})
}

// wanted returns the files whose first bytes decide needs. If some name implies a format, these are
// the tars, which may contain games, and one file of each other naming pattern with two or more
// files; otherwise, all files whose names do not imply one. Empty files show nothing. shown is the
// result of earlier looks.
func wanted(files []file, namings []naming, shown []string) (list []int) {
	byName := named(files, namings, shown)
	for _, n := range namings {
		switch {
		case n.format != "":
			for _, i := range n.files {
				if contested(&files[i]) && files[i].Object.SizeBytes > 0 {
					list = append(list, i)
				}
			}
		case byName && len(n.files) < 2:
		default:
			for _, i := range n.files {
				if files[i].Object.SizeBytes == 0 {
					continue
				}
				list = append(list, i)
				if byName {
					break
				}
			}
		}
	}
	slices.Sort(list)
	return list
}

// formatOf returns the format of a naming pattern: the one that its names imply, or else the first
// one that any of its files shows; "" for none. shown has a format for each file that was looked
// at.
func (n *naming) formatOf(files []file, shown []string) string {
	shows := func(format string) bool {
		return slices.ContainsFunc(n.files, func(i int) bool { return shown[i] == format })
	}
	if n.format != "" {
		if n.format == "tar" && slices.ContainsFunc(n.files, func(i int) bool { return contested(&files[i]) }) && shows("lc0") {
			return "lc0"
		}
		return n.format
	}
	for _, format := range formats.OfContent() {
		if shows(format) {
			return format
		}
	}
	return ""
}

// decide returns the verdicts for format auto. shown is the format that each wanted file has shown,
// "" for none. of has the naming patterns of each format that counts; more than one format is an
// error, which the caller formulates. alike are naming patterns that are left out by name but show
// the same format as the named shards, which is an error likewise.
func decide(files []file, namings []naming, shown []string) (d decision, of map[string][]naming, alike []naming) {
	d = decision{named: named(files, namings, shown), taken: make([]bool, len(files)), reasons: make([]string, len(files))}
	of = map[string][]naming{}
	var text, rest []naming
	for _, n := range namings {
		switch format := n.formatOf(files, shown); {
		case format == textFormat:
			text = append(text, n)
		case format == "" || d.named && n.format == "":
			rest = append(rest, n)
		default:
			of[format] = append(of[format], n)
		}
	}
	if len(of) == 0 && len(text) > 0 {
		of[textFormat], text, d.named = text, nil, true
	}
	for format := range of {
		d.format = format
	}
	for _, n := range text {
		d.leave(n, onlyText)
	}
	for _, n := range rest {
		reason := noContent
		if d.named {
			reason = noName
		}
		d.leave(n, reason)
		if d.named && len(of) == 1 && len(n.files) > 1 && n.formatOf(files, shown) == d.format {
			alike = append(alike, n)
		}
	}
	for format, list := range of {
		for _, n := range list {
			for _, i := range n.files {
				d.taken[i], d.reasons[i] = true, byNaming
				switch {
				case d.named:
					d.reasons[i] = byItsName
				case shown[i] == format:
					d.reasons[i] = byContent
				}
			}
		}
	}
	return d, of, alike
}

func (d *decision) leave(n naming, reason string) {
	for _, i := range n.files {
		d.reasons[i] = reason
	}
}

// decideAsked returns the verdicts if a format was requested. counts are the numbers of files by
// extension if no name implies the format and there are several extensions, which is an error.
func decideAsked(f format.Format, files []file) (d decision, counts map[string]int) {
	d = decision{format: f.Name(), taken: make([]bool, len(files)), reasons: make([]string, len(files))}
	for i := range files {
		if says(f, &files[i]) {
			d.named, d.taken[i], d.reasons[i] = true, true, byItsName
		} else {
			d.reasons[i] = notAskedName
		}
	}
	if d.named {
		return d, nil
	}
	counts = map[string]int{}
	for i := range files {
		d.taken[i], d.reasons[i] = true, byAsking
		counts[formats.Extension(files[i].Object.Path)]++
	}
	if len(counts) > 1 {
		return d, counts
	}
	return d, nil
}

// says reports whether a name implies a format, or, for lc0, does not rule it out: games have no
// name of their own, so a .gz without another meaning or a .tar may be one.
func says(f format.Format, c *file) bool {
	if own, ok := f.(format.OwnCodecs); ok {
		return own.Takes(c.Object.Path) && (c.name.Format == "" || contested(c))
	}
	return formats.Requests(f.Name(), c.name)
}

// Named reports whether a name by itself implies a format.
func Named(path string) bool {
	f := formats.ParseName(path).Format
	return f != "" && f != textFormat
}

// Takes reports whether a file has a name like the shards of a dataset of format f. Formats whose
// names imply nothing take all names.
func Takes(f format.Format, path string) bool {
	n := formats.ParseName(path)
	c := file{Shard: Shard{}, name: n}
	c.Object.Path = path
	return !formats.IsDetected(f.Name()) || says(f, &c)
}

// without returns the numbers of list that are not in others, both ascending.
func without(list, others []int) []int {
	return slices.DeleteFunc(slices.Clone(list), func(i int) bool {
		_, is := slices.BinarySearch(others, i)
		return is
	})
}

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
