package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/growing"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
)

// streamFlags are the flags of a dataset and those that select one worker's stream and its start.
type streamFlags struct {
	datasetFlags
	share shareValue
	from  uint64
}

func (o *streamFlags) add(c *cobra.Command) {
	o.datasetFlags.add(c)
	o.addResume()
	f := c.Flags()
	f.Var(&o.share, "worker", "worker whose stream to use: w/W, or w with --workers W")
	f.Uint64Var(&o.from, "from", 0, "skip this many records at the start of the epoch")
}

// resolveStream is resolve plus the flags of the stream.
func (o *streamFlags) resolveStream(dataset string) (s spec.Spec, r *opening.Checkpoint, err error) {
	if o.share.both {
		if o.given("workers") && o.spec.Deal.Workers != o.share.workers {
			return s, nil, exit.Usagef("--worker %s and --workers %d differ: leave one of them out", &o.share, o.spec.Deal.Workers)
		}
		// Treat it as if --workers had been given, so that a checkpoint's value does not apply.
		if err := o.flags.Set("workers", fmt.Sprint(o.share.workers)); err != nil {
			return s, nil, exit.Usagef("--worker: %w", err)
		}
	}
	if o.resume != "" && o.given("from") {
		return s, nil, exit.Usagef("--from and --resume both set where to begin: leave one of them out")
	}
	if s, r, err = o.resolve(dataset); err != nil {
		return s, r, err
	}
	if o.share.worker >= s.Deal.Workers {
		return s, r, exit.Usagef("--worker (%d) must be below the number of workers (%d): workers count from 0", o.share.worker, s.Deal.Workers)
	}
	return s, r, nil
}

// position returns where the stream begins.
func (o *streamFlags) position(d *pipeline.Dataset, resume *opening.Checkpoint) (checkpoint.Position, error) {
	if resume != nil {
		return resume.Position(d)
	}
	s := d.Spec()
	if o.from > d.Records() {
		return checkpoint.Position{}, exit.Usagef("--from (%d) must be at most the number of records (%d)", o.from, d.Records())
	}
	return checkpoint.Position{Epoch: s.Epoch, Done: opening.Prefix(s.Order, o.from)}, nil
}

// splitFlags are --split, --split-seed and --split-by.
type splitFlags struct {
	split *spec.Split
	given func(flag string) bool
}

// addSplit defines the flags of a command. They write to split.
func addSplit(c *cobra.Command, split *spec.Split) splitFlags {
	f := c.Flags()
	f.Var(partValue{&split.Part}, "split", "use only a part of the dataset, such as 0..0.9 for training and 0.9..1 for validation; parts that don't overlap share no record")
	f.Uint64Var(&split.Seed, "split-seed", split.Seed, "seed of the split; must be the same for all parts")
	enumFlag(c, "split-by", "what a split keeps together: a record (default), a shard, or a unit, which is the data between two entry points of a shard",
		&split.By, spec.SplitByRecord, spec.SplitByShard, spec.SplitByUnit)
	return splitFlags{split, f.Changed}
}

// check refuses flags that would have no effect.
func (f splitFlags) check() error {
	if !f.given("split") && (f.given("split-seed") || f.given("split-by")) {
		return exit.Usagef("--split-seed and --split-by belong to --split: name a part, as in --split 0..0.9")
	}
	if f.given("split-by") && f.split.By == "" {
		return exit.Usagef("--split-by must be one of record, shard, unit")
	}
	return nil
}

// partValue is the value of --split, such as "0..0.9".
type partValue struct{ p *spec.Part }

func (v partValue) String() string {
	if v.p == nil || *v.p == (spec.Part{}) {
		return ""
	}
	return v.p.String()
}

func (v partValue) Set(s string) (err error) {
	*v.p, err = spec.ParsePart(s)
	return err
}

func (v partValue) Type() string { return "a..b" }

// sampleFlags are --sample and --sample-seed.
type sampleFlags struct {
	given func(flag string) bool
}

