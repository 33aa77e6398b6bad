package discover

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// pattern selects files by their path relative to the root. A path matches if any alternative does:
// "{a,b}-{00..11}" is "a-{00..11}" and "b-{00..11}".
type pattern struct {
	text         string
	alternatives []alternative
	literal      map[string]int // alternatives that are the path of one file
	within       map[string]bool
}

// alternative is a pattern without {a,b}.
type alternative struct {
	text     string
	loose    string   // the same with ranges widened to what doublestar understands
	parts    []string // components of loose
	literals []string
	ranges   []numberRange
}

// maxAlternatives bounds the number of alternatives of one pattern.
const maxAlternatives = 1 << 14

func parsePattern(text string) (*pattern, error) {
	texts, ok := expandAlternatives(text)
	if !ok {
		return nil, fmt.Errorf("pattern %q stands for more than %d alternatives: use * instead of some", text, maxAlternatives)
	}
	p := &pattern{text: text, literal: map[string]int{}, within: map[string]bool{}}
	for i, t := range texts {
		literals, ranges, err := splitRanges(t)
		if err != nil {
			return nil, err
		}
		a := alternative{text: t, literals: literals, ranges: ranges, loose: literals[0]}
		for k, r := range ranges {
			a.loose += r.loose() + literals[k+1]
		}
		if !doublestar.ValidatePattern(a.loose) {
			return nil, fmt.Errorf("pattern %q is malformed: check its brackets and braces", text)
		}
		a.parts = strings.Split(a.loose, "/")
		p.alternatives = append(p.alternatives, a)
		if a.names() {
			p.literal[t] = i
			for at, c := range t {
				if c == '/' {
					p.within[t[:at]] = true
				}
			}
		}
	}
	return p, nil
}

// expandAlternatives returns the alternatives of a pattern with {a,b}. Ranges are left unexpanded.
func expandAlternatives(text string) ([]string, bool) {
	open, close, commas := bracesOf(text)
	if close < 0 {
		return []string{text}, true
	}
	var list []string
	from := open + 1
	for _, to := range append(commas, close) {
		more, ok := expandAlternatives(text[:open] + text[from:to] + text[close+1:])
		if list = append(list, more...); !ok || len(list) > maxAlternatives {
			return nil, false
		}
		from = to + 1
	}
	return list, true
}

// bracesOf finds the first braces of a text that are not a range, and the commas in them that are
// not in nested braces. close is -1 if there are none.
func bracesOf(text string) (open, close int, commas []int) {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '[':
			if end := strings.IndexByte(text[i:], ']'); end > 0 {
				i += end
			}
		case '{':
			if _, n, ok, err := parseRange(text[i:]); ok || err != nil {
				i += max(n, 1) - 1
				continue
			}
			if depth++; depth == 1 {
				open, commas = i, nil
			}
		case ',':
			if depth == 1 {
				commas = append(commas, i)
			}
		case '}':
			if depth--; depth == 0 {
				return open, i, commas
			}
		}
	}
	return 0, -1, nil
}

// match is the match function for storage.Storage's List: it accepts files that the pattern may
// name, and directories that may contain some.
func (p *pattern) match(path string, isDir bool) bool {
	if _, is := p.literal[path]; is && !isDir || isDir && p.within[path] {
		return true
	}
	for i := range p.alternatives {
		if a := &p.alternatives[i]; !a.names() && a.match(path, isDir) {
			return true
		}
	}
	return false
}

// names reports whether an alternative is the path of one file.
func (a *alternative) names() bool { return len(a.ranges) == 0 && !hasMeta(a.text) }

func (a *alternative) match(path string, isDir bool) bool {
	if !isDir {
		return doublestar.MatchUnvalidated(a.loose, path)
	}
	for i, name := range strings.Split(path, "/") {
		if i >= len(a.parts)-1 {
			return i < len(a.parts) && a.parts[i] == "**"
		}
		if a.parts[i] == "**" {
			return true
		}
		if !doublestar.MatchUnvalidated(a.parts[i], name) {
			return false
		}
	}
	return true
}

// marks reports whether the pattern names a path, with its ranges taken into account.
func (p *pattern) marks(path string) bool {
	if _, is := p.literal[path]; is {
		return true
	}
	for i := range p.alternatives {
		a := &p.alternatives[i]
		if !a.names() && a.match(path, false) && (len(a.ranges) == 0 || a.mark(path, 0, 0, a.literals[0], nil)) {
			return true
		}
	}
	return false
}

