package main

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/bench"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

type benchOptions struct {
	datasetFlags
	paths []string

	rounds    int
	seconds   float64
	ofDataset map[string]bool // names of the flags that describe the dataset

	rings bool // mounts take requests through io_uring

	// moved holds flags that this command had before they moved to integration/bench.
	moved struct {
		check bool
		make  string
	}
}

func newBenchCommand(g *globals) *cobra.Command {
	o := &benchOptions{}
	c := &cobra.Command{
		Use:   "bench DATASET",
		Short: "Measure reading a dataset beside the limits of this machine",
		Long: `Measures how fast streams of DATASET come, beside what limits them here: preads of
the same ranges in a plain loop, fio where it is installed, the decoder's own program
for compressed shards, tar c for folders of files, and the FUSE ceiling, a mount like
any other whose every answer lies ready in memory. Rows are measured in turns, in
rounds, after one round that does not count; shown are medians of the rounds and their
spread. A ratio is that of two rows of the same round, so it means something on a
machine that is not quiet too.

  FUSE ceiling, mount    a server in a process of its own; readers, one process each,
                         read(2) 1 MiB at a time into the same memory
  cat | reader           lsiofs cat into a pipe of 1 MiB, which such a reader reads
  decoders alone         of this process, a shard a core, to memory never used before:
                         what the first epoch of compressed shards can't do without
  fetch                  the streams in this process, without FUSE
  first epoch            of a new process, from its first answer on; else a server
                         goes through epoch after epoch, and keeps what --memory holds
  hot, cold              all shards in the page cache; none, and O_DIRECT
  CPU                    of all processes that take part, server and readers
  reads, amplification   of the server's storage, a record and a delivered byte

Of a bucket or a web server streams are compared with bare requests of as many bytes as
chunks have, as many at a time (--connections); and with the same bytes once more from
the disk cache, a temporary one. That transfers what comes in --seconds.

DATASET is only read. What is larger than the page cache can hold is measured by the
beginning of its epoch. Memory is touched before new processes are measured, as
virtual machines get it from their host at the first touch, which is slow.`,
		Example: `  lsiofs bench /data/train
  lsiofs bench s3://bucket/train --seconds 60`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return wrongArgs(c, "one DATASET", args, true)
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			o.paths = args
			return runBench(c.Context(), o, g)
		},
	}
	o.addFlags(c)
	// Flags that accompanied the moved ones are unknown now.
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if o.moved.check || o.moved.make != "" {
			return errMoved
		}
		return c.Parent().FlagErrorFunc()(c, err)
	})
	return c
}

var errMoved = exit.Usagef("--check and --make are not in this program: in the sources of lsiofs, go run ./integration/bench has them")

func (o *benchOptions) addFlags(c *cobra.Command) {
	f := c.Flags()
	f.SortFlags = false
	f.IntVar(&o.rounds, "rounds", 5, "measure each row so often, at most")
	f.Float64Var(&o.seconds, "seconds", 90, "about how long all rows of a dataset may take together")
	addRings(f, &o.rings)
	f.BoolVar(&o.moved.check, "check", false, "")
	f.StringVar(&o.moved.make, "make", "", "")
	for _, name := range []string{"check", "make"} {
		if err := f.MarkHidden(name); err != nil {
			panic(err) // it is defined above
		}
	}
	own := map[string]bool{}
	f.VisitAll(func(f *pflag.Flag) { own[f.Name] = true })
	o.add(c)
	o.ofDataset = map[string]bool{}
	f.VisitAll(func(f *pflag.Flag) { o.ofDataset[f.Name] = !own[f.Name] })
}

func runBench(ctx context.Context, o *benchOptions, g *globals) error {
	if o.moved.check || o.moved.make != "" {
		return errMoved
	}
	return runBenchDataset(ctx, o, g)
}

// runBenchDataset measures a dataset and prints the table.
func runBenchDataset(ctx context.Context, o *benchOptions, g *globals) error {
	if len(o.paths) != 1 {
		return exit.Usagef("lsiofs bench takes one DATASET, but there are none (see lsiofs bench --help)")
	}
	s, _, err := o.resolve(o.paths[0])
	if err != nil {
		return err
	}
	g.takeForce() // a second Ctrl-C must not leave a mount behind
	return o.command(g).Dataset(ctx, o.config(s))
}

func (o *benchOptions) command(g *globals) bench.Command {
	return bench.Command{UI: g.ui, Log: g.log(), Version: versionOf().Version, Caches: o.flags.Lookup("cache-size") != nil, Rings: o.rings}
}

// config returns the configuration that all measurements of a dataset share.
func (o *benchOptions) config(s spec.Spec) bench.Config {
	return bench.Config{
		Spec: s, Flags: o.datasetArgs(), Rounds: o.rounds, Total: time.Duration(o.seconds * float64(time.Second)),
	}
}

// datasetArgs returns the dataset's flags that are set, as arguments for a child process.
func (o *benchOptions) datasetArgs() []string {
	var args []string
	o.flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed && o.ofDataset[f.Name] {
			args = append(args, "--"+f.Name+"="+f.Value.String())
		}
	})
	return args
}

// newBenchPartCommand returns the hidden command that processes started by bench run.
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