// addSample defines the flags of a command. They write to sample.
func addSample(c *cobra.Command, sample *spec.Subsample) sampleFlags {
	f := c.Flags()
	f.Var(sampleValue{sample}, "sample", "use a different n-th of the records in each epoch: with 1/8, any 8 consecutive epochs are one pass over the dataset")
	f.Uint64Var(&sample.Seed, "sample-seed", sample.Seed, "seed that assigns each record to one of the n epochs")
	return sampleFlags{f.Changed}
}

// check refuses a seed that would have no effect.
func (f sampleFlags) check() error {
	if !f.given("sample") && f.given("sample-seed") {
		return exit.Usagef("--sample-seed belongs to --sample: name a share, as in --sample 1/8")
	}
	return nil
}

// sampleValue is the value of --sample, such as "1/8".
type sampleValue struct{ s *spec.Subsample }

func (v sampleValue) String() string {
	if v.s == nil || v.s.Of == 0 {
		return ""
	}
	return v.s.String()
}

// Set leaves the seed unchanged, because it may have been parsed before.
func (v sampleValue) Set(text string) error {
	s, err := spec.ParseSample(text)
	if err == nil {
		v.s.Of = max(s.Of, 1) // 1/1 was given
	}
	return err
}

func (v sampleValue) Type() string { return "1/n" }

// addMix defines --mix and the flags that belong to it, for commands that take a mixture in place
// of DATASET. The dataset's flags have to be defined already.
func (d *datasetFlags) addMix(c *cobra.Command) {
	m := &d.spec.Mix
	d.flags.Var(sourcesValue{m}, "mix", "instead of DATASET: mix several datasets by weight, one `NAME=WEIGHT:DATASET` each: --mix web=70:/data/web --mix code=30:/data/code. For a bucket, the weight may be followed by ,anonymous ,requester-pays ,region=REGION or ,addressing=STYLE")
	d.flags.Var(mixLengthValue{m, &d.spec.Order.Length}, "mix-length", "length of a mixture's epoch: `first` (default): the longest epoch in which no record repeats; all: until every record has come; or a number of records")
	m.By = spec.MixByRecords
	enumFlag(c, "mix-by", "whether the weights of a mixture are shares of records or of bytes", &m.By, spec.MixByRecords, spec.MixByBytes)
}

// arguments checks the arguments of a command whose first one is DATASET, which is absent with
// --mix.
func (d *datasetFlags) arguments(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if !d.given("mix") {
			return exactArgs(names...)(c, args)
		}
		if len(args) == len(names) {
			return exit.Usagef("--mix names all datasets of a mixture: leave %s out", remote.CleanText(args[0]))
		}
		return exactArgs(names[1:]...)(c, args)
	}
}

// withDataset returns a command's arguments including DATASET, which is "" for a mixture.
func (d *datasetFlags) withDataset(args []string) []string {
	if d.given("mix") {
		return append([]string{""}, args...)
	}
	return args
}

// checkMix refuses flags that would have no effect.
func (d *datasetFlags) checkMix() error {
	if !d.given("mix") && (d.given("mix-length") || d.given("mix-by")) {
		return exit.Usagef("--mix-length and --mix-by belong to --mix: name the sources, as in --mix web=70:/data/web --mix code=30:/data/code")
	}
	return nil
}

// sourcesValue is the value of --mix, which may be repeated, once for each source.
type sourcesValue struct{ m *spec.Mix }

func (v sourcesValue) String() string {
	if v.m == nil {
		return ""
	}
	return v.m.String()
}

func (v sourcesValue) Set(text string) error {
	s, err := spec.ParseSource(text)
	if err == nil {
		v.m.Sources = append(v.m.Sources, s)
	}
	return err
}

func (v sourcesValue) Type() string { return "source" }

// mixLengthValue is the value of --mix-length: a number, "first" or "all".
type mixLengthValue struct {
	m *spec.Mix
	n *uint64
}

func (v mixLengthValue) String() string {
	switch {
	case v.m == nil:
		return ""
	case *v.n > 0:
		return strconv.FormatUint(*v.n, 10)
	}
	return string(v.m.Length)
}

