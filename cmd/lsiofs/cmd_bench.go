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
		Short: "Measure how fast a dataset is read, compared with the limits of this machine",
		Long: `Measures how fast streams of DATASET can be read, and compares this with what limits
them on this machine: a plain loop that preads the same ranges, fio if it is installed,
the decoder's own program for compressed shards, tar c for folders of files, and the
FUSE ceiling, which is a mount that serves every read from memory. After a warm-up
round, rows are measured in rounds, one after the other. The table shows the medians
over the rounds and their spread. A ratio compares two rows of the same round, so it is
meaningful even on a busy machine.

  FUSE ceiling, mount    a server in its own process; each reader is another process
                         that read(2)s 1 MiB at a time into the same memory
  cat | reader           lsiofs cat into a pipe of 1 MiB, and a reader as above
  decoders alone         in this process, one shard per core, into fresh memory: the
                         minimum work for the first epoch of compressed shards
  fetch                  the streams in this process, without FUSE
  first epoch            in a new process, from its first answer on; in other rows one
                         server reads epoch after epoch, and keeps what fits in --memory
  hot, cold              all shards are in the page cache; none are, with O_DIRECT
  CPU                    of the server and the readers together
  reads, amplification   reads from storage per record, and bytes read per byte delivered

For a bucket or a web server, streams are compared with plain requests of the size of a
chunk, with the same number of concurrent requests (--connections), and with the same
bytes read again from a temporary disk cache. This transfers as much data as arrives
within --seconds.

DATASET is only read. If it does not fit into the page cache, only the beginning of its
epoch is measured. Memory is touched before new processes are measured, because virtual
machines get memory from their host at the first touch, which is slow.`,
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
	f.IntVar(&o.rounds, "rounds", 5, "maximum number of measurements of each row")
	f.Float64Var(&o.seconds, "seconds", 90, "approximate time limit for all rows of a dataset together")
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
