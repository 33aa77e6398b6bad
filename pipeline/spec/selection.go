package spec

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
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
		p.addf("--split (%s) must be two fractions between 0 and 1, the first below the second, such as 0..0.9", s.Part)
	}
	if s.By != "" {
		oneOf(p, "--split-by", s.By, SplitByRecord, SplitByShard, SplitByUnit)
	}
}

// MaxSampleOf bounds Sample.Of (pipeline/order/SELECTION.md, Samples).
const MaxSampleOf = 65536

// Subsample selects one n-th of the records for each epoch, another one each time, so that n epochs
// are one pass (pipeline/order/SELECTION.md, Samples). The zero value selects all of them. Equal
// values select the same records.
type Subsample struct {
	Of   uint64 // n; 0: all records
	Seed uint64
}

// Or returns s, or the zero Sample if it selects all records: the seed has no effect then.
func (s Subsample) Or() Subsample {
	if s.Of <= 1 {
		return Subsample{}
	}
	return s
}

// Phase returns which of the n parts an epoch has; 0 if there is only one.
func (s Subsample) Phase(epoch uint64) uint64 {
	if s.Of <= 1 {
		return 0
	}
	return epoch % s.Of
}

// String returns the selected share, such as "1/39".
func (s Subsample) String() string { return "1/" + strconv.FormatUint(max(s.Of, 1), 10) }

// ParseSample parses "1/n", n from 1 to 65536. 1/1 is the zero value.
func ParseSample(text string) (Subsample, error) {
	if digits, ok := strings.CutPrefix(text, "1/"); ok {
		if n, err := strconv.ParseUint(digits, 10, 64); err == nil && n >= 1 && n <= MaxSampleOf && strconv.FormatUint(n, 10) == digits {
			return Subsample{Of: n}.Or(), nil
		}
	}
	return Subsample{}, fmt.Errorf("%q is not a share of a dataset: write 1/n with n between 1 and %d, such as 1/39", text, MaxSampleOf)
}

func (s Subsample) validate(p *problems) {
	if s.Of > MaxSampleOf {
		p.addf("--sample (%s) must be 1/n with n between 1 and %d", s, MaxSampleOf)
	}
}

// Bounds of a mixture (pipeline/order/SELECTION.md, Mixtures).
const (
	MinSources     = 2
	MaxSources     = 128
	MaxSourceName  = 64
	MaxMixLength   = 1 << 47
	weightDigits   = 6
	million        = 1_000_000
	maxWholeWeight = 1_000_000
)

// Source is one dataset of a mixture.
type Source struct {
	Name    string
	Weight  uint64 // in millionths
	Dataset string // same as Spec.Dataset
	Bucket  BucketWays
}

// BucketWays are the settings for accessing a source that is a bucket, which override those of
// Remote for all sources. They don't affect the bytes read.
type BucketWays struct {
	Region        string
	Addressing    Addressing
	Anonymous     bool
	RequesterPays bool
}

// Over returns r with the settings of w applied.
func (w BucketWays) Over(r Remote) Remote {
	r.Region, r.Addressing = cmp.Or(w.Region, r.Region), cmp.Or(w.Addressing, r.Addressing)
	r.Anonymous, r.RequesterPays = r.Anonymous || w.Anonymous, r.RequesterPays || w.RequesterPays
	return r
}

// String returns w in the syntax of ParseSource, with a comma before each part.
func (w BucketWays) String() (text string) {
	if w.Region != "" {
		text += ",region=" + w.Region
	}
	if w.Addressing != "" {
		text += ",addressing=" + string(w.Addressing)
	}
	if w.Anonymous {
		text += ",anonymous"
	}
	if w.RequesterPays {
		text += ",requester-pays"
	}
	return text
}

// parseBucketWays parses the settings between a weight and the dataset.
func parseBucketWays(texts []string) (w BucketWays, err error) {
	for _, text := range texts {
		name, value, _ := strings.Cut(text, "=")
		switch {
		case text == "anonymous":
			w.Anonymous = true
		case text == "requester-pays":
			w.RequesterPays = true
		case name == "region" && value != "":
			w.Region = value
		case name == "addressing" && slices.Contains([]Addressing{AddressingAuto, AddressingPath, AddressingVirtual}, Addressing(value)):
			w.Addressing = Addressing(value)
		case name == "endpoint":
			return w, fmt.Errorf("the service of a source is part of its dataset's name: write s3+https://HOST/BUCKET/PREFIX")
		default:
			return w, fmt.Errorf("%q can't follow the weight: the settings are anonymous, requester-pays, region=REGION and addressing=path|virtual|auto", withoutURL(text))
		}
	}
	return w, nil
}

// MixBy is the quantity that weights are shares of.
type MixBy string

const (
	MixByRecords MixBy = "records" // the records of a stream
	MixByBytes   MixBy = "bytes"   // approximately, the bytes of a stream
)

// MixLength is how the length of a mixture's epoch is computed if no number was given.
type MixLength string

const (
	MixFirst MixLength = "first" // the longest epoch in which no record repeats; the default
	MixAll   MixLength = "all"   // the shortest epoch that has every record
)

