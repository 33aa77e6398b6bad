// Package gate is the command of integration/bench: the regression gate (--check), and the
// generator of data to measure with (--make).
package gate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/bench"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/mounting"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/integration/bench/service"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// options are the flags.
type options struct {
	ui     *terminal.UI
	flags  *pflag.FlagSet
	paths  []string
	lsiofs string // the program to measure; "": one built from these sources

	check    bool
	only     []string
	dir      string
	rounds   int
	seconds  float64
	rings    bool
	spec     spec.Spec
	promises []Promise

	make   string
	gz     bool
	zst    bool
	lz4    bool
	tar    bool
	shape  synthetic.Shape
	count  uint64
	shards uint64
	seed   uint64
	array  edges // of Zarr
}

// Main is the whole process: it calls Run, and cancels it on SIGINT or SIGTERM.
func Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := Run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(int(code))
}

// Run is the whole program. It prints the error that it ends with, if any.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) exit.Code {
	return run(ctx, args, stdout, stderr, Promises())
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer, promises []Promise) exit.Code {
	o := &options{ui: terminal.New(stdout, stderr), promises: promises}
	c := newCommand(o)
	c.SetArgs(args)
	c.SetOut(stdout)
	c.SetErr(stderr)
	err := exit.OrInterrupted(ctx, c.ExecuteContext(ctx))
	if err == nil {
		return exit.OK
	}
	code := exit.CodeOf(err)
	o.ui.Fail(err.Error(), map[string]any{"error": err.Error(), "exit_code": code})
	return code
}

func newCommand(o *options) *cobra.Command {
	c := &cobra.Command{
		Use:   "bench --check [DATASET] | --make FORMAT DIRECTORY",
		Short: "Check what lsiofs promises, or make data to measure with",
		Long: `With --check, measures what lsiofs promises. It fails with exit code 6 if a promise is not
kept, and lists what could not be measured here and why. Without DATASET, it makes
datasets of 0.7 GB and removes them (some minutes, 3 GB of disk). Section zarr cuts crops
of arrays that it makes (1 GB), and compares them with a loop of the same decoders.
Section network reads such a dataset from a web server on this machine that answers
after 20 ms, and compares with a plain loop of the same requests. It measures the lsiofs
given by --lsiofs, or builds one from the sources here.

With --make FORMAT, makes a dataset of seeded data in DIRECTORY, which must be empty or
not exist yet: WebDataset samples (tar), text (jsonl), frames (tfrecord), rows of arrays
(npy), records of one size (fixed), directories of files (files), or games of Leela
Chess Zero, one .gz each or in tars (lc0). The same flags make the same bytes. With
--make zarr, the directory becomes one array of 16-bit integers, waves with noise, of
the size --shape, in shards of --shard and chunks of --chunk. The dimensions are the
last ones of channel, time, y, x. --zst and --lz4 compress chunks with blosc, with
shuffled bytes; --plain --zst with zstd alone.`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return exit.Usagef("bench takes one directory, not %d arguments (see --help)", len(args))
			}
			return nil
		},
		SilenceErrors: true, SilenceUsage: true,
		RunE: func(c *cobra.Command, args []string) error {
			o.paths = args
			return o.run(c.Context())
		},
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exit.With(exit.Usage, err) })
	o.addFlags(c.Flags())
	c.AddCommand(&cobra.Command{
		Use: bench.PartCommand, Short: "A process of a measurement, started by bench", Hidden: true, Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error { return Part(c.Context(), args, os.Stdin, o.ui.Out) },
	})
	c.CompletionOptions.DisableDefaultCmd = true
	return c
}

