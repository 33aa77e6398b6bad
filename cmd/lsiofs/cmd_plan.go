package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/readplan"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
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
		Short: "Show which reads a stream's next records need, without reading them",
		Long: `Shows the reads that the next records of a worker's stream need: how many, their sizes,
and the number of bytes read per byte needed (amplification). It reads only the index,
and creates the index first if there is none.

The plan marked as in use is what a mount with the same flags does; the reason is shown
below it.
  scan    reads each piece (a run of records, cut at --chunk-bytes and --chunk-records)
          that contains needed records as a whole, and keeps records that are needed
          later as long as they fit in --memory. If memory is too small, pieces are
          dropped and read again. Compressed shards are decoded meanwhile
  gather  reads only the records, neighbouring ones together, and keeps nothing; not
          possible for compressed shards, which have to be decoded in order
  spool   decodes each compressed shard that does not fit in memory once, to a file;
          reads from that file are not counted, nor are shards that the disk cache has
          decoded already

The figures come from a dry run: the code that a mount reads with goes through the
records, with the same --memory, but no bytes are read. They are exact for gather, and
for the others if memory holds the records that wait for their turn. If it does not, they
depend on when reads end and decoders run, and are usually within a tenth of what happens
(compressed shards that are decoded again and again: within a half). For more than a
million records, the first million are counted and the rest is extrapolated; the plan
then says so. The figures assume that memory and the page cache are empty and that there
are no other readers. Reads ahead for later records are not included.

For a bucket or a web server, it also shows what a whole epoch takes: requests and their
list price (only known for Amazon S3), bytes, the memory or disk cache that the order
needs, the same for other --chunk-bytes, and the share of the chunks that each of
several nodes fetches. If chunks may be read more than once, dry runs count requests here,
too. They include what the disk cache may have already; with a cache that is too small for
the order they are an upper limit.

For crops of Zarr arrays, the reads are those of stored chunks and of indexes of shards,
usually within a tenth of what happens. It also shows how many of the arrays' chunks are
decoded, in this order and in others, and the --memory from which on each is decoded about
once. The sizes of chunks are read from the first 64 shards that are needed; the others
are assumed to be alike.`,
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
	c.Flags().Uint64Var(&o.records, "records", 16384, "number of records, counted from the start of the stream; 0 for all remaining ones")
	return c
}

func runPlan(ctx context.Context, o *planOptions, g *globals) error {
	s, resume, err := o.resolveStream(o.dataset)
	if err != nil {
		return err
	}
	d, err := opening.OpenShowing(ctx, g.ui, g.log(), s, pipeline.Options{TakesNone: true})
	if err != nil {
		return err
	}
	return opening.Close(d, showPlan(ctx, d, o, resume, g.ui), g.log())
}

func showPlan(ctx context.Context, d *pipeline.Dataset, o *planOptions, resume *opening.Checkpoint, u *terminal.UI) error {
	position, err := o.position(d, resume)
	if err != nil {
		return err
	}
	r, err := readplan.New(ctx, d, position, o.share.worker, o.records)
	if err != nil {
		return err
	}
	if u.JSON {
		return u.Emit(r)
	}
	return r.Print(u)
}