// whyLeftOut returns why a path that a pattern names was not listed, and whether --exclude is the
// reason; "" if the path does not exist.
type whyLeftOut func(path string) (reason string, excluded bool)

// choose returns the objects that the pattern names. It fails if a number of a range has no file,
// or, if named is set, if the file that an alternative names is missing, unless leftOut reports
// that it was excluded. notes are about alternatives with wildcards that match nothing, if the
// pattern has several.
func (p *pattern) choose(objects []storage.Object, leftOut whyLeftOut, named bool) (chosen []storage.Object, notes []string, err error) {
	taken := make([]bool, len(objects))
	listed := make(map[string]int, len(objects))
	for i, o := range objects {
		listed[o.Path] = i
	}
	for i := range p.alternatives {
		a := &p.alternatives[i]
		n := 0
		switch {
		case a.names():
			k, is := listed[a.text]
			if is {
				taken[k] = true
			} else if named && len(p.alternatives) > 1 {
				if err := missing(a.text, leftOut); err != nil {
					return nil, nil, err
				}
			}
			n = 1
		case len(a.ranges) == 0:
			for k, o := range objects {
				if a.match(o.Path, false) {
					taken[k] = true
					n++
				}
			}
		default:
			if n, err = a.chooseNumbers(objects, leftOut, listed, taken); err != nil {
				return nil, nil, err
			}
		}
		if n == 0 && len(p.alternatives) > 1 {
			notes = append(notes, fmt.Sprintf("nothing matches %s, which the pattern %s names", a.text, p.text))
		}
	}
	for k, is := range taken {
		if is {
			chosen = append(chosen, objects[k])
		}
	}
	if !named && !slices.ContainsFunc(p.alternatives, func(a alternative) bool { return len(a.ranges) > 0 }) {
		return objects, notes, nil
	}
	return chosen, notes, nil
}

