package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/bench"
	"github.com/lsiofs/lsiofs/pipeline/unpack/synthetic"
)

type benchOptions struct {
	datasetFlags
	paths []string

	make   string
	gz     bool
	zst    bool
	shape  synthetic.Shape
	count  uint64
	shards uint64
}

func newBenchCommand(g *globals) *cobra.Command {
	o := &benchOptions{}
	c := &cobra.Command{
		Use:   "bench DATASET",
		Short: "Measure reading a dataset beside the limits of this machine",
		Long: `With --make FORMAT, makes a dataset of seeded data in DIR, which must be empty or
not exist yet: WebDataset samples (tar), text (jsonl), frames (tfrecord) or
records of one size (fixed), in shards of about 100 MB.`,
		Example: `  lsiofs bench --make tar --records 56000 --bytes 12500 /data/bench-tar
  lsiofs bench --make jsonl --zst --records 500000 --bytes 1200 /data/bench-zst`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			o.paths = args
			return runBench(c.Context(), o, g)
		},
	}
	o.addFlags(c)
	return c
}

func (o *benchOptions) addFlags(c *cobra.Command) {
	f := c.Flags()
	f.SortFlags = false
	enumFlag(c, "make", "make a dataset of this format", &o.make, synthetic.Formats...)
	f.BoolVar(&o.gz, "gz", false, "with --make: compress shards with gzip")
	f.BoolVar(&o.zst, "zst", false, "with --make: compress shards with zstd")
	f.Uint64Var(&o.count, "records", 56000, "with --make: how many records")
	sizeFlag(f, "bytes", "with --make: bytes of a record, on average, before compression", &o.shape.RecordBytes)
	f.Lookup("bytes").DefValue = "12500"
	o.shape.RecordBytes = 12500
	f.Uint64Var(&o.shards, "shards", 0, "with --make: in how many shards (0: of about 100 MB)")
	o.add(c)
}

func runBench(ctx context.Context, o *benchOptions, g *globals) error {
	if o.make != "" {
		return runBenchMake(ctx, o, g)
	}
	return usagef("not there yet")
}

func runBenchMake(ctx context.Context, o *benchOptions, g *globals) error {
	switch {
	case len(o.paths) != 1:
		return usagef("%s --make takes DIR, where the dataset is to be made (see lsiofs bench --help)", "lsiofs bench")
	case o.gz && o.zst:
		return usagef("--gz and --zst: choose one")
	case o.gz:
		o.shape.Codec = "gz"
	case o.zst:
		o.shape.Codec = "zst"
	}
	o.shape.Format, o.shape.Seed = o.make, o.spec.Order.Seed
	v := newMakingView(g.ui)
	m := bench.Make{Dir: o.paths[0], Shape: o.shape, Records: o.count, Shards: o.shards, Progress: v.show}
	if err := m.Validate(); err != nil {
		return coded(exitUsage, err)
	}
	made, err := m.Run(ctx)
	v.clear()
	if err != nil {
		return err
	}
	if g.ui.json {
		return g.ui.emit(made)
	}
	g.ui.notef("made %s: %s of %s in %s, %s (%s of files) in %s", made.Dir, plural(made.Records, "record"), made.Format,
		plural(made.Shards, "shard"), bytesText(made.DecodedBytes), bytesText(made.FileBytes), roundDuration(made.Took))
	return nil
}
