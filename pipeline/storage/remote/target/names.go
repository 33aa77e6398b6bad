package target

import (
	"fmt"
	"strconv"
	"strings"
)

// maxNames bounds the files of one dataset at a web server: each has to be asked for its size.
const maxNames = 1 << 20

// numbers is one range, such as {000..146}.
type numbers struct {
	low, high uint64
	width     int // zero-padded to this width
}

// expand returns the files that a percent-encoded path with ranges of numbers names. The last range
// varies fastest.
func expand(raw, query string) ([]Name, error) {
	var literals []string
	var ranges []numbers
	rest, total := raw, uint64(1)
	for {
		before, from, found := strings.Cut(rest, "{")
		if strings.Contains(before, "}") {
			return nil, fmt.Errorf("the path has a } without {: where the name has one, write %%7D")
		}
		literals = append(literals, before)
		if !found {
			break
		}
		within, after, found := strings.Cut(from, "}")
		r, err := parseNumbers(within)
		if !found || err != nil {
			return nil, fmt.Errorf("braces stand for ranges of numbers here, as {000..146}: %w", err)
		}
		count := r.high - r.low + 1
		if count > maxNames/total {
			return nil, fmt.Errorf("the ranges stand for more than %d files", maxNames)
		}
		total *= count
		ranges, rest = append(ranges, r), after
	}
	names := make([]Name, 0, total)
	for i := range total {
		name, err := newName(combine(literals, ranges, i), query)
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// combine inserts the i-th combination of numbers between the literals.
func combine(literals []string, ranges []numbers, i uint64) string {
	parts := make([]string, 0, 2*len(ranges)+1)
	for k := len(ranges) - 1; k >= 0; k-- {
		count := ranges[k].high - ranges[k].low + 1
		digits := strconv.FormatUint(ranges[k].low+i%count, 10)
		i /= count
		pad := strings.Repeat("0", max(0, ranges[k].width-len(digits)))
		parts = append(parts, literals[k+1], pad+digits)
	}
	parts = append(parts, literals[0])
	var b strings.Builder
	for k := len(parts) - 1; k >= 0; k-- {
		b.WriteString(parts[k])
	}
	return b.String()
}

// newName returns the file with a percent-encoded path.
func newName(raw, query string) (Name, error) {
	path, err := decode(raw)
	if err != nil {
		return Name{}, err
	}
	return Name{Path: path, Raw: escape(raw, sent), Query: query, SizeBytes: -1}, nil
}

func parseNumbers(s string) (numbers, error) {
	a, b, found := strings.Cut(s, "..")
	if !found || !isNumber(a) || !isNumber(b) {
		return numbers{}, fmt.Errorf("%q is none; where the name has a brace, write %%7B or %%7D", "{"+s+"}")
	}
	low, err1 := strconv.ParseUint(a, 10, 32)
	high, err2 := strconv.ParseUint(b, 10, 32)
	if err1 != nil || err2 != nil || len(a) > 32 || len(b) > 32 {
		return numbers{}, fmt.Errorf("{%s} has a number that is too large", s)
	}
	if low > high {
		return numbers{}, fmt.Errorf("{%s} goes down: write {%s..%s}", s, b, a)
	}
	r := numbers{low: low, high: high}
	if len(a) > 1 && a[0] == '0' || len(b) > 1 && b[0] == '0' {
		r.width = max(len(a), len(b))
	}
	return r, nil
}

func isNumber(s string) bool {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
	}
	return s != ""
}
