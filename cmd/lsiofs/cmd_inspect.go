package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/order/quality"
	"github.com/lsiofs/lsiofs/pipeline/printable"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

type inspectOptions struct {
	datasetFlags
	dataset string
	html    string
}

func newInspectCommand(g *globals) *cobra.Command {
	o := &inspectOptions{}
	c := &cobra.Command{
		Use:   "inspect DATASET",
		Short: "Show what a dataset holds, and how well its shuffle mixes",
		Long: `Shows shards, records, bytes, the sizes of records and chunks, damaged shards, and
the χ²/df to expect: the histogram over shards of each batch of 256 records, against
that of independent sampling, which has 1.0. It is measured on the order that the
flags describe, of G and of one worker's stream; above ` + fmt.Sprint(quality.Good) + `, what would improve it is
tried out and shown.

--html writes it as a page instead, with pictures: the sizes of shards and records,
where in the epoch which shards come, beside two other ways of shuffling, and what a
mount with these flags would read. It is one file that loads nothing else.`,
		Example: `  lsiofs inspect /data/train
  lsiofs inspect /data/train --shuffle-size 65536 --workers 8
  lsiofs inspect '/data/*.jsonl.zst' --json | jq .mixing
  lsiofs inspect /data/train --html train.html`,
		Args: exactArgs("DATASET"),
		RunE: func(c *cobra.Command, args []string) error {
			o.dataset = args[0]
			return runInspect(c.Context(), o, g)
		},
	}
	o.add(c)
	c.Flags().StringVar(&o.html, "html", "", "write a page to this `file`, whole or not at all (- for stdout), instead of a text to stdout")
	return c
}

func runInspect(ctx context.Context, o *inspectOptions, g *globals) error {
	s, _, err := o.resolve(o.dataset)
	if err != nil {
		return err
	}
	asked := s.Read
	s.Read = spec.ReadScan // no record is read: no spool
	d, err := openShowing(ctx, g, s, false)
	if err != nil {
		return err
	}
	return closeAfter(d, showInspection(ctx, d, o, asked, g.ui), g.log())
}

func showInspection(ctx context.Context, d *pipeline.Dataset, o *inspectOptions, asked spec.Read, u *terminal.UI) error {
	i, err := inspect(ctx, d)
	switch {
	case err != nil:
		return err
	case o.html != "":
		p, err := newPage(ctx, d, i, o, asked)
		if err != nil {
			return err
		}
		return writePage(p, o.html, u)
	case u.JSON:
		return u.Emit(i)
	}
	return i.print(u)
}

// print writes an inspection for people.
func (i inspection) print(u *terminal.UI) error {
	rows := [][2]string{
		{"dataset", i.Root},
		{"format", strings.TrimSuffix(i.Format+", "+i.Kind, ", ")},
		{"fingerprint", i.Fingerprint},
		{"shards", fmt.Sprintf("%s (%d compressed), %s passed over", terminal.Count(uint64(i.Shards)), i.CompressedShards, terminal.Plural(uint64(i.PassedOver), "file"))},
		{"records", fmt.Sprintf("%s, %s entry points", terminal.Count(i.Records), terminal.Count(i.EntryPoints))},
		{"bytes", fmt.Sprintf("%s raw, %s decoded, %s in streams", terminal.Bytes(i.RawBytes), terminal.Bytes(i.DecodedBytes), terminal.Bytes(i.StreamBytes))},
		{"record size", i.RecordBytes.text()},
		{"chunks", terminal.Count(i.Chunks)},
		{"chunk size", i.ChunkBytes.text()},
		{"chunk records", fmt.Sprintf("%s to %s, mean %.1f", terminal.Count(uint64(i.ChunkRecords.Min)), terminal.Count(uint64(i.ChunkRecords.Max)), i.ChunkRecords.Mean)},
		{"storage", i.Storage.String()},
		{"damaged", terminal.Plural(uint64(len(i.Damaged)), "shard")},
	}
	if i.Games != nil {
		rows = slices.Insert(rows, 5, [2]string{"games", i.Games.text()})
	}
	if s := i.Split; s != nil {
		rows = slices.Insert(rows, 4, [2]string{"split", fmt.Sprintf("%s by %s, seed %d, of %s, %s in streams", s.Part, s.By, s.Seed, terminal.Plural(s.WholeRecords, "record"), terminal.Bytes(s.WholeBytes))})
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
	b.WriteString("\nrecord sizes\n")
	b.WriteString(histogramText(i.Histogram))
	b.WriteString("\nmixing (χ²/df: 1 is as even as independent sampling, more is worse)\n")
	i.mixingText(&b)
	return u.Printf("%s", b.String())
}

func (i inspection) mixingText(b *strings.Builder) {
	m := i.Mixing
	fmt.Fprintf(b, "  all records, G       %s\n", estimateText(m.Global))
	fmt.Fprintf(b, "  one worker of %-6d %s\n", i.Workers, estimateText(m.Worker))
	switch {
	case len(m.Advice) > 0:
		b.WriteString("  better with          " + adviceText(m.Advice) + "\n")
	case m.poor() && i.Shuffle != spec.ShuffleNone:
		b.WriteString("  better with          nothing that the shuffle's flags can do\n")
	}
	if m.poor() && i.CompressedShards > 0 && i.EntryPoints < 8*uint64(i.Shards) {
		b.WriteString("  compressed shards in which no gzip member, zstd or lz4 frame begins with a record are\n" +
			"  one chunk each: have many of them begin so, or make the shards smaller\n")
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

// histogramText draws one bar a bucket.
func histogramText(buckets []bucket) string {
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