func (v mixLengthValue) Set(text string) error {
	*v.n, v.m.Length = 0, ""
	if l := spec.MixLength(text); l == spec.MixFirst || l == spec.MixAll {
		v.m.Length = l
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n < 1 || n > spec.MaxMixLength {
		return exit.Usagef("%q is not the length of an epoch: write a number of records from 1 to %d, or first, or all", text, uint64(spec.MaxMixLength))
	}
	*v.n = n
	return nil
}

func (v mixLengthValue) Type() string { return "N|first|all" }

// addGrow defines --grow and the flags that belong to it. The dataset's flags have to be defined
// already.
func (d *datasetFlags) addGrow(c *cobra.Command) {
	g := &d.spec.Grow
	d.flags.BoolVar(&g.On, "grow", false, "serve a directory whose shards change; each epoch uses the shards that are present when it starts")
	d.flags.StringVar(&g.Run, "run", "", "`directory` that records which shards each epoch uses; nodes that train together share it (default: DATASET/.lsiofs/runs/default if it exists, otherwise next to the index)")
	d.flags.StringVar(&g.Window, "window", "", "`amount` of the newest data that an epoch uses, such as 500000units, 1000000records, 60shards, 100GiB (decoded), 72h, or all (default)")
	enumFlag(c, "newest", "find the newest shards by name (default; numbers in names are compared as numbers) or by mtime", &g.Newest, spec.NewestName, spec.NewestMTime)
	d.flags.StringVar(&g.MinNew, "min-new", "", "start the next epoch only after this `amount` of new data, such as 40000units, 100000records, 5shards (default 0)")
	d.flags.DurationVar(&g.Settle, "settle", 0, "how long a file must be unchanged before it is used, if lsiofs can't tell whether it is open for writing (default 30s, 70s on network file systems)")
	d.flags.DurationVar(&g.Poll, "poll", 0, "how often to list directories for which the kernel reports no changes (default 30s)")
	d.flags.BoolVar(&g.Hold, "hold", false, "keep a hard link to each shard of an epoch, so that it stays readable after it is deleted")
}

// addSnapshot defines --snapshot.
func (d *datasetFlags) addSnapshot() {
	d.flags.StringVar(&d.spec.Grow.Snapshot, "snapshot", "", "read only the shards of the snapshot in this `file`, RUN/snapshots/….gz; with --grow and --resume: continue the checkpoint's run without its run directory")
}

// grow derives the remaining settings of a growing dataset from its flags and from the checkpoint
// of --resume (nil without one).
func (d *datasetFlags) grow(g *spec.Grow, r *opening.Checkpoint) error {
	if g.Window != "" || g.MinNew != "" {
		if err := checkWindow(g); err != nil {
			return err
		}
	}
	for flag, given := range map[string]bool{"settle": d.given("settle") && g.Settle <= 0, "poll": d.given("poll") && g.Poll <= 0} {
		if given {
			return exit.Usagef("--%s must be above 0", flag)
		}
	}
	if !g.On {
		return nil
	}
	g.Latest = r == nil && !d.given("epoch")
	full := r.BringsOrder()
	if full {
		if g.Of = r.State.Run; g.Of == "" {
			return exit.Errorf(exit.Checkpoint, "%s is a checkpoint of a dataset without --grow: leave --grow out, or resume from a short form such as {\"epoch\": 0}", r.Path)
		}
	}
	if g.Snapshot != "" && !full {
		return exit.Usagef("--snapshot with --grow needs --resume with a checkpoint of the run: name it, or leave --grow out to read only the snapshot's shards")
	}
	return nil
}

// checkWindow checks --window and --min-new, and that the one allows the other.
func checkWindow(g *spec.Grow) error {
	window, err := growing.ParseWindow(g.Window)
	if err != nil {
		return exit.Usagef("--window: %w", err)
	}
	minNew, err := growing.ParseAmount(g.MinNew)
	if err != nil {
		return exit.Usagef("--min-new: %w", err)
	}
	return exit.With(exit.Usage, minNew.Within(window))
}
