// Package explain computes where the readers' time went between two snapshots of the counters of
// package meter, and which stage is the bottleneck: as shares and as a sentence. It is pure: it
// depends only on its arguments, and reads no clock.
//
//	Snapshot ─┐
//	          ├─Between──► Window (shares by stage) ──Judge──► Verdict (a sentence)
//	Snapshot ─┘
package explain

import (
	"math"

	"github.com/lsiofs/lsiofs/pipeline/meter"
)

// Snapshot has all counters at one point in time. They only grow.
type Snapshot struct {
	meter.Times
	Bytes [meter.Stages]uint64 // bytes delivered by a stage
	Reads uint64               // number of reads from storage
	// Recent and Active are times of readers, summed over the readers, in nanoseconds. Recent
	// counts readers that have read in the last minute, Active those that have read in the last
	// second.
	Recent, Active int64
	// Requests and Throttled count the responses of a service, and the requests that it rejected; 0
	// for a file system.
	Requests, Throttled uint64
	// Fill is the integral over time of how much was in a stage, in nanoseconds. Looked is the time
	// over which it was sampled.
	Fill   meter.Totals
	Looked int64
}

// Waited returns how long readers' requests have waited for a stage or were in it, in nanoseconds.
func (s *Snapshot) Waited(stage meter.Stage) int64 {
	switch stage {
	case meter.Copy:
		return s.Copied + s.Waits[stage]
	case meter.FUSE:
		return s.Busy[stage]
	}
	return s.Waits[stage]
}

// Window describes the time between two snapshots.
type Window struct {
	Seconds float64 `json:"seconds"`
	// Readers is the average number of readers.
	Readers float64 `json:"readers"`
	// Shares are the shares of the readers' time.
	Shares Shares `json:"shares"`
	Stages []Row  `json:"stages"`
}

// Shares are where the time of readers went. They add up to 1, or to 0 if there were no readers.
type Shares struct {
	Themselves float64 `json:"themselves"` // the readers were not waiting for lsiofs
	Order      float64 `json:"order"`
	Storage    float64 `json:"storage"`
	Decompress float64 `json:"decompress"`
	Gather     float64 `json:"gather"`
	Copy       float64 `json:"copy"`
	FUSE       float64 `json:"fuse"`
}

// Row is one stage.
type Row struct {
	Stage string `json:"stage"`
	// Busy is the average number of goroutines at work. For one core, and for storage, it is a
	// share of the time.
	Busy float64 `json:"busy"`
	// Waited is the share of the readers' time that they spent waiting for the stage.
	Waited float64 `json:"waited"`
	// Queued is how much was in the stage, on average: see meter.Meter.
	Queued         float64 `json:"queued"`
	BytesPerSecond float64 `json:"bytes_per_second"`
	ReadBytes      float64 `json:"read_bytes,omitempty"` // mean size of reads from storage
}

// glimpse is how long, in nanoseconds, a program without an open stream must wait to count as a
// reader. The sizes of files need the order: a program that lists a mount waits for it, for some
// milliseconds per million records, and that alone is not reading.
const glimpse = 100_000_000

// Between returns the window from one snapshot to a later one. brief means that the window is
// short: then only programs that have read in the last second count as readers.
func Between(from, to Snapshot, brief bool) Window {
	nanos := float64(to.At - from.At)
	if nanos <= 0 {
		return Window{Stages: []Row{}}
	}
	w := Window{Seconds: round(nanos/1e9, 3)}
	grown := func(a, b int64) float64 { return float64(max(b-a, 0)) }
	waited := func(s meter.Stage) float64 { return grown(from.Waited(s), to.Waited(s)) }
	answered := 0.0
	for s := range meter.Stage(meter.Stages) {
		answered += waited(s)
	}
	readers := grown(from.Recent, to.Recent)
	if brief {
		readers = grown(from.Active, to.Active)
	}
	if readers == 0 && answered < glimpse {
		answered = 0
	}
	// Several requests of one reader may be answered concurrently.
	readers = max(readers, answered)
	share := func(x float64) float64 {
		if readers == 0 {
			return 0
		}
		return round(x/readers, 4)
	}
	w.Readers = round(readers/nanos, 2)
	w.Shares = Shares{
		Themselves: share(readers - answered), Order: share(waited(meter.Order)), Storage: share(waited(meter.Storage)),
		Decompress: share(waited(meter.Decompress)), Gather: share(waited(meter.Gather)),
		Copy: share(waited(meter.Copy)), FUSE: share(waited(meter.FUSE)),
	}
	for s := range meter.Stage(meter.Stages) {
		r := Row{
			Stage: s.String(), Busy: round(grown(from.Busy[s], to.Busy[s])/nanos, 4), Waited: share(waited(s)),
			BytesPerSecond: math.Round(float64(to.Bytes[s]-min(from.Bytes[s], to.Bytes[s])) / nanos * 1e9),
		}
		if n := to.Reads - min(from.Reads, to.Reads); s == meter.Storage && n > 0 {
			r.ReadBytes = math.Round(float64(to.Bytes[s]-min(from.Bytes[s], to.Bytes[s])) / float64(n))
		}
		if looked := grown(from.Looked, to.Looked); looked > 0 {
			r.Queued = round(grown(from.Fill[s], to.Fill[s])/looked, 2)
		}
		w.Stages = append(w.Stages, r)
	}
	return w
}

// Idle reports whether there were no readers.
func (w *Window) Idle() bool { return w.Readers == 0 }

func (w *Window) row(s meter.Stage) Row {
	if int(s) < len(w.Stages) {
		return w.Stages[s]
	}
	return Row{}
}

func round(x float64, digits int) float64 {
	p := math.Pow10(digits)
	return math.Round(x*p) / p
}
