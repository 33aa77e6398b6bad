package discover

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

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
