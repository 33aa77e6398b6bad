package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
)

type indexOptions struct {
	datasetFlags
	dataset string
	rebuild bool
	part    passPartValue
}

func newIndexCommand(g *globals) *cobra.Command {
	o := &indexOptions{}
	c := &cobra.Command{
		Use:   "index DATASET",
		Short: "Build or refresh a dataset's index, so that mounts start at once",
		Long: `Finds the dataset's shards and their records, checks whatever the format allows to be
checked, and stores the result. Shards whose stored index is still valid are not read
again. A mount does the same by itself; use this command to do it ahead of time, or on
the machine that has the data.

With --part i/n, only every n-th shard is indexed, starting with shard i (0/8 … 7/8), so
that n machines that share the index directory can index one dataset at the same time, in
any order. A part that is killed continues where it stopped when it is started again.
When all parts are done, the next mount, or the next index without --part, combines them
without reading records.`,
		Example: `  lsiofs index /data/train
  lsiofs index /data/train --rebuild --on-corrupt skip --json
  lsiofs index /data/train --part $SLURM_ARRAY_TASK_ID/8`,
		Args: exactArgs("DATASET"),
		RunE: func(c *cobra.Command, args []string) error {
			o.dataset = args[0]
			return runIndex(c.Context(), o, g)
		},
	}
	o.add(c)
	c.Flags().BoolVar(&o.rebuild, "rebuild", false, "index every shard again, even if its stored index is valid")
	c.Flags().Var(&o.part, "part", "index only every n-th shard, starting with shard i, counted from 0")
	return c
}

// indexSummary is the result of index, printed with --json.
type indexSummary struct {
	Dataset     string `json:"dataset"`
	Root        string `json:"root"`
	Format      string `json:"format"`
	Fingerprint string `json:"fingerprint"`
	Shards      int    `json:"shards"`
	Reused      int    `json:"shards_reused"`
	Records     uint64 `json:"records"`
	StreamBytes int64  `json:"stream_bytes"`
	opening.Selection
	Damaged []string `json:"damaged"`
	Seconds float64  `json:"seconds"`
}

func runIndex(ctx context.Context, o *indexOptions, g *globals) error {
	s, _, err := o.resolve(o.dataset)
	if err != nil {
		return err
	}
	view := opening.NewPass(g.ui)
	defer view.Clear()
	var last catalog.Progress
	if o.part.set() {
		if o.rebuild {
			return exit.Usagef("--part and --rebuild can't be combined, because the other parts' old results would stay: rebuild in one pass, or name another --index-dir")
		}
		n, err := opening.IndexPart(ctx, g.log(), s, pipeline.Options{Progress: func(p catalog.Progress) {
			last = p
			view.Show(p)
		}}, catalog.PassPart(o.part))
		if err != nil {
			return err
		}
		view.Clear()
		return printPart(o, n, last, g.ui)
	}
	d, err := opening.Open(ctx, g.log(), s, pipeline.Options{Rebuild: o.rebuild, Progress: func(p catalog.Progress) {
		last = p
		view.Show(p)
	}})
	if err != nil {
		return err
	}
	return opening.Close(d, printIndex(d, last, g.ui), g.log())
}

// partSummary is the result of index --part, printed with --json.
type partSummary struct {
	Dataset   string  `json:"dataset"`
	IndexDir  string  `json:"index_dir"`
	Part      int     `json:"part"`
	Parts     int     `json:"parts"`
	Shards    int     `json:"shards"`
	OfPart    int     `json:"shards_of_part"`
	Reused    int     `json:"shards_reused"`
	Known     int     `json:"shards_indexed"`
	Records   uint64  `json:"records"`
	Seconds   float64 `json:"seconds"`
	Remaining int     `json:"shards_left_to_other_parts"`
}

func printPart(o *indexOptions, n catalog.Indexed, last catalog.Progress, u *terminal.UI) error {
	p := partSummary{
		Dataset: o.dataset, IndexDir: n.Directory, Part: o.part.Index, Parts: o.part.Count, Shards: n.Shards, OfPart: n.OfPart, Reused: n.Reused, Known: n.Known,
		Records: n.Records, Seconds: last.Elapsed.Seconds(), Remaining: n.Shards - n.Known,
	}
	if u.JSON {
		return u.Emit(p)
	}
	left := terminal.Count(uint64(p.Remaining)) + " of the dataset's " + terminal.Plural(uint64(p.Shards), "shard") + " are not indexed yet: other parts index them"
	if p.Remaining == 0 {
		left = "none: the next mount, or lsiofs index without --part, joins the parts"
	}
	return terminal.Table(u.Out, [][2]string{
		{"dataset", p.Dataset},
		{"part", o.part.String()},
		{"shards", terminal.Count(uint64(p.OfPart)) + " (" + terminal.Count(uint64(p.Reused)) + " had been indexed before)"},
		{"records", terminal.Count(p.Records)},
		{"index", p.IndexDir},
		{"left", left},
	})
}

func printIndex(d *pipeline.Dataset, last catalog.Progress, u *terminal.UI) error {
	c := d.Catalog()
	i := indexSummary{
		Dataset: d.Spec().Dataset, Root: c.Root(), Format: c.Format().Name, Fingerprint: c.Fingerprint(),
		Shards: c.Shards(), Reused: last.Reused, Records: c.Records(), StreamBytes: c.StreamBytes(),
		Selection: opening.SelectionOf(c.Selection()), Damaged: opening.DamageList(c.Damaged()), Seconds: last.Elapsed.Seconds(),
	}
	opening.TellSelection(u, c)
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
		{"skipped", terminal.Plural(uint64(i.PassedOver), "file")},
		{"damaged", terminal.Plural(uint64(len(i.Damaged)), "shard")},
		{"fingerprint", i.Fingerprint},
	})
}
