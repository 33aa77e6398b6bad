package main

import (
	"context"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/bench"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/doctor"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/mounting"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/unpack/synthetic"
)

type benchOptions struct {
	datasetFlags
	paths []string

	rounds    int
	seconds   float64
	ofDataset map[string]bool // names of the dataset's flags

	check bool
	only  []string
	dir   string

	make   string
	gz     bool
	zst    bool
	lz4    bool
	tar    bool
	shape  synthetic.Shape
	count  uint64
	shards uint64
}

func newBenchCommand(g *globals) *cobra.Command { return newBenchCommandOf(&benchOptions{}, g) }

func newBenchCommandOf(o *benchOptions, g *globals) *cobra.Command {
	c := &cobra.Command{
		Use:   "bench [DATASET]",
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

DATASET is only read. What is larger than the page cache can hold is measured by the
beginning of its epoch. Memory is touched before new processes are measured, as
virtual machines get it from their host at the first touch, which is slow.

With --check, measures what lsiofs promises, fails with exit code 6 where something
falls short, and says what could not be measured here and why; without DATASET of
datasets of 0.7 GB that it makes for it, and removes (some minutes, 2 GB of disk).

With --make FORMAT, makes a dataset of seeded data in the directory DATASET, which
must be empty or not exist yet: WebDataset samples (tar), text (jsonl), frames
(tfrecord), rows of arrays (npy), records of one size (fixed), directories of files
(files), or games of Leela Chess Zero, a .gz each or in tars (lc0). The same flags
make the same bytes.`,
		Example: `  lsiofs bench /data/train
  lsiofs bench --check
  lsiofs bench --check --only tar,jsonl --dir /data/bench --json > check.json
  lsiofs bench --make tar --records 56000 --bytes 12500 /data/bench-tar
  lsiofs bench --make jsonl --zst --records 600000 --bytes 1200 /data/bench-zst`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return exit.Usagef("%s takes one DATASET, not %d arguments (see %s --help)", c.CommandPath(), len(args), c.CommandPath())
			}
			return nil
		},
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
	f.IntVar(&o.rounds, "rounds", 5, "measure each row so often, at most")
	f.Float64Var(&o.seconds, "seconds", 90, "about how long all rows of a dataset may take together")
	f.BoolVar(&o.check, "check", false, "measure what is promised, and fail where it is not reached; without DATASET of data that is made for it")
	f.StringSliceVar(&o.only, "only", nil, "with --check: these `sections` of engine, tar, jsonl, zst, gz, npy, lc0, files only")
	f.StringVar(&o.dir, "dir", "", "with --check: the `directory` where data is made, and kept (default: a temporary one beside the user's cache)")
	enumFlag(c, "make", "make a dataset of this format", &o.make, synthetic.Formats...)
	f.BoolVar(&o.gz, "gz", false, "with --make: compress shards with gzip")
	f.BoolVar(&o.zst, "zst", false, "with --make: compress shards with zstd")
	f.BoolVar(&o.lz4, "lz4", false, "with --make: compress shards with lz4")
	f.BoolVar(&o.tar, "tar", false, "with --make lc0: tars of games")
	f.Uint64Var(&o.count, "records", 56000, "with --make: how many records")
	sizeFlag(f, "bytes", "with --make: bytes of a record, on average, before compression", &o.shape.RecordBytes)
	f.Lookup("bytes").DefValue = "12500"
	o.shape.RecordBytes = 12500
	f.Uint64Var(&o.shards, "shards", 0, "with --make: in how many shards (0: of about 100 MB)")
	own := map[string]bool{}
	f.VisitAll(func(f *pflag.Flag) { own[f.Name] = true })
	o.add(c)
	o.ofDataset = map[string]bool{}
	f.VisitAll(func(f *pflag.Flag) { o.ofDataset[f.Name] = !own[f.Name] })
}

func runBench(ctx context.Context, o *benchOptions, g *globals) error {
	switch {
	case o.make != "" && o.check:
		return exit.Usagef("--make and --check: choose one")
	case !o.check && (o.dir != "" || len(o.only) > 0):
		return exit.Usagef("--dir and --only belong to --check")
	case o.make == "" && (o.gz || o.zst || o.lz4 || o.tar || o.given("records") || o.given("bytes") || o.given("shards")):
		return exit.Usagef("--gz, --zst, --lz4, --tar, --records, --bytes and --shards belong to --make")
	}
	if o.make != "" {
		return runBenchMake(ctx, o, g)
	}
	if o.check {
		return runBenchCheck(ctx, o, g, bench.Promises())
	}
	return runBenchDataset(ctx, o, g)
}

// runBenchDataset measures a dataset and prints the table.
func runBenchDataset(ctx context.Context, o *benchOptions, g *globals) error {
	if len(o.paths) != 1 {
		return exit.Usagef("lsiofs bench takes DATASET; only --check does without (see lsiofs bench --help)")
	}
	s, _, err := o.resolve(o.paths[0])
	if err != nil {
		return err
	}
	v := newBenchView(g)
	c := o.config(s, v)
	r, err := measured(g, v, &c, func(p bench.Program) (bench.Report, error) { return bench.Run(ctx, p, c) })
	if err != nil {
		return err
	}
	if g.ui.JSON {
		return g.ui.Emit(r)
	}
	return r.Print(g.ui.Out)
}

// measured runs a measurement where it makes sense and mounts are possible. The
// view is gone when it returns.
func measured[R any](g *globals, v *benchView, c interface{ Validate() error }, run func(bench.Program) (R, error)) (r R, err error) {
	defer v.clear()
	g.takeForce() // a second Ctrl-C must not leave a mount behind
	if err := c.Validate(); err != nil {
		return r, exit.With(exit.Usage, err)
	}
	if missing := doctor.CanMount(); missing != nil {
		return r, missing
	}
	p, err := benchProgram(g)
	if err != nil {
		return r, err
	}
	return run(p)
}

// runBenchCheck checks what is promised.
func runBenchCheck(ctx context.Context, o *benchOptions, g *globals, promises []bench.Promise) error {
	dataset := "unnamed" // a spec needs one
	if len(o.paths) > 0 {
		dataset = o.paths[0]
	}
	s, _, err := o.resolve(dataset)
	if err != nil {
		return err
	}
	if len(o.paths) == 0 {
		s.Dataset = ""
	}
	v := newBenchView(g)
	c := bench.CheckConfig{Config: o.config(s, v), Only: o.sections(), Promises: promises, Dir: o.dir}
	r, err := measured(g, v, &c, func(p bench.Program) (bench.CheckReport, error) { return bench.RunCheck(ctx, p, c) })
	if err != nil {
		return err
	}
	if g.ui.JSON {
		err = g.ui.Emit(r)
	} else {
		err = r.Print(g.ui.Out)
	}
	if err == nil && r.Short() {
		err = exit.Errorf(exit.Check, "some promises were not kept")
	}
	return err
}

// config is what all measurements of a dataset have in common.
func (o *benchOptions) config(s spec.Spec, v *benchView) bench.Config {
	return bench.Config{
		Spec: s, Flags: o.datasetArgs(), Rounds: o.rounds, Total: time.Duration(o.seconds * float64(time.Second)), Progress: v.show,
	}
}

func (o *benchOptions) sections() []bench.Section {
	var all []bench.Section
	for _, s := range o.only {
		all = append(all, bench.Section(s))
	}
	return all
}

// datasetArgs are the flags of the dataset that were given, for a child.
func (o *benchOptions) datasetArgs() []string {
	var args []string
	o.flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed && o.ofDataset[f.Name] {
			args = append(args, "--"+f.Name+"="+f.Value.String())
		}
	})
	return args
}

// benchProgram is how measurements run this program.
func benchProgram(g *globals) (bench.Program, error) {
	self, err := os.Executable()
	if err != nil {
		return bench.Program{}, err
	}
	return bench.Program{
		Self: self, Version: versionOf().Version,
		Mount: func(ctx context.Context, args []string, output *os.File) (*exec.Cmd, error) {
			c := mounting.Child{Args: args, Output: output}
			err := c.Start(ctx, mounting.Silent{})
			return c.Cmd, err
		},
		Open: func(ctx context.Context, s spec.Spec) (*pipeline.Dataset, error) {
			return opening.OpenShowing(ctx, g.ui, g.log(), s)
		},
	}, nil
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
	v := newMakingView(g.ui)
	m := bench.Make{Dir: o.paths[0], Shape: o.shape, Records: o.count, Shards: o.shards, Progress: v.show}
	if err := m.Validate(); err != nil {
		return exit.With(exit.Usage, err)
	}
	made, err := m.Run(ctx)
	v.clear()
	if err != nil {
		return err
	}
	if g.ui.JSON {
		return g.ui.Emit(made)
	}
	g.ui.Notef("made %s: %s of %s in %s, %s (%s of files) in %s", made.Dir, terminal.Plural(made.Records, "record"), made.Format,
		terminal.Plural(made.Shards, "shard"), terminal.Bytes(made.DecodedBytes), terminal.Bytes(made.FileBytes), terminal.Round(made.Took))
	return nil
}