func (o *options) addFlags(f *pflag.FlagSet) {
	o.flags, o.spec = f, spec.Default()
	f.SortFlags = false
	f.BoolVar(&o.ui.JSON, "json", false, "print JSON objects, one per line")
	f.BoolVar(&o.check, "check", false, "measure what is promised, and fail if a promise is not kept")
	f.StringSliceVar(&o.only, "only", nil, "with --check: only these `sections`, out of engine, tar, jsonl, zst, gz, npy, lc0, files, zarr, network, growing")
	f.StringVar(&o.dir, "dir", "", "with --check: `directory` where data is made and kept (default: a temporary one next to the user's cache)")
	f.StringVar(&o.lsiofs, "lsiofs", "", "with --check: `path` of the lsiofs to measure")
	f.IntVar(&o.rounds, "rounds", 5, "with --check: maximum number of measurements of each row")
	f.Float64Var(&o.seconds, "seconds", 90, "with --check: approximate time limit for all rows of a dataset together")
	f.BoolVar(&o.rings, mounting.RingsFlag, false, "with --check: mounts receive the kernel's requests through io_uring")
	f.Func("memory", "with --check: the memory of a mount, as in 512MiB", func(s string) error { return size(s, &o.spec.MemoryBytes) })
	f.StringVar(&o.spec.IndexDir, "index-dir", "", "with --check: directory for indexes")
	f.StringVar(&o.spec.Format.Name, "format", o.spec.Format.Name, "with --check DATASET: its format")
	f.Func("record-bytes", "with --check DATASET --format fixed: the size of its records", func(s string) error { return size(s, &o.spec.Format.RecordBytes) })
	f.StringVar(&o.make, "make", "", "make a dataset of this `format`: "+strings.Join(append(slices.Clone(synthetic.Formats), makeZarr), ", "))
	f.BoolVar(&o.gz, "gz", false, "with --make: compress shards with gzip")
	f.BoolVar(&o.zst, "zst", false, "with --make: compress shards with zstd")
	f.BoolVar(&o.lz4, "lz4", false, "with --make: compress shards with lz4")
	f.BoolVar(&o.tar, "tar", false, "with --make lc0: tars of games")
	f.Uint64Var(&o.count, "records", 56000, "with --make: number of records")
	o.shape.RecordBytes = 12500
	f.Func("bytes", "with --make: mean size of a record before compression (default 12500)", func(s string) error { return size(s, &o.shape.RecordBytes) })
	f.Uint64Var(&o.shards, "shards", 0, "with --make: number of shards (0: shards of about 100 MB)")
	f.Uint64Var(&o.seed, "seed", o.spec.Order.Seed, "with --make: the seed of its bytes; with --check, of the shuffle")
	o.array.add(f)
}

// size parses a number of bytes, such as 12500 or 64MiB.
func size[T int64 | uint64](s string, to *T) error {
	n, err := humanize.ParseBytes(s)
	if err == nil && n > 1<<62 {
		err = fmt.Errorf("%s is too large", s)
	}
	*to = T(n)
	return err
}

func (o *options) given(name string) bool { return o.flags.Changed(name) }

func (o *options) run(ctx context.Context) error {
	switch {
	case o.make != "" && o.check:
		return exit.Usagef("--make and --check: choose one")
	case o.make == "" && !o.check:
		return exit.Usagef("give --check or --make; lsiofs bench DATASET measures your own dataset")
	case o.make == "" && (o.gz || o.zst || o.lz4 || o.tar || o.given("records") || o.given("bytes") || o.given("shards")):
		return exit.Usagef("--gz, --zst, --lz4, --tar, --records, --bytes and --shards belong to --make")
	case !o.check && (o.dir != "" || len(o.only) > 0 || o.lsiofs != ""):
		return exit.Usagef("--dir, --only and --lsiofs belong to --check")
	case o.make != makeZarr && (o.given("shape") || o.given("shard") || o.given("chunk") || o.array.plain):
		return exit.Usagef("--shape, --shard, --chunk and --plain belong to --make zarr")
	case o.make == makeZarr:
		return o.makeZarr(ctx)
	case o.make != "":
		return o.makeShards(ctx)
	}
	return o.runCheck(ctx)
}

// command returns where results are shown.
func (o *options) command() command {
	return command{bench.Command{UI: o.ui, Log: o.ui.Logger(slog.LevelWarn, terminal.LogText), Version: "of these sources", Lsiofs: o.lsiofs, Caches: true, Rings: o.rings}}
}

// runCheck checks the promises.
func (o *options) runCheck(ctx context.Context) (err error) {
	s := o.spec
	s.Order.Seed = o.seed
	if len(o.paths) > 0 {
		if pipeline.IsRemote(o.paths[0]) {
			return exit.Usagef("what is promised of buckets and web servers is measured with a server of this machine: --check --only network, without a URL; lsiofs bench URL measures yours")
		}
		s.Dataset = o.paths[0]
	}
	if o.lsiofs == "" {
		built, remove, err := build(ctx)
		if err != nil {
			return err
		}
		o.lsiofs = built
		defer func() { err = errors.Join(err, remove()) }()
	}
	var sections []Section
	for _, name := range o.only {
		sections = append(sections, Section(name))
	}
	return o.command().Check(ctx, CheckConfig{
		Config: bench.Config{Spec: s, Flags: o.mountFlags(), Rounds: o.rounds, Total: time.Duration(o.seconds * float64(time.Second))},
		Only:   sections, Promises: o.promises, Dir: o.dir,
	})
}

// mountFlags returns the flags that give a mount the same spec.
func (o *options) mountFlags() []string {
	var args []string
	for name, value := range map[string]string{
		"memory": strconv.FormatInt(o.spec.MemoryBytes, 10), "index-dir": o.spec.IndexDir, "format": o.spec.Format.Name,
		"record-bytes": strconv.FormatInt(o.spec.Format.RecordBytes, 10), "seed": strconv.FormatUint(o.seed, 10),
	} {
		if o.given(name) {
			args = append(args, "--"+name+"="+value)
		}
	}
	slices.Sort(args)
	return args
}

