package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/inspect"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/page"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/order/quality"
)

type inspectOptions struct {
	datasetFlags
	dataset string
	html    string
	files   bool
}

func newInspectCommand(g *globals) *cobra.Command {
	o := &inspectOptions{}
	c := &cobra.Command{
		Use:   "inspect DATASET",
		Short: "Show what a dataset contains, and how well its shuffle mixes",
		Long: `Shows shards, records, bytes, the sizes of records and chunks, damaged shards, and the
expected χ²/df: it compares the histogram over shards of each batch of 256 records with
independent sampling, which has 1.0. The value is measured on the order that the flags
describe, for the whole epoch and for one worker's stream. If it is above ` + fmt.Sprint(quality.Good) + `, inspect
tries out what would improve it, and shows the result. For crops of Zarr arrays it also
shows how many chunks have to be decoded, and the --memory from which on each chunk is
decoded about once.

--files also lists every file below the dataset, with the reason why it is a shard or
is left out.

--html writes an HTML page with charts instead: the sizes of shards and records, where
in the epoch each shard's records come, compared with two other ways of shuffling, and
what a mount with these flags would read. The page is one file that loads nothing else.`,
		Example: `  lsiofs inspect /data/train
  lsiofs inspect /data/train --shuffle-size 65536 --workers 8
  lsiofs inspect '/data/*.jsonl.zst' --json | jq .mixing
  lsiofs inspect /data/train --files
  lsiofs inspect /data/train --html train.html`,
		Args: o.arguments("DATASET"),
		RunE: func(c *cobra.Command, args []string) error {
			o.dataset = o.withDataset(args)[0]
			return runInspect(c.Context(), o, g)
		},
	}
	o.add(c)
	o.addMix(c)
	o.addGrow(c)
	c.Flags().BoolVar(&o.files, "files", false, "also list every file below the dataset, whether it is a shard, and why")
	c.Flags().StringVar(&o.html, "html", "", "write an HTML page to this `file`, atomically (- for stdout), instead of text to stdout")
	return c
}

func runInspect(ctx context.Context, o *inspectOptions, g *globals) error {
	s, _, err := o.resolve(o.dataset)
	if err != nil {
		return err
	}
	if o.html != "" && s.Mix.Asked() {
		return exit.Usagef("--html does not support --mix: leave it out, or inspect each source")
	}
	d, err := opening.OpenShowing(ctx, g.ui, g.log(), s, pipeline.Options{TakesNone: true, Files: o.files})
	if err != nil {
		return err
	}
	return opening.Close(d, showInspection(ctx, d, o, g.ui), g.log())
}

func showInspection(ctx context.Context, d *pipeline.Dataset, o *inspectOptions, u *terminal.UI) error {
	i, err := inspect.Dataset(ctx, d)
	switch {
	case err != nil:
		return err
	case o.html != "":
		p, err := page.New(ctx, d, i, givenFlags(o.flags), versionOf())
		if err != nil {
			return err
		}
		return u.Save(o.html, p.Render())
	case u.JSON:
		if o.files {
			i.Files = d.Catalog().Selection().Files
		}
		return u.Emit(i)
	case o.files:
		if err := i.Print(u); err != nil {
			return err
		}
		return inspect.PrintFiles(d.Catalog().Selection().Files, u)
	}
	return i.Print(u)
}

// givenFlags returns the flags of a command line that affect the order, as text to repeat them.
func givenFlags(f *pflag.FlagSet) string {
	var b strings.Builder
	f.Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "html", "json", "log-level", "log-format":
		default:
			fmt.Fprintf(&b, " --%s %s", f.Name, terminal.Quote(f.Value.String()))
		}
	})
	return b.String()
}
