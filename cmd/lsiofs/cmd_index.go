package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

type indexOptions struct {
	datasetFlags
	dataset string
	rebuild bool
}

func newIndexCommand(g *globals) *cobra.Command {
	o := &indexOptions{}
	c := &cobra.Command{
		Use:   "index DATASET",
		Short: "Build or refresh a dataset's index, so that mounts start at once",
		Long: `Finds the dataset's shards and their records, checks what the format lets check,
and stores the result. Shards whose stored index still holds are not read again.
A mount does the same by itself; this is for doing it ahead, or where the data
lies.`,
		Example: `  lsiofs index /data/train
  lsiofs index /data/train --rebuild --on-corrupt skip --json`,
		Args: exactArgs("DATASET"),
		RunE: func(c *cobra.Command, args []string) error {
			o.dataset = args[0]
			return runIndex(c.Context(), o, g)
		},
	}
	o.add(c)
	c.Flags().BoolVar(&o.rebuild, "rebuild", false, "index every shard again, whatever is stored")
	return c
}

// indexSummary is what index says when it is done.
type indexSummary struct {
	Dataset     string   `json:"dataset"`
	Root        string   `json:"root"`
	Format      string   `json:"format"`
	Fingerprint string   `json:"fingerprint"`
	Shards      int      `json:"shards"`
	Reused      int      `json:"shards_reused"`
	Records     uint64   `json:"records"`
	StreamBytes int64    `json:"stream_bytes"`
	PassedOver  int      `json:"files_passed_over"`
	Damaged     []string `json:"damaged"`
	Seconds     float64  `json:"seconds"`
}

func runIndex(ctx context.Context, o *indexOptions, g *globals) error {
	s, _, err := o.resolve(o.dataset)
	if err != nil {
		return err
	}
	view := opening.NewPass(g.ui)
	defer view.Clear()
	var last catalog.Progress
	s.Read = spec.ReadScan // no record is read: no spool
	d, err := opening.Open(ctx, g.log(), s, pipeline.Options{Rebuild: o.rebuild, Progress: func(p catalog.Progress) {
		last = p
		view.Show(p)
	}})
	if err != nil {
		return err
	}
	return opening.Close(d, printIndex(d, last, g.ui), g.log())
}

func printIndex(d *pipeline.Dataset, last catalog.Progress, u *terminal.UI) error {
	c := d.Catalog()
	i := indexSummary{
		Dataset: d.Spec().Dataset, Root: c.Root(), Format: c.Format().Name, Fingerprint: c.Fingerprint(),
		Shards: c.Shards(), Reused: last.Reused, Records: c.Records(), StreamBytes: c.StreamBytes(),
		PassedOver: c.PassedOver(), Damaged: opening.DamageList(c.Damaged()), Seconds: last.Elapsed.Seconds(),
	}
	for _, line := range append(opening.DamageLines(c.Damaged(), 20), opening.ReasonLines(c.DamageReasons())...) {
		u.Warn(line)
	}
	if u.JSON {
		return u.Emit(i)
	}
	return terminal.Table(u.Out, [][2]string{
		{"dataset", i.Root},
		{"format", i.Format},
		{"shards", terminal.Count(uint64(i.Shards)) + " (" + terminal.Count(uint64(i.Reused)) + " had a stored index)"},
		{"records", terminal.Count(i.Records)},
		{"stream bytes", terminal.Bytes(i.StreamBytes)},
		{"passed over", terminal.Plural(uint64(i.PassedOver), "file")},
		{"damaged", terminal.Plural(uint64(len(i.Damaged)), "shard")},
		{"fingerprint", i.Fingerprint},
	})
}
