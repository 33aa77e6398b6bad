package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/bench"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
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
	rings bool // mounts take requests by io_uring

	make   string
	gz     bool
	zst    bool
	lz4    bool
	tar    bool
	shape  synthetic.Shape
	count  uint64
	shards uint64

	array edges // of Zarr
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

Of a bucket or a web server streams are compared with bare requests of as many bytes as
chunks have, as many at a time (--connections); and with the same bytes once more from
the disk cache, a temporary one. That transfers what comes in --seconds.

DATASET is only read. What is larger than the page cache can hold is measured by the
beginning of its epoch. Memory is touched before new processes are measured, as
virtual machines get it from their host at the first touch, which is slow.

With --check, measures what lsiofs promises, fails with exit code 6 where something
falls short, and says what could not be measured here and why; without DATASET of
datasets of 0.7 GB that it makes for it, and removes (some minutes, 2 GB of disk).
Its section zarr cuts crops of arrays that it makes (1 GB), and compares them with a
loop of the same decoders. Its section network reads such a dataset from a web server
of this machine, whose first bytes come after 20 ms, and compares with the same
requests in a plain loop.

With --make FORMAT, makes a dataset of seeded data in the directory DATASET, which
must be empty or not exist yet: WebDataset samples (tar), text (jsonl), frames
(tfrecord), rows of arrays (npy), records of one size (fixed), directories of files
(files), or games of Leela Chess Zero, a .gz each or in tars (lc0). The same flags
make the same bytes. With --make zarr the directory becomes one array of 16-bit
integers, of waves with noise: of --shape, in shards of --shard and chunks of --chunk,
whose dimensions are the last of channel, time, y, x; --zst and --lz4 compress its
chunks by blosc, with shuffled bytes, and --plain --zst by zstd alone.`,
		Example: `  lsiofs bench /data/train
  lsiofs bench s3://bucket/train --seconds 60
  lsiofs bench --check
  lsiofs bench --check --only tar,jsonl --dir /data/bench --json > check.json
  lsiofs bench --make tar --records 56000 --bytes 12500 /data/bench-tar
  lsiofs bench --make jsonl --zst --records 600000 --bytes 1200 /data/bench-zst
  lsiofs bench --make zarr --lz4 --shape 512,1024,1024 /data/bench.zarr`,
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
	f.StringSliceVar(&o.only, "only", nil, "with --check: these `sections` of engine, tar, jsonl, zst, gz, npy, lc0, files, zarr, network, growing only")
	f.StringVar(&o.dir, "dir", "", "with --check: the `directory` where data is made, and kept (default: a temporary one beside the user's cache)")
	addRings(f, &o.rings)
	enumFlag(c, "make", "make a dataset of this format", &o.make, append(slices.Clone(synthetic.Formats), makeZarr)...)
	f.BoolVar(&o.gz, "gz", false, "with --make: compress shards with gzip")
	f.BoolVar(&o.zst, "zst", false, "with --make: compress shards with zstd")
	f.BoolVar(&o.lz4, "lz4", false, "with --make: compress shards with lz4")
	f.BoolVar(&o.tar, "tar", false, "with --make lc0: tars of games")
	f.Uint64Var(&o.count, "records", 56000, "with --make: how many records")
	sizeFlag(f, "bytes", "with --make: bytes of a record, on average, before compression", &o.shape.RecordBytes)
	f.Lookup("bytes").DefValue = "12500"
	o.shape.RecordBytes = 12500
	f.Uint64Var(&o.shards, "shards", 0, "with --make: in how many shards (0: of about 100 MB)")
	o.array.add(f)
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
	if o.make != makeZarr && (o.given("shape") || o.given("shard") || o.given("chunk") || o.array.plain) {
		return exit.Usagef("--shape, --shard, --chunk and --plain belong to --make zarr")
	}
	if o.make == makeZarr {
		return runBenchMakeZarr(ctx, o, g)
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
	g.takeForce() // a second Ctrl-C must not leave a mount behind
	return o.command(g).Dataset(ctx, o.config(s))
}

// runBenchCheck checks what is promised.
func runBenchCheck(ctx context.Context, o *benchOptions, g *globals, promises []bench.Promise) error {
	dataset := "unnamed" // a spec needs one
	if len(o.paths) > 0 && pipeline.IsRemote(o.paths[0]) {
		return exit.Usagef("what is promised of buckets and web servers is measured with a server of this machine: lsiofs bench --check --only network, without a URL; lsiofs bench URL measures yours")
	}
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
	g.takeForce() // a second Ctrl-C must not leave a mount behind
	return o.command(g).Check(ctx, bench.CheckConfig{Config: o.config(s), Only: o.sections(), Promises: promises, Dir: o.dir})
}

func (o *benchOptions) command(g *globals) bench.Command {
	return bench.Command{UI: g.ui, Log: g.log(), Version: versionOf().Version, Caches: o.flags.Lookup("cache-size") != nil, Rings: o.rings}
}

// config is what all measurements of a dataset have in common.
func (o *benchOptions) config(s spec.Spec) bench.Config {
	return bench.Config{
		Spec: s, Flags: o.datasetArgs(), Rounds: o.rounds, Total: time.Duration(o.seconds * float64(time.Second)),
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
