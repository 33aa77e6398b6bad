package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/bench"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/pipeline/unpack/synthetic"
)

// runBenchMake makes the dataset that the flags describe.
func runBenchMake(ctx context.Context, o *benchOptions, g *globals) error {
	switch {
	case len(o.paths) != 1:
		return exit.Usagef("lsiofs bench --make takes the directory where the dataset is to be made (see lsiofs bench --help)")
	case o.gz && o.zst || o.gz && o.lz4 || o.zst && o.lz4:
		return exit.Usagef("--gz, --zst and --lz4: choose one")
	case o.tar:
		o.shape.Codec = "tar"
	case o.make == "lc0" && !o.zst && !o.lz4:
		o.shape.Codec = "gz"
	case o.gz:
		o.shape.Codec = "gz"
	case o.zst:
		o.shape.Codec = "zst"
	case o.lz4:
		o.shape.Codec = "lz4"
	}
	if o.make == "lc0" && !o.given("bytes") {
		o.shape.RecordBytes = synthetic.FrameBytes
	}
	o.shape.Format, o.shape.Seed = o.make, o.spec.Order.Seed
	return o.command(g).Make(ctx, bench.Make{Dir: o.paths[0], Shape: o.shape, Records: o.count, Shards: o.shards})
}

// newBenchPartCommand is for processes that bench starts.
func newBenchPartCommand(g *globals) *cobra.Command {
	return &cobra.Command{
		Use:     bench.PartCommand,
		Short:   "A process of a measurement, started by lsiofs bench",
		Example: "  lsiofs bench DATASET",
		Hidden:  true,
		Args:    cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			return bench.Part(c.Context(), args, os.Stdin, g.ui.Out)
		},
	}
}
