package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/catalog/discover"
	"github.com/lsiofs/lsiofs/pipeline/order/quality"
	"github.com/lsiofs/lsiofs/pipeline/printable"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Print writes the report for people.
func (i Report) Print(u *terminal.UI) error {
	rows := [][2]string{
		{"dataset", i.Root},
		{"format", strings.TrimSuffix(i.Format+", "+strings.ReplaceAll(i.Kind, "\n", ", rows of "), ", ")},
		{"fingerprint", i.Fingerprint},
		{"shards", fmt.Sprintf("%s (%d compressed), %s skipped", terminal.Count(uint64(i.Shards)), i.CompressedShards, terminal.Plural(uint64(i.PassedOver), "file"))},
		{"records", fmt.Sprintf("%s, %s entry points", terminal.Count(i.Records), terminal.Count(i.EntryPoints))},
		{"bytes", fmt.Sprintf("%s raw, %s decoded, %s in streams", terminal.Bytes(i.RawBytes), terminal.Bytes(i.DecodedBytes), terminal.Bytes(i.StreamBytes))},
		{"record size", i.RecordBytes.Text()},
		{"chunks", terminal.Count(i.Chunks)},
		{"chunk size", i.ChunkBytes.Text()},
		{"chunk records", fmt.Sprintf("%s to %s, mean %.1f", terminal.Count(uint64(i.ChunkRecords.Min)), terminal.Count(uint64(i.ChunkRecords.Max)), i.ChunkRecords.Mean)},
		{"storage", i.Storage.String()},
		{"damaged", terminal.Plural(uint64(len(i.Damaged)), "shard")},
	}
	if i.Crops != nil {
		rows = i.cropsRows()
	}
	if t := i.Tokens; t != nil {
		rows = slices.Insert(rows, 5, [2]string{"tokens", fmt.Sprintf("%s, %s of them left out after the last record of each shard", terminal.Count(uint64(t.All)), terminal.Count(uint64(t.Rest)))})
	}
	if i.Games != nil {
		rows = slices.Insert(rows, 5, [2]string{"games", i.Games.Text()})
	}
	if s := i.Sample; s != nil {
		rows = slices.Insert(rows, 4, [2]string{"sample", fmt.Sprintf("1/%d of the records in each epoch, seed %d; shown: epoch %d, from %s, %s in streams", s.Of, s.Seed, s.Epoch, terminal.Plural(s.WholeRecords, "record"), terminal.Bytes(s.WholeBytes))})
	}
	if s := i.Split; s != nil {
		rows = slices.Insert(rows, 4, [2]string{"split", fmt.Sprintf("%s by %s, seed %d, from %s, %s in streams", s.Part, s.By, s.Seed, terminal.Plural(s.WholeRecords, "record"), terminal.Bytes(s.WholeBytes))})
	}
	if i.Rows != nil {
		rows = slices.Insert(rows, 2, [2]string{"rows", i.Rows.Text()})
	}
	if err := terminal.Table(u.Out, rows); err != nil {
		return err
	}
	var b strings.Builder
	for _, line := range i.Damaged {
		fmt.Fprintf(&b, "  %s\n", printable.Line(line))
	}
	if len(i.Damages) > 0 {
		b.WriteString("\nleft out, by reason\n")
		for _, text := range slices.Sorted(maps.Keys(i.Damages)) {
			fmt.Fprintf(&b, "  %13s  %s\n", terminal.Count(i.Damages[text]), printable.Line(text))
		}
	}
	if i.Crops != nil {
		b.WriteString("\n" + i.Crops.Text())
	} else {
		b.WriteString("\nrecord sizes\n" + HistogramText(i.Histogram))
	}
	if i.Sources != nil {
		b.WriteString("\nsources of the mixture, an epoch of " + terminal.Plural(i.Records, "record") + "\n")
		b.WriteString(sourcesText(i.Sources))
		return u.Printf("%s", b.String())
	}
	b.WriteString("\nmixing (χ²/df: 1 is as even as independent sampling, more is worse)\n")
	i.mixingText(&b)
	return u.Printf("%s", b.String())
}

