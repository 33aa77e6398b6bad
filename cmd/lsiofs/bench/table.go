package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Print writes the report for people.
func (r Report) Print(out io.Writer) error {
	var b strings.Builder
	r.Machine.print(&b)
	r.Dataset.print(&b)
	r.table(&b)
	_, err := io.WriteString(out, b.String())
	return err
}

// table writes the rows.
func (r Report) table(b *strings.Builder) {
	fmt.Fprintf(b, "%d rounds in turns: medians, and from least to greatest\n\n", r.Rounds)
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
			values = append(values, fmt.Sprintf("%s: %s %s (%s)\n", row.Name, median(row.Value, "%.4g"), row.Unit, row.Value.ends("%.4g")))
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", row.Name,
			median(row.GiBPerSecond, "%.2f"), row.GiBPerSecond.ends("%.2f"), median(row.RecordsPerSecond, "%.0f"),
			median(row.CPUMicros, "%.2f"), median(row.CPUPerGiB, "%.3f"), median(row.Reads, "%.3f"), median(row.Amplification, "%.2f"),
			median(row.Ratio, "%.2f"), row.Ratio.ends("%.2f"), names[row.Against])
	}
	_ = w.Flush() // writing to memory does not fail
	b.WriteString("\n" + strings.Join(append(values, missing...), ""))
	for _, note := range r.Notes {
		b.WriteString("\n" + note + "\n")
	}
}

func median(s *Spread, format string) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf(format, s.Median)
}

func (s *Spread) ends(format string) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf(format+"–"+format, s.Min, s.Max)
}

func (m Machine) print(b *strings.Builder) {
	user := "a user"
	if m.Root {
		user = "root"
	}
	fmt.Fprintf(b, "%s, %d cores, %.1f GiB; Linux %s; %s on %s; %s, lsiofs %s, as %s\n",
		m.CPU, m.Cores, gib(m.MemoryBytes), m.Kernel, m.FileSystem, m.Device, m.Go, m.Version, user)
}

func (d DatasetInfo) print(b *strings.Builder) {
	compression := ""
	if d.Compression != "" {
		compression = ", " + d.Compression
	}
	fmt.Fprintf(b, "%s: %d records of %.0f bytes, %s%s, %d shards, %.2f GiB of files, %.2f GiB of streams",
		d.Path, d.Records, d.RecordBytes, d.Format, compression, d.Shards, gib(d.FileBytes), gib(d.StreamBytes))
	if d.MeasuredBytes < d.StreamBytes {
		fmt.Fprintf(b, ", of which the epoch's first %.2f GiB are read, as many as the page cache holds", gib(d.MeasuredBytes))
	}
	fmt.Fprintf(b, "\nshuffle %s, %d records, %d lanes; --memory %.2f GiB\n", d.Shuffle, d.ShuffleSize, d.Lanes, gib(d.MemoryBudget))
}

func gib(n int64) float64 { return float64(n) / (1 << 30) }