// build builds lsiofs from these sources, as for a release.
func build(ctx context.Context) (path string, remove func() error, err error) {
	dir, err := os.MkdirTemp("", "lsiofs-bench-")
	if err != nil {
		return "", nil, err
	}
	remove = func() error { return os.RemoveAll(dir) }
	path = filepath.Join(dir, "lsiofs")
	c := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "github.com/lsiofs/lsiofs/cmd/lsiofs")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return "", nil, errors.Join(fmt.Errorf("building lsiofs: %w: %s", err, out), remove())
	}
	return path, remove, nil
}

// command holds what all measurements share.
type command struct{ bench.Command }

// Check checks the promises, prints the results, and returns an error if a promise is not kept.
func (b command) Check(ctx context.Context, c CheckConfig) error {
	v := bench.NewRowView(b.UI, b.Log)
	c.Progress = v.Show
	r, err := bench.Measured(b.Command, v, &c, func(p bench.Program) (CheckReport, error) { return RunCheck(ctx, p, c) })
	if err != nil {
		return err
	}
	if b.UI.JSON {
		err = b.UI.Emit(r)
	} else {
		err = r.Print(b.UI.Out)
	}
	if err == nil && r.Short() {
		err = exit.Errorf(exit.Check, "some promises were not kept")
	}
	return err
}

// Make makes a dataset and reports what it has made.
func (b command) Make(ctx context.Context, m Make) error {
	v := newMakingView(b.UI)
	m.Progress = v.show
	if err := m.Validate(); err != nil {
		return exit.With(exit.Usage, err)
	}
	made, err := m.Run(ctx)
	v.clear()
	if err != nil {
		return err
	}
	if b.UI.JSON {
		return b.UI.Emit(made)
	}
	b.UI.Notef("made %s: %s of %s in %s, %s (%s of files) in %s", made.Dir, terminal.Plural(made.Records, "record"), made.Format,
		terminal.Plural(made.Shards, "shard"), terminal.Bytes(made.DecodedBytes), terminal.Bytes(made.FileBytes), terminal.Round(made.Took))
	return nil
}

// MakeZarr makes a Zarr array and reports what it has made.
func (b command) MakeZarr(ctx context.Context, m MakeZarr) error {
	v := newMakingView(b.UI)
	m.Progress = v.show
	if err := m.Validate(); err != nil {
		return exit.With(exit.Usage, err)
	}
	made, err := m.Run(ctx)
	v.clear()
	if err != nil {
		return err
	}
	if b.UI.JSON {
		return b.UI.Emit(made)
	}
	b.UI.Notef("made %s: an array of %v in %s of zarr, %s (%s of files) in %s", made.Dir, m.Shape,
		terminal.Plural(made.Shards, "shard"), terminal.Bytes(made.DecodedBytes), terminal.Bytes(made.FileBytes), terminal.Round(made.Took))
	return nil
}

// Part is the work of one process of a measurement: one of Part, or
//
//	objects DIR COPIES  service.Serve
//	loop                service.Loop
//	loop pipe           the same, but also writes what it reads to descriptor 3
func Part(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	switch {
	case len(args) == 3 && args[0] == "objects":
		copies, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		return service.Serve(ctx, args[1], copies, in, out)
	case len(args) == 1 && args[0] == "loop":
		return service.Loop(ctx, in, out, nil)
	case len(args) == 2 && args[0] == "loop" && args[1] == "pipe":
		to := os.NewFile(3, "pipe")
		return errors.Join(service.Loop(ctx, in, out, to), to.Close())
	}
	return bench.Part(ctx, args, in, out)
}

// makingView shows how much of a dataset has been made: a bar on a terminal, otherwise a line every
// few seconds. It is not safe for concurrent use.
type makingView struct {
	ui    *terminal.UI
	bar   *terminal.Bar
	begin time.Time
	pace  terminal.Pace
}

func newMakingView(u *terminal.UI) *makingView {
	return &makingView{ui: u, bar: u.NewBytesBar(0), begin: time.Now(), pace: terminal.NewPace()}
}

func (v *makingView) show(bytes, total int64) {
	switch {
	case v.ui.JSON:
	case v.ui.Terminal:
		v.bar.Draw("making", min(bytes, total), total)
	case v.pace.Due(time.Since(v.begin)):
		v.ui.Notef("making: %s of about %s", terminal.Bytes(bytes), terminal.Bytes(total))
	}
}

func (v *makingView) clear() { v.bar.Clear() }