// Mix are datasets that are mixed by weights. The zero value means no mixture. If the number of
// positions of an epoch was given, it is Order.Length.
type Mix struct {
	Sources []Source
	By      MixBy     // "": by records
	Length  MixLength // "": first
}

// Asked reports whether there is a mixture.
func (m Mix) Asked() bool { return len(m.Sources) > 0 }

// String lists the sources, for messages.
func (m Mix) String() string {
	texts := make([]string, len(m.Sources))
	for i, s := range m.Sources {
		texts[i] = s.String()
	}
	return strings.Join(texts, " ")
}

// String returns the source in the syntax of ParseSource.
func (s Source) String() string {
	return s.Name + "=" + WeightText(s.Weight) + s.Bucket.String() + ":" + s.Dataset
}

// WeightText formats a weight in millionths as a decimal, such as "0.5".
func WeightText(millionths uint64) string {
	whole := strconv.FormatUint(millionths/million, 10)
	if millionths%million == 0 {
		return whole
	}
	return whole + "." + strings.TrimRight(fmt.Sprintf("%06d", millionths%million), "0")
}

// ParseSource parses NAME=WEIGHT:DATASET. The weight may be followed by bucket settings, each after
// a comma.
func ParseSource(text string) (Source, error) {
	name, rest, named := strings.Cut(text, "=")
	weight, dataset, weighed := strings.Cut(rest, ":")
	if !named || !weighed || dataset == "" {
		return Source{}, fmt.Errorf("%q is not a source of a mixture: write NAME=WEIGHT:DATASET, such as web=70:/data/web", withoutURL(text))
	}
	if err := checkSourceName(name); err != nil {
		return Source{}, err
	}
	parts := strings.Split(weight, ",")
	w, err := parseWeight(parts[0])
	if err != nil {
		return Source{}, fmt.Errorf("source %s: %w", name, err)
	}
	ways, err := parseBucketWays(parts[1:])
	if err == nil && ways != (BucketWays{}) && !strings.HasPrefix(strings.ToLower(dataset), "s3") {
		err = fmt.Errorf("%s is for buckets (s3://)", strings.Join(parts[1:], ","))
	}
	if err != nil {
		return Source{}, fmt.Errorf("source %s: %w", name, err)
	}
	return Source{Name: name, Weight: w, Dataset: dataset, Bucket: ways}, nil
}

func checkSourceName(name string) error {
	const allowed = "abcdefghijklmnopqrstuvwxyz0123456789_-"
	if name == "" || len(name) > MaxSourceName || strings.Trim(name, allowed) != "" {
		return fmt.Errorf("%q is not a name of a source: use 1 to %d lowercase letters, digits, _ and -", withoutURL(name), MaxSourceName)
	}
	return nil
}

// withoutURL returns text in a form that messages may quote: a URL may contain a secret.
func withoutURL(text string) string {
	if before, _, is := strings.Cut(text, "://"); is {
		return before + "://…"
	}
	return text
}

// parseWeight parses a decimal with at most 6 digits after the point, in millionths.
func parseWeight(text string) (uint64, error) {
	whole, digits, point := strings.Cut(text, ".")
	wrong := fmt.Errorf("its weight (%q) must be a decimal number above 0 and at most %d, with at most %d digits after the point", text, maxWholeWeight, weightDigits)
	if whole == "" || point && digits == "" || len(digits) > weightDigits || strings.Trim(whole+digits, "0123456789") != "" {
		return 0, wrong
	}
	n, err := strconv.ParseUint(whole+digits+strings.Repeat("0", weightDigits-len(digits)), 10, 64)
	if err != nil || n == 0 || n > maxWholeWeight*million {
		return 0, wrong
	}
	return n, nil
}

// validateMix reports invalid settings of a mixture.
func (s Spec) validateMix(p *problems) {
	m := s.Mix
	if !m.Asked() {
		return
	}
	if n := len(m.Sources); n < MinSources || n > MaxSources {
		p.addf("a mixture of %d must have between %d and %d sources: give --mix once for each", n, MinSources, MaxSources)
	}
	names := map[string]bool{}
	for _, x := range m.Sources {
		if err := checkSourceName(x.Name); err != nil {
			p.addf("--mix: %w", err)
		}
		if names[x.Name] {
			p.addf("--mix: two sources are named %s: each needs a name of its own", x.Name)
		}
		names[x.Name] = true
		if x.Weight < 1 || x.Weight > maxWholeWeight*million {
			p.addf("--mix: the weight of source %s (%s) must be above 0 and at most %d", x.Name, WeightText(x.Weight), maxWholeWeight)
		}
		if x.Dataset == "" {
			p.addf("--mix: source %s names no dataset", x.Name)
		}
	}
	if m.By != "" {
		oneOf(p, "--mix-by", m.By, MixByRecords, MixByBytes)
	}
	if m.Length != "" {
		oneOf(p, "--mix-length", m.Length, MixFirst, MixAll)
	}
	if s.Order.Length > MaxMixLength {
		p.addf("--mix-length (%d) must be at most %d", s.Order.Length, uint64(MaxMixLength))
	}
	if s.Order.Sample.Or() != (Subsample{}) {
		p.addf("--sample can't be combined with --mix for now: leave one of them out")
	}
}
