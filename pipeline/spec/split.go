package spec

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// SplitBy is the unit that a split keeps together (pipeline/order/SELECTION.md, Splits).
type SplitBy string

const (
	SplitByRecord SplitBy = "record" // each record separately
	SplitByShard  SplitBy = "shard"  // all records of a shard
	SplitByUnit   SplitBy = "unit"   // the records from one entry point of a shard to the next
)

// Split selects the part of a dataset that is ordered. The zero value selects the whole
// dataset. Equal values select the same records.
type Split struct {
	Part Part
	Seed uint64
	// By may be "", meaning the format's own unit, until the dataset is open.
	By SplitBy
}

// Or returns s, or the zero Split if its part is the whole dataset ("0..1"): seed and unit have no
// effect then.
func (s Split) Or() Split {
	if s.Part.Whole() {
		return Split{}
	}
	return s
}

// Part is the half-open interval [From, To) of a split, in billionths: fractions
// are decimal and have at most 9 digits. The zero value means all, like 0..1.
type Part struct{ From, To uint32 }

// billion is 1, in billionths; partDigits is the number of its zeros.
const (
	billion    = 1_000_000_000
	partDigits = 9
)

// Whole reports whether p is the whole dataset.
func (p Part) Whole() bool { return p == Part{} || p == Part{0, billion} }

// String returns p in the shortest decimals, such as "0..0.9".
func (p Part) String() string {
	if p.Whole() {
		return "0..1"
	}
	return fractionText(p.From) + ".." + fractionText(p.To)
}

func fractionText(n uint32) string {
	if n%billion == 0 {
		return strconv.FormatUint(uint64(n/billion), 10)
	}
	return strings.TrimRight(fmt.Sprintf("%d.%09d", n/billion, n%billion), "0")
}

// Bounds returns the first draw in the part, and the number of draws in it. A draw u is in the part
// if u - from < count, computed modulo 2⁶⁴; count 0 means all 2⁶⁴. from is floor(a·2⁶⁴), and count
// its distance to floor(b·2⁶⁴).
func (p Part) Bounds() (from, count uint64) {
	if p.Whole() {
		return 0, 0
	}
	from = floor64(p.From)
	return from, floor64(p.To) - from
}

// floor64 returns floor(n·2⁶⁴/10⁹), 0 for 1.
func floor64(n uint32) uint64 {
	if n == billion {
		return 0
	}
	quotient, _ := bits.Div64(uint64(n), 0, billion)
	return quotient
}

// ParsePart parses "a..b": decimal fractions of at most 9 digits after the point, with 0 ≤ a < b ≤
// 1. Nothing is rounded.
func ParsePart(text string) (Part, error) {
	a, b, two := strings.Cut(text, "..")
	from, ok := parseFraction(a)
	to, ok2 := parseFraction(b)
	switch {
	case !two || !ok || !ok2:
		return Part{}, fmt.Errorf("%q is not a part of a dataset: write two fractions between 0 and 1 with at most 9 digits after the point, such as 0..0.9", text)
	case from >= to:
		return Part{}, fmt.Errorf("%q is an empty part: the first fraction must be below the second, such as 0..0.9", text)
	}
	return Part{from, to}, nil
}

// parseFraction parses a decimal fraction from 0 to 1, in billionths.
func parseFraction(text string) (uint32, bool) {
	whole, digits, point := strings.Cut(text, ".")
	if whole != "0" && whole != "1" || point && digits == "" || len(digits) > partDigits {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseUint(whole+digits+strings.Repeat("0", partDigits-len(digits)), 10, 32)
	return uint32(n), err == nil && n <= billion
}

func (s Split) validate(p *problems) {
	if s.Part.From > s.Part.To || s.Part.To > billion || s.Part.From == s.Part.To && s.Part.To != 0 {
		p.addf("--split (%s) must be two fractions between 0 and 1, the first below the second, as 0..0.9", s.Part)
	}
	if s.By != "" {
		oneOf(p, "--split-by", s.By, SplitByRecord, SplitByShard, SplitByUnit)
	}
}
