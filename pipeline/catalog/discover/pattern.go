package discover

import (
	"fmt"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// pattern chooses files by their path relative to the root.
type pattern struct {
	text     string
	loose    string   // the same with ranges widened: what doublestar understands
	parts    []string // components of loose; nil where braces span components
	literals []string
	ranges   []numberRange
	within   []bool // of each range: whether it lies in an alternative
}

// maxRangeWithin bounds a range in an alternative: {part-{0..3},rest}. A path
// need not have its number, so all of them are tried on each path.
const maxRangeWithin = 4096

func parsePattern(text string) (*pattern, error) {
	literals, ranges, err := splitRanges(text)
	if err != nil {
		return nil, err
	}
	p := &pattern{text: text, literals: literals, ranges: ranges}
	open := 0
	for i, l := range literals {
		p.loose += l
		if i == len(ranges) {
			break
		}
		p.loose += ranges[i].loose()
		open = depth(l, open)
		p.within = append(p.within, open > 0)
		if open > 0 && ranges[i].count() > maxRangeWithin {
			return nil, fmt.Errorf("pattern %q has a range of more than %d numbers within braces: use * there", text, maxRangeWithin)
		}
	}
	if !doublestar.ValidatePattern(p.loose) {
		return nil, fmt.Errorf("pattern %q is not well formed: check its brackets and braces", text)
	}
	p.parts = components(p.loose)
	return p, nil
}

// components splits a pattern at its slashes, or gives nil when one is inside
// of braces.
func components(p string) []string {
	depth := 0
	for i := 0; i < len(p); i++ {
		switch p[i] {
		case '\\':
			i++
		case '{':
			depth++
		case '}':
			depth--
		case '/':
			if depth > 0 {
				return nil
			}
		}
	}
	return strings.Split(p, "/")
}

// match is for storage.Storage's List: files that the pattern may want, and
// directories that it can enter.
func (p *pattern) match(path string, isDir bool) bool {
	if !isDir {
		return doublestar.MatchUnvalidated(p.loose, path)
	}
	if p.parts == nil {
		return true
	}
	for i, name := range strings.Split(path, "/") {
		if i >= len(p.parts)-1 {
			return i < len(p.parts) && p.parts[i] == "**"
		}
		if p.parts[i] == "**" {
			return true
		}
		if !doublestar.MatchUnvalidated(p.parts[i], name) {
			return false
		}
	}
	return true
}

// choose keeps the objects that the pattern's ranges name, and fails where a
// number has none.
func (p *pattern) choose(objects []storage.Object) ([]storage.Object, error) {
	if len(p.ranges) == 0 {
		return objects, nil
	}
	total := uint64(1)
	for _, r := range p.ranges {
		total *= r.count()
	}
	if p.plain() {
		return p.chooseNames(objects, total)
	}
	seen := make([]bool, total)
	chosen := objects[:0]
	for _, o := range objects {
		if p.mark(o.Path, 0, 0, p.literals[0], seen) {
			chosen = append(chosen, o)
		}
	}
	for i, s := range seen {
		if !s {
			return nil, p.missing(uint64(i))
		}
	}
	return chosen, nil
}

// plain says whether the pattern has nothing but ranges.
func (p *pattern) plain() bool {
	for _, l := range p.literals {
		if hasMeta(l) {
			return false
		}
	}
	return true
}

// chooseNames is choose for patterns each number of which names one file.
func (p *pattern) chooseNames(objects []storage.Object, total uint64) ([]storage.Object, error) {
	listed := make(map[string]int, len(objects))
	for i, o := range objects {
		listed[o.Path] = i
	}
	chosen := make([]storage.Object, 0, total)
	for i := range total {
		k, ok := listed[p.expand(i)]
		if !ok {
			return nil, p.missing(i)
		}
		chosen = append(chosen, objects[k])
	}
	return chosen, nil
}

// expand is the pattern with the numbers of combination i put in.
func (p *pattern) expand(i uint64) string {
	numbers := make([]string, len(p.ranges))
	for k := len(p.ranges) - 1; k >= 0; k-- {
		n := p.ranges[k].count()
		numbers[k] = p.ranges[k].number(i % n)
		i /= n
	}
	s := p.literals[0]
	for k, number := range numbers {
		s += number + p.literals[k+1]
	}
	return s
}

func (p *pattern) missing(i uint64) error {
	return fmt.Errorf("%s is missing: the pattern's range names it; restore the file or change the range", p.expand(i))
}

// mark sets seen, unless it is nil, for each combination of numbers that path matches, and
// says whether there was one. head is the pattern up to range k, index the
// combination so far.
func (p *pattern) mark(path string, k int, index uint64, head string, seen []bool) bool {
	if k == len(p.ranges) {
		if !doublestar.MatchUnvalidated(head, path) {
			return false
		}
		if seen != nil {
			seen[index] = true
		}
		return true
	}
	r, found := p.ranges[k], false
	try := func(i uint64) {
		if p.mark(path, k+1, index*r.count()+i, head+r.number(i)+p.literals[k+1], seen) {
			found = true
		}
	}
	if !p.within[k] {
		for _, i := range r.in(path) {
			try(i)
		}
		return found
	}
	for i := range r.count() {
		try(i)
	}
	return found
}

// depth is how many braces are open behind a piece of a pattern, when open were
// before it.
func depth(literal string, open int) int {
	for i := 0; i < len(literal); i++ {
		switch literal[i] {
		case '\\':
			i++
		case '{':
			open++
		case '}':
			open--
		}
	}
	return open
}
