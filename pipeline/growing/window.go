package growing

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
)

// Measure is the unit for amounts of a dataset.
type Measure string

const (
	All     Measure = "all"
	Units   Measure = "units" // runs of records from one entry point of a shard to the next; lc0: games
	Records Measure = "records"
	Shards  Measure = "shards"
	Bytes   Measure = "bytes" // decoded
	Age     Measure = "age"   // nanoseconds between modification times
)

// Window is the size of an epoch: the newest shards, up to and including the first one that brings
// the total to N or more. The zero value is All.
type Window struct {
	Measure Measure
	N       uint64
	text    string // as given by the user
}

// ParseWindow parses "all", "500000units", "…records", "…shards", a size such as 100GiB, or a
// duration such as 72h.
func ParseWindow(text string) (Window, error) {
	if text == "" || text == string(All) {
		return Window{Measure: All, text: string(All)}, nil
	}
	if n, measure, ok := parseCount(text); ok {
		return Window{measure, n, text}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return Window{Age, uint64(d), text}, nil
	}
	if n, err := humanize.ParseBytes(text); err == nil && n > 0 && strings.HasSuffix(strings.ToLower(text), "b") {
		return Window{Bytes, n, text}, nil
	}
	return Window{}, fmt.Errorf("%q is not a window: write all, or an amount such as 500000units, 1000000records, 60shards, 100GiB (decoded) or 72h", text)
}

// parseCount parses a number above 0 and its unit.
func parseCount(text string) (n uint64, measure Measure, ok bool) {
	for _, measure := range []Measure{Units, Records, Shards} {
		if digits, ok := strings.CutSuffix(text, string(measure)); ok {
			n, err := strconv.ParseUint(digits, 10, 63)
			return n, measure, err == nil && n > 0
		}
	}
	return 0, "", false
}

// String returns the window as given.
func (w Window) String() string {
	if w.text == "" {
		return string(All)
	}
	return w.text
}

// of returns the amount that a shard counts for.
func (m Measure) of(s *catalog.LiveShard) uint64 {
	switch m {
	case Units:
		return s.Units
	case Records:
		return s.Records
	case Shards:
		return 1
	case Bytes:
		return s.Bytes
	}
	return 0
}

// Choose returns the shards of a window, from shards that are sorted by Newest; the result may
// share their slice. Only whole shards are chosen, so the last one may exceed N. now is the local
// time, which is compared with times that another machine may have set.
func (w Window) Choose(newest []catalog.LiveShard, now time.Time) []catalog.LiveShard {
	switch w.Measure {
	case "", All:
		return newest
	case Age:
		return w.chooseByAge(newest, now)
	}
	sum := uint64(0)
	for i := range newest {
		if sum += w.Measure.of(&newest[i]); sum >= w.N {
			return newest[:i+1]
		}
	}
	return newest
}

// aheadNanos is how far the clocks of two machines may differ.
const aheadNanos = int64(10 * time.Second)

// IsAhead reports whether a shard's time is in the future, by the local time now.
func IsAhead(s *catalog.LiveShard, now time.Time) bool {
	return s.ModTimeNanos > now.UnixNano()+aheadNanos
}

// chooseByAge returns the shards whose times are within N of the latest one, or after it. A time in
// the future does not count as the latest one, unless all are: a single clock that is ahead would
// exclude all other shards. If sorted by name, the chosen shards need not be adjacent.
func (w Window) chooseByAge(newest []catalog.LiveShard, now time.Time) (chosen []catalog.LiveShard) {
	last, ahead := int64(math.MinInt64), int64(math.MinInt64)
	for i := range newest {
		if s := &newest[i]; IsAhead(s, now) {
			ahead = max(ahead, s.ModTimeNanos)
		} else {
			last = max(last, s.ModTimeNanos)
		}
	}
	if last == math.MinInt64 {
		last = ahead
	}
	for i := range newest {
		if at := newest[i].ModTimeNanos; at >= last || uint64(last-at) <= w.N {
			chosen = append(chosen, newest[i])
		}
	}
	return chosen
}

// Amount is how much must be new before an epoch can start.
type Amount struct {
	Measure Measure // Units, Records or Shards
	N       uint64  // 0: nothing
}

// ParseAmount parses "0", or a number of units, records or shards.
func ParseAmount(text string) (Amount, error) {
	if n, measure, ok := parseCount(text); ok {
		return Amount{measure, n}, nil
	}
	if text == "" || text == "0" {
		return Amount{}, nil
	}
	return Amount{}, fmt.Errorf("%q is not an amount: write 0, or a number such as 40000units, 100000records or 5shards", text)
}

// Within returns an error if an epoch of window w can never have that much new data, otherwise nil.
// Because shards are taken whole, an epoch may have more units and records than the window asks
// for.
func (a Amount) Within(w Window) error {
	if a.Measure != Shards || w.Measure != Shards || a.N <= w.N {
		return nil
	}
	return fmt.Errorf("--min-new %s with --window %s would wait forever: an epoch never has more than %s shards: lower --min-new to that, or widen --window", a, w, Grouped(w.N))
}

// String returns the amount in the syntax of ParseAmount.
func (a Amount) String() string {
	if a.N == 0 {
		return "0"
	}
	return strconv.FormatUint(a.N, 10) + string(a.Measure)
}

// Enough reports whether n has the amount.
func (a Amount) Enough(n catalog.News) bool { return a.Has(n) >= a.N }

