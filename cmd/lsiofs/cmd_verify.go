package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/verification"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

type verifyOptions struct {
	datasetFlags
	dataset string
	order   bool
}

func newVerifyCommand(g *globals) *cobra.Command {
	o := &verifyOptions{}
	c := &cobra.Command{
		Use:   "verify DATASET",
		Short: "Read every byte of a dataset and list what is damaged",
		Long: `Reads all shards once, bypassing the page cache (unless --direct is off). It checks all
checksums of the format and the compression, that every record parses, and that
everything matches the index. It lists damage by shard, record and offset, and exits
with code ` + fmt.Sprint(int(exit.Verify)) + ` if there is any. A dataset without an index is indexed first; if no
intact records remain, it lists what indexing has found.

--order also checks the order that the flags describe: that every record comes once,
that records are assigned to workers as specified, and that resuming at random positions
continues with the rest. It also compares how well shards are mixed with what inspect
predicts, with a buffer over shards in random order, and with a full permutation. This
takes about a second per million records. --split affects only this check: shards are
always read whole.`,
		Example: `  lsiofs verify /data/train
  lsiofs verify /data/train --order --seed 42 --workers 8
  lsiofs verify '/data/*.tar.gz' --json | jq .findings`,
		Args: o.arguments("DATASET"),
		RunE: func(c *cobra.Command, args []string) error {
			o.dataset = o.withDataset(args)[0]
			return runVerify(c.Context(), o, g)
		},
	}
	o.add(c)
	o.addMix(c)
	c.Flags().BoolVar(&o.order, "order", false, "also check the order, and measure how well it mixes shards")
	return c
}

func runVerify(ctx context.Context, o *verifyOptions, g *globals) error {
	s, _, err := o.resolve(o.dataset)
	if err != nil {
		return err
	}
	if o.order && s.Mix.Asked() {
		return exit.Usagef("--order proves that an epoch delivers every record exactly once, which a mixture does not: leave it out, or verify the order of each source")
	}
	s.OnCorrupt = spec.CorruptSkip // list all damage, not only the first
	s.Deal.Tail = spec.TailKeep    // include all records
	if s.Mix.Asked() && s.Order.Length == 0 {
		s.Order.Length = 1 // no epoch is read: sources may be too small to have a length of their own
	}
	d, err := opening.OpenShowing(ctx, g.ui, g.log(), s, pipeline.Options{})
	if v, ok := verification.Refused(err); ok {
		return conclude(v, g.ui)
	}
	if err != nil {
		return err
	}
	v, err := verification.Shards(ctx, d, g.ui)
	if err == nil && o.order {
		err = v.ProveOrder(ctx, d, g.ui)
	}
	if err == nil {
		err = conclude(v, g.ui)
	}
	return opening.Close(d, err, g.log())
}

// conclude prints a report and returns its verdict.
func conclude(v verification.Report, u *terminal.UI) error {
	print := v.Print
	if u.JSON {
		print = func(u *terminal.UI) error { return u.Emit(v) }
	}
	if err := print(u); err != nil {
		return err
	}
	return v.Verdict()
}
