package discover

import (
	"regexp"
	"slices"
	"strings"
)

// wildcards finds what the wildcards and ranges of a pattern match in a path.
type wildcards struct{ of []*regexp.Regexp }

func newWildcards(p *pattern) wildcards {
	var w wildcards
	for i := range p.alternatives {
		w.of = append(w.of, regexp.MustCompile(capturing(p.alternatives[i].text)))
	}
	return w
}

// in returns the texts that the wildcards match in a path, in their order.
func (w wildcards) in(path string) []string {
	for _, r := range w.of {
		if m := r.FindStringSubmatch(path); m != nil {
			return m[1:]
		}
	}
	return nil
}

// capturing translates a pattern without alternatives into a regular expression that captures what
// its wildcards match.
func capturing(p string) string {
	var b strings.Builder
	b.WriteString("^")
	for i := 0; i < len(p); i++ {
		switch c := p[i]; c {
		case '\\':
			if i++; i < len(p) {
				b.WriteString(regexp.QuoteMeta(p[i : i+1]))
			}
		case '*':
			switch {
			case strings.HasPrefix(p[i:], "**/"):
				b.WriteString("(?:(.*)/)?")
				i += 2
			case strings.HasPrefix(p[i:], "**"):
				b.WriteString("(.*)")
				i++
			default:
				b.WriteString("([^/]*)")
			}
		case '?':
			b.WriteString("([^/])")
		case '[':
			end := strings.IndexByte(p[i:], ']')
			if end < 0 {
				b.WriteString(regexp.QuoteMeta(p[i:]))
				i = len(p)
				break
			}
			b.WriteString("([^/])")
			i += end
		case '{':
			if _, n, ok, _ := parseRange(p[i:]); ok {
				b.WriteString("([0-9]+)")
				i += n - 1
				break
			}
			b.WriteString(regexp.QuoteMeta("{"))
		default:
			b.WriteString(regexp.QuoteMeta(p[i : i+1]))
		}
	}
	return b.String() + "$"
}

// belong reports whether the wildcards of two patterns match the same text, or the same numbers, in
// two paths. If one pattern has no wildcards, there is nothing to compare.
func belong(a, b []string) bool {
	switch {
	case len(a) == 0 || len(b) == 0:
		return true
	case len(a) != len(b):
		return sameNumbers(strings.Join(a, "/"), strings.Join(b, "/"))
	}
	for i := range a {
		if a[i] != b[i] && !sameNumbers(a[i], b[i]) {
			return false
		}
	}
	return true
}

// sameNumbers reports whether two texts have the same numbers in the same order, at least one,
// regardless of leading zeros.
func sameNumbers(a, b string) bool {
	x, y := numbersOf(a), numbersOf(b)
	return len(x) > 0 && slices.Equal(x, y)
}

func numbersOf(s string) (list []string) {
	isNoDigit := func(r rune) bool { return r < '0' || r > '9' }
	for _, n := range strings.FieldsFunc(s, isNoDigit) {
		list = append(list, strings.TrimLeft(n, "0"))
	}
	return list
}
