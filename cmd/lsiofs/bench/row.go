package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// reading is the result of one measurement of a row.
type reading struct {
	bytes     int64
	elapsed   time.Duration
	cpu       time.Duration // of all processes involved; 0: not known
	counted   bool          // reads and readBytes are known
	reads     uint64        // of storage
	readBytes uint64
	mallocs   float64 // per record; below 0: not counted
	value     float64 // for a row with a unit
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
	// noRecords means that its bytes are not records of the dataset.
	noRecords bool
	// unit is the unit of reading.value, for rows that are not throughput.
	unit string
	// measure measures it once, in about the time of a slot.
	measure func(ctx context.Context) (reading, error)

	readings []reading // one per round
	missing  string    // why there are none
}

// errNotMeasured is wrapped by errors of rows that can't be measured here. The other rows are still
// measured.
var errNotMeasured = errors.New("not measured")

func notMeasured(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errNotMeasured}, args...)...)
}

// Spread is the median, the minimum and the maximum of some values.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// spreadOf returns the spread of values, which it sorts. There must be at least one.
func spreadOf(values []float64) Spread {
	slices.Sort(values)
	n := len(values)
	return Spread{Median: (values[(n-1)/2] + values[n/2]) / 2, Min: values[0], Max: values[n-1]}
}

// Row is a line of the report. Unknown values are nil.
type Row struct {
	ID               string  `json:"id"`
	Name             string  `json:"name"`
	GiBPerSecond     *Spread `json:"gib_per_second,omitempty"`
	RecordsPerSecond *Spread `json:"records_per_second,omitempty"`
	// CPUMicros is per record, of server and reader together.
	CPUMicros     *Spread `json:"cpu_us_per_record,omitempty"`
	CPUPerGiB     *Spread `json:"cpu_seconds_per_gib,omitempty"`
	Reads         *Spread `json:"reads_per_record,omitempty"`
	Amplification *Spread `json:"amplification,omitempty"` // bytes read from storage per byte delivered
	Mallocs       *Spread `json:"allocations_per_record,omitempty"`
	Against       string  `json:"against,omitempty"` // id of a row
	Ratio         *Spread `json:"ratio,omitempty"`   // to that row, within each round
	Seconds       *Spread `json:"seconds,omitempty"` // duration of a measurement
	Value         *Spread `json:"value,omitempty"`
	Unit          string  `json:"unit,omitempty"` // of Value, if the row is not throughput
	NotMeasured   string  `json:"not_measured,omitempty"`
}

// finish returns the report's line. recordBytes is the mean size of a record, or 0 if the bytes are
// not records. limit is the row that r is compared with, or nil.
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

// ratio compares measurements of the same rounds, so that slow changes of the machine cancel out.
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