// Has returns how much is new, in the amount's measure.
func (a Amount) Has(n catalog.News) uint64 {
	switch a.Measure {
	case Units:
		return n.NewUnits
	case Records:
		return n.NewRecords
	case Shards:
		return n.NewShards
	}
	return 0
}

// Uses returns how often a record is used in the long run, if each epoch has samples records of
// which newRecords are new; +Inf if none are.
func Uses(samples, newRecords uint64) float64 { return float64(samples) / float64(newRecords) }

// By is the criterion by which a shard is newer than another.
type By string

const (
	ByName By = "name" // the numbers in base names, and everything else byte by byte
	ByTime By = "mtime"
)

// Newest sorts shards, the newest first.
func Newest(shards []catalog.LiveShard, by By) {
	if by == ByTime {
		sort.Slice(shards, func(i, j int) bool {
			a, b := &shards[i], &shards[j]
			return cmp.Or(cmp.Compare(b.ModTimeNanos, a.ModTimeNanos), strings.Compare(b.Path, a.Path)) < 0
		})
		return
	}
	keys := keysOf(shards)
	slices.SortFunc(keys, func(a, b key) int {
		if a.text == b.text && a.text != 0 && a.number != b.number {
			return cmp.Compare(b.number, a.number)
		}
		x, y := shards[b.at].Path, shards[a.at].Path
		return cmp.Or(compareNames(base(x), base(y)), strings.Compare(x, y))
	})
	for i := range keys { // permute in place, cycle by cycle
		if keys[i].at == uint32(i) {
			continue
		}
		first, hole := shards[i], i
		for from := int(keys[hole].at); from != i; from = int(keys[hole].at) {
			shards[hole], keys[hole].at = shards[from], uint32(hole)
			hole = from
		}
		shards[hole], keys[hole].at = first, uint32(hole)
	}
}

// key is the part of a shard's name that is compared first: most names differ in their first
// number. It is small, because sorting half a million keys is mostly moving them.
type key struct {
	number uint64 // the first one
	text   uint32 // index of the text before it; 0: no number of at most 19 digits
	at     uint32 // index of the shard
}

func keysOf(shards []catalog.LiveShard) []key {
	keys := make([]key, len(shards))
	texts := map[string]uint32{} // texts before numbers
	last, lastText := "", uint32(0)
	for i := range shards {
		keys[i].at = uint32(i)
		name := base(shards[i].Path)
		n := 0
		for n < len(name) && !isDigit(name[n]) {
			n++
		}
		count := digits(name[n:])
		if count == 0 || count > 19 {
			continue
		}
		for _, d := range []byte(name[n : n+count]) {
			keys[i].number = 10*keys[i].number + uint64(d-'0')
		}
		if text := name[:n]; text != last || lastText == 0 { // most are the same as the previous one
			last, lastText = text, texts[text]
			if lastText == 0 {
				lastText = uint32(len(texts) + 1)
				texts[text] = lastText
			}
		}
		keys[i].text = lastText
	}
	return keys
}

// base is path.Base, but faster for paths of files.
func base(p string) string {
	if name := p[strings.LastIndexByte(p, '/')+1:]; name != "" {
		return name
	}
	return path.Base(p)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// compareNames compares names byte by byte, except that two runs of digits at the same position are
// compared as numbers. A name that is a prefix of another comes before it.
func compareNames(a, b string) int {
	for a != "" && b != "" {
		m, n := digits(a), digits(b)
		if m > 0 && n > 0 {
			if c := compareNumbers(a[:m], b[:n]); c != 0 {
				return c
			}
			a, b = a[m:], b[n:]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

// digits returns the number of digits at the start of a name.
func digits(name string) int {
	n := 0
	for n < len(name) && isDigit(name[n]) {
		n++
	}
	return n
}

// compareNumbers compares decimal numbers of any length.
func compareNumbers(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

var (
	// ErrNotYet is wrapped by errors about an epoch that can't start yet, because there is too
	// little new data.
	ErrNotYet = errors.New("it is not available yet")
	// ErrNoEpoch is wrapped by errors about an epoch that does not exist: it comes after the next
	// one, or the run directory does not have it.
	ErrNoEpoch = errors.New("it does not exist")
)

// NotYetError means that the next epoch can't start yet. It wraps ErrNotYet.
type NotYetError struct {
	Epoch uint64
	// Have is how much is new, and Needed how much must be. If Needed.N is 0, the message leaves
	// both out.
	Have   uint64
	Needed Amount
	// Empty means that there are no records at all.
	Empty bool
}

func (e *NotYetError) Error() string {
	switch {
	case e.Empty:
		return fmt.Sprintf("epoch %d is not available yet: there are no records", e.Epoch)
	case e.Needed.N > 0:
		return fmt.Sprintf("epoch %d is not available yet: %s of %s new %s", e.Epoch, Grouped(e.Have), Grouped(e.Needed.N), e.Needed.Measure)
	}
	return fmt.Sprintf("epoch %d is not available yet", e.Epoch)
}

func (e *NotYetError) Unwrap() error { return ErrNotYet }

// NoEpochError means that an epoch does not exist. It wraps ErrNoEpoch.
type NoEpochError struct {
	Epoch uint64
	// At describes in words which epoch the run is at.
	At string
}

func (e *NoEpochError) Error() string {
	return fmt.Sprintf("epoch %d does not exist: %s", e.Epoch, e.At)
}

func (e *NoEpochError) Unwrap() error { return ErrNoEpoch }

// Grouped formats a number with a space between thousands.
func Grouped(n uint64) string {
	text := strconv.FormatUint(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + " " + text[i:]
	}
	return text
}
