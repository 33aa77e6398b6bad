package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Reading is the result of one measurement of a row.
type Reading struct {
	Bytes     int64
	Elapsed   time.Duration
	CPU       time.Duration // of all processes involved; 0: not known
	Counted   bool          // Reads and ReadBytes are known
	Reads     uint64        // of storage
	ReadBytes uint64
	Mallocs   float64 // per record; below 0: not counted
	Value     float64 // for a row with a unit
}

func (r Reading) bytesPerSecond() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Bytes) / r.Elapsed.Seconds()
}

// Measurement is one line of the table.
type Measurement struct {
	ID      string
	Name    string
	Against string // id of the row that it is compared with
	// NoRecords means that its bytes are not records of the dataset.
	NoRecords bool
	// Unit is the unit of reading.value, for rows that are not throughput.
	Unit string
	// Measure measures it once, in about the time of a slot.
	Measure func(ctx context.Context) (Reading, error)

	readings []Reading // one per round
	missing  string    // why there are none
}

// ErrNotMeasured is wrapped by errors of rows that can't be measured here. The other rows are still
// measured.
var ErrNotMeasured = errors.New("not measured")

// NotMeasured returns an error for a row that can't be measured here. It wraps ErrNotMeasured.
func NotMeasured(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrNotMeasured}, args...)...)
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
func (r *Measurement) finish(recordBytes float64, limit *Measurement) Row {
	out := Row{ID: r.ID, Name: r.Name, NotMeasured: r.missing}
	if len(r.readings) == 0 {
		return out
	}
	if r.Unit != "" {
		out.Unit, out.Value = r.Unit, r.spread(func(m Reading) float64 { return m.Value })
		return out
	}
	out.GiBPerSecond = r.spread(func(m Reading) float64 { return m.bytesPerSecond() / (1 << 30) })
	out.Seconds = r.spread(func(m Reading) float64 { return m.Elapsed.Seconds() })
	known := func(is func(Reading) bool) bool {
		return !slices.ContainsFunc(r.readings, func(m Reading) bool { return !is(m) })
	}
	timed := known(func(m Reading) bool { return m.CPU > 0 && m.Bytes > 0 })
	if timed {
		out.CPUPerGiB = r.spread(func(m Reading) float64 { return m.CPU.Seconds() / float64(m.Bytes) * (1 << 30) })
	}
	if recordBytes > 0 {
		records := func(m Reading) float64 { return float64(m.Bytes) / recordBytes }
		out.RecordsPerSecond = r.spread(func(m Reading) float64 { return m.bytesPerSecond() / recordBytes })
		if timed {
			out.CPUMicros = r.spread(func(m Reading) float64 { return m.CPU.Seconds() * 1e6 / records(m) })
		}
		if known(func(m Reading) bool { return m.Counted && m.Bytes > 0 }) {
			out.Reads = r.spread(func(m Reading) float64 { return float64(m.Reads) / records(m) })
			out.Amplification = r.spread(func(m Reading) float64 { return float64(m.ReadBytes) / float64(m.Bytes) })
		}
		if known(func(m Reading) bool { return m.Mallocs >= 0 }) {
			out.Mallocs = r.spread(func(m Reading) float64 { return m.Mallocs })
		}
	}
	if limit != nil {
		out.Against = limit.ID
		out.Ratio = ratio(r.readings, limit.readings)
	}
	return out
}

func (r *Measurement) spread(of func(Reading) float64) *Spread {
	values := make([]float64, len(r.readings))
	for i, m := range r.readings {
		values[i] = of(m)
	}
	s := spreadOf(values)
	return &s
}

// ratio compares measurements of the same rounds, so that slow changes of the machine cancel out.
func ratio(own, limit []Reading) *Spread {
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

// Print writes the report for people.
func (r Report) Print(out io.Writer) error {
	var b strings.Builder
	r.Machine.Print(&b)
	r.Dataset.Print(&b)
	r.Table(&b)
	_, err := io.WriteString(out, b.String())
	return err
}

// Table writes the rows.
func (r Report) Table(b *strings.Builder) {
	fmt.Fprintf(b, "medians of %d rounds, with minimum and maximum\n\n", r.Rounds)
	names := map[string]string{}
	for _, row := range r.Rows {
		names[row.ID] = row.Name
	}
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "what\tGiB/s\t\trecords/s\tCPU µs/rec.\tCPU s/GiB\treads/rec.\tamplif.\tratio\t\tto\n")
	var missing, values []string
	for _, row := range r.Rows {
		if row.NotMeasured != "" {
			missing = append(missing, fmt.Sprintf("%s: %s\n", row.Name, row.NotMeasured))
			continue
		}
		if row.Unit != "" {
			values = append(values, fmt.Sprintf("%s: %s %s (%s)\n", row.Name, MedianText(row.Value, "%.4g"), row.Unit, row.Value.Ends("%.4g")))
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", row.Name,
			MedianText(row.GiBPerSecond, "%.2f"), row.GiBPerSecond.Ends("%.2f"), MedianText(row.RecordsPerSecond, "%.0f"),
			MedianText(row.CPUMicros, "%.2f"), MedianText(row.CPUPerGiB, "%.3f"), MedianText(row.Reads, "%.3f"), MedianText(row.Amplification, "%.2f"),
			MedianText(row.Ratio, "%.2f"), row.Ratio.Ends("%.2f"), names[row.Against])
	}
	_ = w.Flush() // writing to memory does not fail
	b.WriteString("\n" + strings.Join(append(values, missing...), ""))
	for _, note := range r.Notes {
		b.WriteString("\n" + note + "\n")
	}
}

// MedianText formats a median; it returns "" if s is nil.
func MedianText(s *Spread, format string) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf(format, s.Median)
}

// Ends formats the minimum and the maximum; it returns "" if s is nil.
func (s *Spread) Ends(format string) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf(format+"–"+format, s.Min, s.Max)
}

// Print writes the machine's lines above a table.
func (m Machine) Print(b *strings.Builder) {
	user := "a user"
	if m.Root {
		user = "root"
	}
	fmt.Fprintf(b, "%s, %d cores, %.1f GiB; Linux %s; %s on %s; %s, lsiofs %s, as %s\n",
		m.CPU, m.Cores, GiB(m.MemoryBytes), m.Kernel, m.FileSystem, m.Device, m.Go, m.Version, user)
}

// Print writes the dataset's lines above a table.
func (d DatasetInfo) Print(b *strings.Builder) {
	compression := ""
	if d.Compression != "" {
		compression = ", " + d.Compression
	}
	fmt.Fprintf(b, "%s: %d records of %.0f bytes, %s%s, %d shards, %.2f GiB of files, %.2f GiB of streams",
		d.Path, d.Records, d.RecordBytes, d.Format, compression, d.Shards, GiB(d.FileBytes), GiB(d.StreamBytes))
	if d.MeasuredBytes < d.StreamBytes {
		fmt.Fprintf(b, ", of which the first %.2f GiB of the epoch are measured, because they fit into the page cache", GiB(d.MeasuredBytes))
	}
	fmt.Fprintf(b, "\nshuffle %s, %d records, %d lanes; --memory %.2f GiB\n", d.Shuffle, d.ShuffleSize, d.Lanes, GiB(d.MemoryBudget))
}

// GiB returns a number of bytes in GiB.
func GiB(n int64) float64 { return float64(n) / (1 << 30) }
