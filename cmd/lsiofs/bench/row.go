package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// reading is what one measurement of a row has found.
type reading struct {
	bytes     int64
	elapsed   time.Duration
	cpu       time.Duration // of all processes that take part; 0: not known
	counted   bool          // reads and readBytes are known
	reads     uint64        // of storage
	readBytes uint64
	mallocs   float64 // a record; below 0: not counted
	value     float64 // of a row with a unit
}

func (r reading) bytesPerSecond() float64 {
	if r.elapsed <= 0 {
		return 0
	}
	return float64(r.bytes) / r.elapsed.Seconds()
}

// row is one line of the table.
type row struct {
	id      string
	name    string
	against string // id of the row that it is compared with
	// noRecords says that its bytes are none of the dataset's records.
	noRecords bool
	// unit is that of reading.value, for rows that are no throughput.
	unit string
	// measure does it once, in about the time of a slot.
	measure func(ctx context.Context) (reading, error)

	readings []reading // one a round
	missing  string    // why there are none
}

// errNotMeasured is wrapped by errors of rows that can't be measured here: the
// others go on.
var errNotMeasured = errors.New("not measured")

func notMeasured(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errNotMeasured}, args...)...)
}

// Spread is a median, and the least and the greatest of what it is of.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// spreadOf is that of values, which it sorts. There must be some.
func spreadOf(values []float64) Spread {
	slices.Sort(values)
	n := len(values)
	return Spread{Median: (values[(n-1)/2] + values[n/2]) / 2, Min: values[0], Max: values[n-1]}
}

// Row is a line of the report. What is not known is nil.
type Row struct {
	ID               string  `json:"id"`
	Name             string  `json:"name"`
	GiBPerSecond     *Spread `json:"gib_per_second,omitempty"`
	RecordsPerSecond *Spread `json:"records_per_second,omitempty"`
	// CPUMicros are a record's, of server and reader.
	CPUMicros     *Spread `json:"cpu_us_per_record,omitempty"`
	CPUPerGiB     *Spread `json:"cpu_seconds_per_gib,omitempty"`
	Reads         *Spread `json:"reads_per_record,omitempty"`
	Amplification *Spread `json:"amplification,omitempty"` // bytes read from storage for each byte delivered
	Mallocs       *Spread `json:"allocations_per_record,omitempty"`
	Against       string  `json:"against,omitempty"` // id of a row
	Ratio         *Spread `json:"ratio,omitempty"`   // to it, of each round
	Seconds       *Spread `json:"seconds,omitempty"` // a measurement took
	Value         *Spread `json:"value,omitempty"`
	Unit          string  `json:"unit,omitempty"` // of Value, where the row is no throughput
	NotMeasured   string  `json:"not_measured,omitempty"`
}

// finish makes the report's line; recordBytes is the size of the mean record, 0
// where bytes are none of records. limit is the row that r is compared with, or nil.
func (r *row) finish(recordBytes float64, limit *row) Row {
	out := Row{ID: r.id, Name: r.name, NotMeasured: r.missing}
	if len(r.readings) == 0 {
		return out
	}
	if r.unit != "" {
		out.Unit, out.Value = r.unit, r.spread(func(m reading) float64 { return m.value })
		return out
	}
	out.GiBPerSecond = r.spread(func(m reading) float64 { return m.bytesPerSecond() / (1 << 30) })
	out.Seconds = r.spread(func(m reading) float64 { return m.elapsed.Seconds() })
	known := func(is func(reading) bool) bool {
		return !slices.ContainsFunc(r.readings, func(m reading) bool { return !is(m) })
	}
	timed := known(func(m reading) bool { return m.cpu > 0 && m.bytes > 0 })
	if timed {
		out.CPUPerGiB = r.spread(func(m reading) float64 { return m.cpu.Seconds() / float64(m.bytes) * (1 << 30) })
	}
	if recordBytes > 0 {
		records := func(m reading) float64 { return float64(m.bytes) / recordBytes }
		out.RecordsPerSecond = r.spread(func(m reading) float64 { return m.bytesPerSecond() / recordBytes })
		if timed {
			out.CPUMicros = r.spread(func(m reading) float64 { return m.cpu.Seconds() * 1e6 / records(m) })
		}
		if known(func(m reading) bool { return m.counted && m.bytes > 0 }) {
			out.Reads = r.spread(func(m reading) float64 { return float64(m.reads) / records(m) })
			out.Amplification = r.spread(func(m reading) float64 { return float64(m.readBytes) / float64(m.bytes) })
		}
		if known(func(m reading) bool { return m.mallocs >= 0 }) {
			out.Mallocs = r.spread(func(m reading) float64 { return m.mallocs })
		}
	}
	if limit != nil {
		out.Against = limit.id
		out.Ratio = ratio(r.readings, limit.readings)
	}
	return out
}

func (r *row) spread(of func(reading) float64) *Spread {
	values := make([]float64, len(r.readings))
	for i, m := range r.readings {
		values[i] = of(m)
	}
	s := spreadOf(values)
	return &s
}

// ratio compares what was measured in the same rounds, so that what changes
// slowly on the machine cancels out.
func ratio(own, limit []reading) *Spread {
	n := min(len(own), len(limit))
	var values []float64
	for i := range n {
		if l := limit[i].bytesPerSecond(); l > 0 {
			values = append(values, own[i].bytesPerSecond()/l)
		}
	}
	if len(values) == 0 {
		return nil
	}
	s := spreadOf(values)
	return &s
}
