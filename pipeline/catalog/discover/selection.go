package discover

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/dustin/go-humanize"
)

// Selection is a summary of what was taken of a target, and what was left out.
type Selection struct {
	// Taken are the shards by naming, in dataset order: at most mostGroups of Groups.
	Taken  []Group
	Groups int
	Shards int
	// LeftOut counts what is not a shard: files, and directories that were not entered, which count
	// as one. FirstLeft are the first ones by path, at most firstLeft.
	LeftOut   int
	FirstLeft []Verdict
	// Notes are what else a user should know about the selection.
	Notes []string
	// Files lists everything, by path, if Config.Files is set.
	Files []Verdict
}

// Group is the shards of one naming.
type Group struct {
	Naming string `json:"naming"` // "train-{00000..00146}.tar"
	Shards int    `json:"shards"`
}

// Verdict is the decision on a file. The path of a directory that was not entered ends in '/'.
type Verdict struct {
	Path   string `json:"path"`
	Shard  bool   `json:"shard"`
	Reason string `json:"reason"`
}

// PassedOver is the reason for a file of another format in a growing dataset.
const PassedOver = noName

const (
	mostGroups = 3
	firstLeft  = 3
)

// selection summarizes what was taken and what was left out, including by the listing.
func (f *finder) selection(files []file, d decision) Selection {
	s := Selection{Notes: slices.Concat(f.unused, f.notes)}
	for _, n := range namingsOf(files) {
		var paths []string
		for _, i := range n.files {
			if d.taken[i] {
				paths = append(paths, files[i].Object.Path)
			}
		}
		if len(paths) == 0 {
			continue
		}
		s.Shards += len(paths)
		if s.Groups++; s.Groups <= mostGroups {
			s.Taken = append(s.Taken, Group{NamingText(paths), len(paths)})
		}
	}
	var left []Verdict
	for _, v := range f.left {
		left = append(left, v)
	}
	for i := range files {
		v := Verdict{Path: files[i].Object.Path, Shard: d.taken[i], Reason: d.reasons[i]}
		if f.Files {
			s.Files = append(s.Files, v)
		}
		if !v.Shard {
			left = append(left, v)
		}
	}
	sortVerdicts(left)
	s.LeftOut = len(left)
	s.FirstLeft = slices.Clone(left[:min(firstLeft, len(left))])
	if f.Files {
		for _, v := range f.left {
			s.Files = append(s.Files, v)
		}
		sortVerdicts(s.Files)
	}
	return s
}

// sortVerdicts sorts by path. It avoids slices.SortFunc, which adds some 10 KB to the binary for
// each type.
func sortVerdicts(list []Verdict) {
	sort.Slice(list, func(i, j int) bool { return list[i].Path < list[j].Path })
}

// SelectionOf returns the selection of a growing dataset, from its shards, in dataset order, and
// the verdicts on other files.
func SelectionOf(shards []string, left []Verdict) Selection {
	var s Selection
	of := map[string]int{}
	var groups [][]string
	for _, path := range shards {
		n, known := of[NamingOf(path)]
		if !known {
			n = len(groups)
			of[NamingOf(path)] = n
			groups = append(groups, nil)
		}
		groups[n] = append(groups[n], path)
	}
	s.Shards, s.Groups = len(shards), len(groups)
	for _, paths := range groups[:min(mostGroups, len(groups))] {
		s.Taken = append(s.Taken, Group{NamingText(paths), len(paths)})
	}
	sortVerdicts(left)
	s.LeftOut = len(left)
	s.FirstLeft = slices.Clone(left[:min(firstLeft, len(left))])
	return s
}

// Add adds the selection of a source of a mixture, whose shards have its name as a prefix.
func (s *Selection) Add(source string, x *Selection) {
	for _, g := range x.Taken {
		if len(s.Taken) < mostGroups {
			s.Taken = append(s.Taken, Group{source + "/" + g.Naming, g.Shards})
		}
	}
	s.Groups, s.Shards, s.LeftOut = s.Groups+x.Groups, s.Shards+x.Shards, s.LeftOut+x.LeftOut
	named := func(v Verdict) Verdict {
		v.Path = source + "/" + v.Path
		return v
	}
	for _, v := range x.FirstLeft {
		if len(s.FirstLeft) < firstLeft {
			s.FirstLeft = append(s.FirstLeft, named(v))
		}
	}
	for _, v := range x.Files {
		s.Files = append(s.Files, named(v))
	}
	for _, n := range x.Notes {
		s.Notes = append(s.Notes, source+": "+n)
	}
}

// TakenText describes in one line what was taken: "train-{00000..00146}.tar, 147 shards".
func (s *Selection) TakenText() string {
	var names []string
	for _, g := range s.Taken {
		names = append(names, g.Naming)
	}
	if more := s.Groups - len(s.Taken); more > 0 {
		names = append(names, fmt.Sprintf("and %s more", plural(more, "naming")))
	}
	return strings.Join(names, ", ") + ", " + plural(s.Shards, "shard")
}

// LeftOutText describes in one line what was left out, "" for nothing.
func (s *Selection) LeftOutText() string {
	if s.LeftOut == 0 {
		return ""
	}
	var names []string
	for _, v := range s.FirstLeft {
		names = append(names, v.Path)
	}
	text := plural(s.LeftOut, "file") + ": " + strings.Join(names, ", ")
	if s.LeftOut > len(names) {
		text += ", …"
	}
	return text
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return humanize.Comma(int64(n)) + " " + noun + "s"
}
