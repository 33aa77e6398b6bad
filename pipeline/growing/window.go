package growing

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// Measure is what amounts of a dataset are counted in.
type Measure string

const (
	All     Measure = "all"
	Units   Measure = "units" // from an entry point of a shard to the next; lc0: games
	Records Measure = "records"
	Shards  Measure = "shards"
	Bytes   Measure = "bytes" // decoded
	Age     Measure = "age"   // nanoseconds between modification times
)

// Window is how much of a dataset an epoch is of: the newest shards, up to the first one
// with which they are N or more. The zero value is All.
type Window struct {
	Measure Measure
	N       uint64
	text    string // as it was written
}

// ParseWindow reads "all", "500000units", "…records", "…shards", a size such as 100GiB, or
// a duration such as 72h.
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

// parseCount reads a number above 0 and what it is of.
func parseCount(text string) (n uint64, measure Measure, ok bool) {
	for _, measure := range []Measure{Units, Records, Shards} {
		if digits, ok := strings.CutSuffix(text, string(measure)); ok {
			n, err := strconv.ParseUint(digits, 10, 63)
			return n, measure, err == nil && n > 0
		}
	}
	return 0, "", false
}

// String is the window as it was written.
func (w Window) String() string {
	if w.text == "" {
		return string(All)
	}
	return w.text
}

// of is how much a shard is.
func (m Measure) of(s *Shard) uint64 {
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

// Choose gives the shards of a window, of shards that are sorted by Newest: a part of
// their slice. Whole shards are chosen alone, so the last one may reach beyond N. now is the time here,
// which a time that another machine gave is held against.
func (w Window) Choose(newest []Shard, now time.Time) []Shard {
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

// IsAhead reports whether a shard's time is still to come, at a time here.
func (s *Shard) IsAhead(now time.Time) bool { return s.ModTimeNanos > now.UnixNano()+aheadNanos }

// chooseByAge gives those whose times are within N of the latest one, or after it. A time that is still
// to come is not the latest one, unless all are: a single clock that is ahead would leave all other
// shards out. Sorted by name they need not stand together.
func (w Window) chooseByAge(newest []Shard, now time.Time) (chosen []Shard) {
	last, ahead := int64(math.MinInt64), int64(math.MinInt64)
	for i := range newest {
		if s := &newest[i]; s.IsAhead(now) {
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

// Amount is how much has to be new before an epoch is there.
type Amount struct {
	Measure Measure // Units, Records or Shards
	N       uint64  // 0: nothing
}

// ParseAmount reads "0", or a number of units, records or shards.
func ParseAmount(text string) (Amount, error) {
	if n, measure, ok := parseCount(text); ok {
		return Amount{measure, n}, nil
	}
	if text == "" || text == "0" {
		return Amount{}, nil
	}
	return Amount{}, fmt.Errorf("%q is not an amount: write 0, or such as 40000units, 100000records or 5shards", text)
}

// Within says why so much can never be new in an epoch of a window, nil where it can. Of units
// and records an epoch may have more than the window asks for, as shards are taken whole.
func (a Amount) Within(w Window) error {
	if a.Measure != Shards || w.Measure != Shards || a.N <= w.N {
		return nil
	}
	return fmt.Errorf("--min-new %s with --window %s would wait forever: an epoch never has more than %s shards: lower --min-new to that, or widen --window", a, w, Grouped(w.N))
}

// String is the amount as ParseAmount reads it.
func (a Amount) String() string {
	if a.N == 0 {
		return "0"
	}
	return strconv.FormatUint(a.N, 10) + string(a.Measure)
}

// News is what one set of shards has that another has not.
type News struct {
	NewShards, NewRecords, NewUnits, GoneShards uint64
}

// Enough says whether so much is new.
func (a Amount) Enough(n News) bool { return a.Has(n) >= a.N }

// Has is how much of what an amount counts is new.
func (a Amount) Has(n News) uint64 {
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

// Uses is how often a record is used in the long run, where an epoch has samples records
// and brings newRecords that are new; +Inf where it brings none.
func Uses(samples, newRecords uint64) float64 { return float64(samples) / float64(newRecords) }