func (i Report) mixingText(b *strings.Builder) {
	m := i.Mixing
	fmt.Fprintf(b, "  all records, G       %s\n", estimateText(m.Global))
	fmt.Fprintf(b, "  one worker of %-6d %s\n", i.Workers, estimateText(m.Worker))
	switch {
	case len(m.Advice) > 0:
		b.WriteString("  better with          " + AdviceText(m.Advice) + "\n")
	case m.Poor() && i.Shuffle != spec.ShuffleNone:
		b.WriteString("  better with          no shuffle flag improves it\n")
	}
	if m.Poor() && i.CompressedShards > 0 && i.EntryPoints < 8*uint64(i.Shards) {
		b.WriteString("  a compressed shard can only be split where a gzip member, zstd or lz4 frame begins with a\n" +
			"  record; without such places it is a single chunk: add them, or make the shards smaller\n")
	}
}

func estimateText(e quality.Estimate) string {
	switch {
	case e.Batches == 0:
		return "nothing to measure: one shard, or fewer than 256 records"
	case e.Whole:
		return fmt.Sprintf("%.2f", e.Value)
	}
	return fmt.Sprintf("%.2f (from %s batches)", e.Value, terminal.Count(uint64(e.Batches)))
}

// HistogramText draws one bar per bucket.
func HistogramText(buckets []Bucket) string {
	const width = 40
	most := uint64(0)
	for _, k := range buckets {
		most = max(most, k.Records)
	}
	var b strings.Builder
	for _, k := range buckets {
		line := fmt.Sprintf("  %9s … %9s  %13s  %s", terminal.Bytes(k.FromBytes), terminal.Bytes(k.ToBytes), terminal.Count(k.Records), terminal.Hashes(k.Records, most, width))
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// SampleText describes a sample.
func SampleText(s spec.Subsample) string {
	return fmt.Sprintf("%s of the records in each epoch, seed %d", s, s.Seed)
}

// SplitText describes a split.
func SplitText(s spec.Split) string { return fmt.Sprintf("%s by %s, seed %d", s.Part, s.By, s.Seed) }

// Games describes a dataset of format lc0, whose records are frames.
type Games struct {
	Games  int64  `json:"games"`  // games with at least one frame
	Frames Spread `json:"frames"` // per game
}

// gamesOf counts the frames from one game's first to the next one's. Each game is an entry point.
func gamesOf(c *catalog.Catalog) *Games {
	var g Games
	starts := c.ChunkStarts(1, 1)
	for i, first := range starts[:len(starts)-1] {
		g.Frames.Add(int64(starts[i+1] - first))
	}
	g.Games = g.Frames.count
	return &g
}

// Text formats the counts for people.
func (g *Games) Text() string {
	return fmt.Sprintf("%s, frames a game %s to %s, mean %.1f", terminal.Count(uint64(g.Games)),
		terminal.Count(uint64(g.Frames.Min)), terminal.Count(uint64(g.Frames.Max)), g.Frames.Mean)
}

// PrintFiles lists files, whether each is a shard, and why.
func PrintFiles(files []discover.Verdict, u *terminal.UI) error {
	if err := u.Printf("\n%-9s %-60s %s\n", "", "file", "why"); err != nil {
		return err
	}
	for _, f := range files {
		what := "left out"
		if f.Shard {
			what = "shard"
		}
		if err := u.Printf("%-9s %-60s %s\n", what, printable.Line(f.Path), f.Reason); err != nil {
			return err
		}
	}
	return nil
}

// Source is one dataset of a mixture.
type Source struct {
	Name        string  `json:"name"`
	Weight      string  `json:"weight"`
	Dataset     string  `json:"dataset"`
	Fingerprint string  `json:"fingerprint"`
	Records     uint64  `json:"records"` // after the split
	StreamBytes int64   `json:"stream_bytes"`
	Passes      float64 `json:"passes_an_epoch"`
}

func sourcesOf(d *pipeline.Dataset) (list []Source) {
	for _, s := range d.Sources() {
		list = append(list, Source{s.Name, spec.WeightText(s.Weight), s.Dataset, s.Fingerprint, s.Records, s.Bytes, s.Passes})
	}
	return list
}

// sourcesText formats a mixture's sources as a table.
func sourcesText(sources []Source) string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "  name\tweight\trecords\tbytes\tpasses per epoch\tdataset")
	for _, s := range sources {
		_, _ = fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%.3f\t%s\n", s.Name, s.Weight, terminal.Count(s.Records), terminal.Bytes(s.StreamBytes), s.Passes, printable.Line(s.Dataset))
	}
	_ = t.Flush() // writing to memory does not fail
	return b.String()
}
