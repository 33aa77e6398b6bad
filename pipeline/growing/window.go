package growing

import (
	"fmt"
	"math"
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
	return Amount{}, fmt.Errorf("%q is not an amount: write 0, or such as 40000units, 100000records or 5shards", text)
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