// chooseNumbers marks the objects that the ranges name, and fails if a number has none.
func (a *alternative) chooseNumbers(objects []storage.Object, leftOut whyLeftOut, listed map[string]int, taken []bool) (n int, err error) {
	total := uint64(1)
	for _, r := range a.ranges {
		total *= r.count()
	}
	if a.plain() {
		for i := range total {
			path := a.expand(i)
			if k, ok := listed[path]; ok {
				taken[k] = true
			} else if err := missing(path, leftOut); err != nil {
				return 0, err
			}
		}
		return int(total), nil
	}
	seen := make([]bool, total)
	for k, o := range objects {
		if a.mark(o.Path, 0, 0, a.literals[0], seen) {
			taken[k] = true
			n++
		}
	}
	for i, s := range seen {
		if !s {
			if err := missing(a.expand(uint64(i)), leftOut); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

// plain reports whether the alternative has no wildcards besides ranges.
func (a *alternative) plain() bool {
	for _, l := range a.literals {
		if hasMeta(l) {
			return false
		}
	}
	return true
}

// expand returns the alternative with the numbers of combination i filled in.
func (a *alternative) expand(i uint64) string {
	numbers := make([]string, len(a.ranges))
	for k := len(a.ranges) - 1; k >= 0; k-- {
		n := a.ranges[k].count()
		numbers[k] = a.ranges[k].number(i % n)
		i /= n
	}
	s := a.literals[0]
	for k, number := range numbers {
		s += number + a.literals[k+1]
	}
	return s
}

// missing returns the error for a file that the pattern names and that was not listed; nil if it
// was excluded.
func missing(path string, leftOut whyLeftOut) error {
	switch reason, excluded := leftOut(path); {
	case excluded:
		return nil
	case reason != "":
		return fmt.Errorf("%s is named by the pattern but is not a shard: %s: change the pattern, or leave it out with --exclude", path, reason)
	}
	return fmt.Errorf("%s is missing: the pattern names it; restore the file or change the pattern", path)
}

// mark sets seen, unless it is nil, for each combination of numbers that path matches, and reports
// whether there was one. head is the alternative up to range k, index the combination so far.
func (a *alternative) mark(path string, k int, index uint64, head string, seen []bool) bool {
	if k == len(a.ranges) {
		if !doublestar.MatchUnvalidated(head, path) {
			return false
		}
		if seen != nil {
			seen[index] = true
		}
		return true
	}
	r, found := a.ranges[k], false
	for _, i := range r.in(path) {
		if a.mark(path, k+1, index*r.count()+i, head+r.number(i)+a.literals[k+1], seen) {
			found = true
		}
	}
	return found
}

// maxRangeNumbers bounds the number of combinations of one pattern's numeric ranges: far more than
// the shards of any dataset, and still little memory.
const maxRangeNumbers = 1 << 20

// numberRange is one {000..146} of a pattern.
type numberRange struct {
	low, high uint64
	width     int // to which numbers are zero-padded; 0 for no padding
}

func (r numberRange) count() uint64 { return r.high - r.low + 1 }

func (r numberRange) number(i uint64) string {
	s := strconv.FormatUint(r.low+i, 10)
	if len(s) < r.width {
		s = strings.Repeat("0", r.width-len(s)) + s
	}
	return s
}

// widths returns the smallest and the largest number of digits of the range's numbers.
func (r numberRange) widths() (low, high int) {
	return max(r.width, len(strconv.FormatUint(r.low, 10))), max(r.width, len(strconv.FormatUint(r.high, 10)))
}

// in returns the numbers, counted from low, that occur in s in the range's notation.
func (r numberRange) in(s string) (list []uint64) {
	low, high := r.widths()
	for from := range len(s) {
		for n := low; n <= high && from+n <= len(s) && allDigits(s[from:from+n]); n++ {
			v, err := strconv.ParseUint(s[from:from+n], 10, 64)
			if err != nil || v < r.low || v > r.high || r.number(v-r.low) != s[from:from+n] || slices.Contains(list, v-r.low) {
				continue
			}
			list = append(list, v-r.low)
		}
	}
	return list
}

// loose returns a pattern without ranges that matches all of the range's numbers, and perhaps
// others.
func (r numberRange) loose() string {
	const digit = "[0-9]"
	low, high := r.widths()
	if low == high {
		return strings.Repeat(digit, high)
	}
	widths := make([]string, 0, high-low+1)
	for w := low; w <= high; w++ {
		widths = append(widths, strings.Repeat(digit, w))
	}
	return "{" + strings.Join(widths, ",") + "}"
}

// splitRanges splits a pattern at its ranges: literals has one more element than ranges. Braces
// that are not ranges, classes and escapes stay in the literals.
func splitRanges(pattern string) (literals []string, ranges []numberRange, err error) {
	from := 0
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '\\':
			i++
		case '[':
			if end := strings.IndexByte(pattern[i:], ']'); end > 0 {
				i += end
			}
		case '{':
			r, n, ok, err := parseRange(pattern[i:])
			if err != nil {
				return nil, nil, err
			}
			if ok {
				literals, ranges = append(literals, pattern[from:i]), append(ranges, r)
				from = i + n
				i = from - 1
			}
		}
	}
	total := uint64(1)
	for _, r := range ranges {
		if r.count() > maxRangeNumbers/total {
			return nil, nil, fmt.Errorf("pattern %q stands for more than %d files: use * instead of a range", pattern, maxRangeNumbers)
		}
		total *= r.count()
	}
	return append(literals, pattern[from:]), ranges, nil
}

// parseRange parses a {a..b} at the start of s, n bytes long. ok is false if s begins with other
// braces.
func parseRange(s string) (r numberRange, n int, ok bool, err error) {
	end := strings.IndexByte(s, '}')
	if end < 0 {
		return r, 0, false, nil
	}
	a, b, found := strings.Cut(s[1:end], "..")
	if !found || !allDigits(a) || !allDigits(b) {
		return r, 0, false, nil
	}
	low, err1 := strconv.ParseUint(a, 10, 32)
	high, err2 := strconv.ParseUint(b, 10, 32)
	if err1 != nil || err2 != nil || len(a) > 32 || len(b) > 32 {
		return r, 0, false, fmt.Errorf("range %s has a number that is too large", s[:end+1])
	}
	if low > high {
		return r, 0, false, fmt.Errorf("range %s goes down: write {%s..%s}", s[:end+1], b, a)
	}
	if len(a) > 1 && a[0] == '0' || len(b) > 1 && b[0] == '0' {
		r.width = max(len(a), len(b))
	}
	r.low, r.high = low, high
	return r, end + 1, true, nil
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
