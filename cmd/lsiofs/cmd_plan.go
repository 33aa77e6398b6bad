package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/readplan"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/resuming"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

type planOptions struct {
	streamFlags
	dataset string
	records uint64
}

func newPlanCommand(g *globals) *cobra.Command {
	o := &planOptions{}
	c := &cobra.Command{
		Use:   "plan DATASET",
		Short: "Show what a stream's next records would read, without reading",
		Long: `Shows the reads that the next records of a worker's stream take: how many, of which
sizes, and how many bytes for each byte that is wanted (amplification). Only the
index is looked at; where there is none it is made first.

One of the plans is in use: it is what a mount with the same flags does, and why is
said below it.
  scan    reads the pieces (runs of records, cut at --chunk-bytes and --chunk-records)
          that hold the records, whole, each once, and keeps what is not wanted yet as
          long as --memory lasts; compressed shards are decoded on the way, and what is
          read of them is an estimate. Where memory is too little, pieces are read again,
          and the figures are lower bounds ("at least")
  gather  reads just the records, near ones together, and keeps nothing; compressed
          shards have to be decoded in order, which rules it out
  spool   decodes compressed shards that memory can't hold once each to a file; what is
          then read of that file is not counted

All is counted as if nothing were in memory and nobody else read the dataset. What
is read ahead for the records behind these is left out.

Of a bucket or a web server it also says what a whole epoch takes: requests and their
list price (S3's own; elsewhere none is known), bytes, the memory or the room in a disk
cache that the order needs, the same for larger --chunk-bytes, and which share of the
chunks each of several nodes fetches.

Of crops of Zarr arrays it says instead how many of the arrays' chunks are decoded, in
this order and in others, and from which --memory on each is decoded about once.`,
		Example: `  lsiofs plan /data/train --records 20000
  lsiofs plan /data/train --worker 0/4 --from 20480 --shuffle full
  lsiofs plan s3://bucket/train --groups 4 --workers 16
  lsiofs plan /data/train --records 0 --json | jq '.storages[].plans[] | {strategy, amplification}'`,
		Args: o.arguments("DATASET"),
		RunE: func(c *cobra.Command, args []string) error {
			o.dataset = o.withDataset(args)[0]
			return runPlan(c.Context(), o, g)
		},
	}
	o.add(c)
	o.addMix(c)
	o.addGrow(c)
	c.Flags().Uint64Var(&o.records, "records", 16384, "how many records, from where the stream begins; 0 for all that are left")
	return c
}

func runPlan(ctx context.Context, o *planOptions, g *globals) error {
	s, resume, err := o.resolveStream(o.dataset)
	if err != nil {
		return err
	}
	asked := s.Read
	s.Read = spec.ReadScan // nothing is read, so no spool is needed
	d, err := opening.OpenLooking(ctx, g.ui, g.log(), s)
	if err != nil {
		return err
	}
	return opening.Close(d, showPlan(ctx, d, o, resume, asked, g.ui), g.log())
}

func showPlan(ctx context.Context, d *pipeline.Dataset, o *planOptions, resume *resuming.Checkpoint, asked spec.Read, u *terminal.UI) error {
	position, err := o.position(d, resume)
	if err != nil {
		return err
	}
	r, err := readplan.New(ctx, d, position, o.share.worker, o.records, asked)
	if err != nil {
		return err
	}
	if u.JSON {
		return u.Emit(r)
	}
	return r.Print(u)
}
