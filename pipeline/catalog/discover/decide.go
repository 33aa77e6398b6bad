package discover

import (
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/unpack"
	"github.com/lsiofs/lsiofs/pipeline/unpack/formats"
	"github.com/lsiofs/lsiofs/pipeline/unpack/lc0"
)

// textFormat counts only where nothing else does.
const textFormat = "lines"

// sniffed are the formats that content shows, in the order in which they are asked.
var sniffed = []string{"lc0", "tar", "tfrecord", "jsonl"}

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
)

// decision is what becomes of each file of a listing.
type decision struct {
	format  string // "" where there are no shards
	named   bool   // names have said it
	taken   []bool
	reasons []string // of each file
}

// contested reports whether a name is one of tars that may hold games of lc0.
func contested(f *file) bool {
	return f.name.Format == "tar" && f.name.Codec == nil && strings.HasSuffix(f.Object.Path, ".tar")
}

// named reports whether a name of the target says a format. One of tars does not say it where
// these turn out to be of games, which names say nothing of.
func named(files []file, namings []naming, shown []string) bool {
	return slices.ContainsFunc(namings, func(n naming) bool {
		return n.format != "" && n.format != textFormat && n.formatOf(files, shown) == n.format
	})
}

// wanted are the files whose first bytes decide has to know: where a name says a format, the
// tars, which may hold games, and one file of each other naming of two or more; else all whose
// names say nothing. Files of no bytes show nothing. shown is what looks have shown before.
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

// formatOf is the format of a naming: the one that its names say, or else the first one that a
// file of it shows; "" for none. shown has a name for each file that was looked at.
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
	for _, format := range sniffed {
		if shows(format) {
			return format
		}
	}
	return ""
}

// decide gives the verdicts of auto. shown is what looks have shown of the wanted files, ""
// for nothing. of has the namings of each format that counts: there may be more than one, which
// is an error for the caller to word; alike are those that names leave out and that show the
// format that names say, likewise.
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

// decideAsked gives the verdicts where a format was asked for. counts are the files by
// extension where no name says the format and there are several, which is an error.
func decideAsked(f unpack.Format, files []file) (d decision, counts map[string]int) {
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

// says reports whether a name says a format, or does not rule it out for lc0, whose games have
// no name of their own: a .gz that says nothing else, a .tar.
func says(f unpack.Format, c *file) bool {
	if own, ok := f.(unpack.OwnCodecs); ok {
		return own.Takes(c.Object.Path) && (c.name.Format == "" || contested(c))
	}
	return c.name.Format == f.Name()
}

// Named reports whether a name says a format by itself.
func Named(path string) bool {
	f := formats.ParseName(path).Format
	return f != "" && f != textFormat
}

// Takes reports whether a file of a dataset of the format f has a name as its shards have.
// Formats whose names say nothing take all names.
func Takes(f unpack.Format, path string) bool {
	n := formats.ParseName(path)
	c := file{Shard: Shard{}, name: n}
	c.Object.Path = path
	return f.Name() == "fixed" || ofDirectories(f.Name()) || says(f, &c)
}

// mayBeLc0 reports whether a file may be a shard of lc0 by its name.
func mayBeLc0(path string) bool { return lc0.Format{}.Takes(path) }

// ofDirectories reports whether a format's shards are directories.
func ofDirectories(name string) bool { return name == "files" || name == "zarr" }

// without returns the numbers of list that are not in others, both ascending.
func without(list, others []int) []int {
	return slices.DeleteFunc(slices.Clone(list), func(i int) bool {
		_, is := slices.BinarySearch(others, i)
		return is
	})
}
