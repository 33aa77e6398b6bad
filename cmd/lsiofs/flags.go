package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/opening"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/cgroup"
	"github.com/lsiofs/lsiofs/pipeline/format/formats"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// datasetFlags are the flags that select what is read, in which order and for which workers. They
// are the same for every command that opens a dataset.
type datasetFlags struct {
	spec   spec.Spec
	split  splitFlags
	sample sampleFlags
	zarr   zarrFlags
	resume string // path of a checkpoint; set only if addResume was called
	flags  *pflag.FlagSet
}

// add defines the flags. Their defaults are those of spec.Default, except that memory defaults to
// what this process may reasonably take.
func (d *datasetFlags) add(c *cobra.Command) {
	d.spec = spec.Default()
	d.flags = c.Flags()
	d.flags.SortFlags = false
	s := &d.spec
	s.MemoryBytes = spec.MemoryWithin(cgroup.AllowedBytes())
	s.MaxRecordBytes = s.MemoryBytes

	enumFlag(c, "format", "format of the shards; auto detects it by name, otherwise by content", &s.Format.Name, append([]string{"auto"}, formats.Names()...)...)
	d.flags.Var(arraysValue{&s.Format.Arrays}, "array", "format npy: read arrays together, one `NAME=PATTERN` each, with PATTERN relative to DATASET: --array 'x=x-*.npy' --array 'y=y-*.npy'; format zarr: paths of the arrays to cut crops from together, such as t=2m_temperature,wind")
	d.zarr.add(c)
	addExclude(d.flags, &s.Exclude)
	sizeFlag(d.flags, "record-bytes", "format fixed: size of a record in bytes", &s.Format.RecordBytes)
	sizeFlag(d.flags, "stride-bytes", "format fixed: distance between the starts of two records in bytes (0: the record size)", &s.Format.StrideBytes)
	sizeFlag(d.flags, "header-bytes", "format fixed, and tokens without an .idx: size of the header before the first record in bytes", &s.Format.HeaderBytes)
	enumFlag(c, "remainder", "format fixed: treat an incomplete record at the end of a shard as corruption, or drop it", &s.Format.Remainder, spec.RemainderCorrupt, spec.RemainderDrop)
	d.flags.BoolVar(&s.Format.Lc0Check, "lc0-check", s.Format.Lc0Check, "format lc0: check the contents of every frame, and treat impossible ones as damaged")
	d.flags.Var(asValue{&s.Format.As}, "as", "`type` of the streams' data. Format lc0: tensors, an array with one row per frame; tensors:u1 (the same), tensors:f2 or tensors:f4 set the type of the planes. Format zarr: float32, scaled by the arrays' attributes. Format parquet: jsonl, tar or npy (default: tar if a column has binary values, such as images; else jsonl)")
	d.flags.StringVar(&s.Format.Rows.Columns, "columns", s.Format.Rows.Columns, "format parquet: `columns` to read, in this order, separated by commas; NAME=PATH renames one, * is all others: --columns jpg=image,txt=caption")
	d.flags.StringVar(&s.Format.Rows.Pack, "pack", s.Format.Rows.Pack, "formats parquet (out of a column of lists) and tokens: make records of `L` tokens; L+1 adds the next record's first token to each")
	d.flags.StringVar(&s.Format.Rows.EOS, "eos", s.Format.Rows.EOS, "with --pack: `token` that follows each list")
	d.flags.StringVar(&s.Format.Rows.Dtype, "dtype", s.Format.Rows.Dtype, "`type` of the tokens, u2, u4, i4 or i8 (default: that of the column, or of the .idx)")
	d.flags.Var(cutValue{&s.Format.Rows.Groups}, "cut", "format parquet: where chunks may begin: at `rows`, or only at groups (row groups), which takes less decoding and mixes worse")
	enumFlag(c, "on-corrupt", "on damaged data: fail, or skip what is damaged", &s.OnCorrupt, spec.CorruptFail, spec.CorruptSkip)

	d.flags.Uint64Var(&s.Order.Seed, "seed", s.Order.Seed, "seed of the shuffle")
	d.flags.Uint64Var(&s.Epoch, "epoch", s.Epoch, "epoch that the worker files contain (default with --grow: the run's latest epoch)")
	enumFlag(c, "shuffle", "how records are shuffled", &s.Order.Shuffle, spec.ShuffleReservoir, spec.ShuffleBlock, spec.ShuffleFull, spec.ShuffleNone)
	d.flags.Uint64Var(&s.Order.SizeRecords, "shuffle-size", s.Order.SizeRecords, "records in the shuffle buffer")
	d.flags.Uint64Var(&s.Order.Lanes, "lanes", s.Order.Lanes, "number of places in the dataset that are read in parallel")
	d.flags.Uint64Var(&s.Order.Groups, "groups", s.Order.Groups, "number of groups of lanes, so that each machine reads only part of the dataset; must divide --lanes")
	sizeFlag(d.flags, "chunk-bytes", "maximum size of a chunk, the unit in which shards are shuffled", &s.Order.ChunkBytes)
	d.flags.Uint64Var(&s.Order.ChunkRecords, "chunk-records", s.Order.ChunkRecords, "maximum number of records in a chunk")
	d.split = addSplit(c, &s.Order.Split)
	d.sample = addSample(c, &s.Order.Sample)

	d.flags.Uint64Var(&s.Deal.Workers, "workers", s.Deal.Workers, "number of workers that share the records")
	d.flags.Uint64Var(&s.Deal.Batch, "batch", s.Deal.Batch, "number of consecutive records that a worker gets at a time")
	enumFlag(c, "deal", "assign batches to workers in turn, or give each worker one contiguous part of the epoch", &s.Deal.Dealing, spec.DealInterleaved, spec.DealContiguous)
	enumFlag(c, "tail", "what to do with the last records if they don't fill a batch for every worker: keep them, drop them, or pad with the epoch's first records", &s.Deal.Tail, spec.TailKeep, spec.TailDrop, spec.TailPad)

	d.addSnapshot()

	sizeFlag(d.flags, "memory", "memory for the data that is kept, and for what describes it", &s.MemoryBytes)
	sizeFlag(d.flags, "max-record", "refuse datasets with larger records, because a record is held in memory whole (0: no limit)", &s.MaxRecordBytes)
	for _, name := range []string{"memory", "max-record"} {
		d.flags.Lookup(name).DefValue = "1GiB, but at most a quarter of the memory that this process may use"
	}
	enumFlag(c, "io", "system interface for reading shards", &s.IO, spec.IOAuto, spec.IOUring, spec.IOPread)
	enumFlag(c, "direct", "bypass the page cache: for large cold reads if the dataset exceeds memory (auto), for all reads, or never", &s.Direct, spec.DirectAuto, spec.DirectOn, spec.DirectOff)
	enumFlag(c, "read", "how to fetch records: scan reads whole pieces of shards, gather reads exactly the next records, spool decodes compressed shards to a file", &s.Read, spec.ReadAuto, spec.ReadScan, spec.ReadGather, spec.ReadSpool)
	d.flags.StringVar(&s.SpoolDir, "spool-dir", s.SpoolDir, "`directory`, on a disk, for decoded shards that no disk cache keeps (default: spool, next to the index)")
	sizeFlag(d.flags, "spool-max", "maximum size of the decoded shards in --spool-dir (0: as large as the order needs)", &s.SpoolMaxBytes)
	d.flags.DurationVar(&s.ReadTimeout, "read-timeout", s.ReadTimeout, "fail a read if storage hasn't answered it for this long")
	r := &s.Remote
	addService(d.flags, r)
	d.flags.IntVar(&r.Connections, "connections", r.Connections, "maximum number of concurrent requests to a service")
	enumFlag(c, "hedge", "send a second request if a service takes far longer than usual to answer; auto does so for at most 5 % of requests", &r.Hedge, spec.HedgeAuto, spec.HedgeOff)
	addCache(d.flags, &s.Cache)
	sizeFlag(d.flags, "lookahead", "services and disk caches: how much to request ahead for all readers together (0: what they read in two seconds, between 128MiB and 2GiB)", &s.Lookahead)
	d.flags.StringVar(&s.IndexDir, "index-dir", s.IndexDir, "`directory` for indexes (default: DATASET/.lsiofs if it exists, otherwise the user's cache directory)")
}

// addResume defines --resume.
func (d *datasetFlags) addResume() {
	d.flags.StringVar(&d.resume, "resume", "", "continue from this checkpoint `file`; its order is used, and also its --workers, --batch and --deal unless these flags are given")
}

func sizeFlag[T int64 | uint64](f *pflag.FlagSet, name, usage string, p *T) {
	f.Var(sizeValue[T]{p}, name, usage)
}

func enumFlag[T ~string](c *cobra.Command, name, usage string, p *T, allowed ...T) {
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = string(a)
	}
	c.Flags().Var(enumValue[T]{p, names}, name, usage)
	// An error would mean that the flag does not exist or already has a completion function.
	if err := c.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err)
	}
}

// paths returns pointers to the values of flags that name a file or directory of this machine.
func (d *datasetFlags) paths() []*string {
	s := &d.spec
	return []*string{&s.IndexDir, &s.SpoolDir, &s.Cache.Dir, &s.Grow.Run, &s.Grow.Snapshot, &s.Remote.CAFile, &s.Remote.AuthFile, &d.zarr.list, &d.resume}
}

// given reports whether a flag was on the command line.
func (d *datasetFlags) given(name string) bool { return d.flags.Changed(name) }

// resolve builds the spec from the flags, from dataset and from the checkpoint of --resume, which
// is nil without the flag. It reports all problems of the spec at once.
func (d *datasetFlags) resolve(dataset string) (spec.Spec, *opening.Checkpoint, error) {
	s := d.spec
	s.Dataset = dataset
	if err := d.checkMix(); err != nil {
		return s, nil, err
	}
	if err := d.split.check(); err != nil {
		return s, nil, err
	}
	if err := d.sample.check(); err != nil {
		return s, nil, err
	}
	if err := d.resolveZarr(&s); err != nil {
		return s, nil, exit.With(exit.Usage, err)
	}
	s.Order.Sample = s.Order.Sample.Or()
	s.Order.Batch = orderBatch(s)
	var r *opening.Checkpoint
	if d.resume == opening.Stdin {
		return s, nil, exit.Usagef("--resume can't be standard input, because a checkpoint is read more than once: save it to a file first")
	}
	if d.resume != "" {
		var err error
		if r, err = opening.ReadCheckpoint(d.resume); err != nil {
			return s, nil, err
		}
		if s, err = r.Apply(s, d.given); err != nil {
			return s, nil, err
		}
	}
	if err := d.grow(&s.Grow, r); err != nil {
		return s, nil, err
	}
	if err := d.checkService(s); err != nil {
		return s, nil, err
	}
	if err := formats.Validate(s); err != nil {
		return s, nil, exit.With(exit.Usage, err)
	}
	return s, r, nil
}

// orderBatch returns the batch size that belongs to the order itself: the deal's if there are
// groups, else 1 (pipeline/order/ORDER.md, Shuffles).
func orderBatch(s spec.Spec) uint64 {
	if s.Order.Groups > 1 {
		return s.Deal.Batch
	}
	return 1
}

// sizeValue is a flag that takes a number of bytes, with or without a unit.
type sizeValue[T int64 | uint64] struct{ p *T }

func (v sizeValue[T]) String() string {
	if v.p == nil {
		return "0"
	}
	return terminal.Size(uint64(*v.p))
}

func (v sizeValue[T]) Set(s string) error {
	n, err := humanize.ParseBytes(s)
	if err != nil || n > math.MaxInt64 {
		return fmt.Errorf("%q is not a size: write a number of bytes, or one with a unit, such as 256KiB or 1GiB", s)
	}
	*v.p = T(n)
	return nil
}

func (v sizeValue[T]) Type() string { return "size" }

// enumValue is a flag that takes one of a few words. spec.Validate checks them, together with all
// other problems.
type enumValue[T ~string] struct {
	p       *T
	allowed []string
}

func (v enumValue[T]) String() string {
	if v.p == nil {
		return ""
	}
	return string(*v.p)
}

func (v enumValue[T]) Set(s string) error { *v.p = T(s); return nil }
func (v enumValue[T]) Type() string       { return strings.Join(v.allowed, "|") }

// passPartValue is the value of --part of index, such as "3/8".
type passPartValue catalog.PassPart

func (v *passPartValue) set() bool { return v.Count > 0 }

func (v *passPartValue) String() string {
	if !v.set() {
		return ""
	}
	return strconv.Itoa(v.Index) + "/" + strconv.Itoa(v.Count)
}

func (v *passPartValue) Set(s string) error {
	i, n, ok := strings.Cut(s, "/")
	index, errI := strconv.ParseUint(i, 10, 31)
	count, errN := strconv.ParseUint(n, 10, 31)
	if !ok || errI != nil || errN != nil || index >= count {
		return fmt.Errorf("%q is not a part: write i/n, counted from 0: of eight parts, 0/8 is the first and 7/8 the last", s)
	}
	*v = passPartValue{int(index), int(count)}
	return nil
}

func (v *passPartValue) Type() string { return "i/n" }

// shareValue is the value of --worker: "2/4", or "2" of the number that --workers gives.
type shareValue struct {
	worker, workers uint64
	set, both       bool
}

func (v *shareValue) String() string {
	if !v.set {
		return "0"
	}
	if v.both {
		return fmt.Sprintf("%d/%d", v.worker, v.workers)
	}
	return strconv.FormatUint(v.worker, 10)
}

func (v *shareValue) Set(s string) error {
	w, of, both := strings.Cut(s, "/")
	worker, err := strconv.ParseUint(w, 10, 32)
	workers := uint64(0)
	if err == nil && both {
		workers, err = strconv.ParseUint(of, 10, 32)
	}
	if err != nil {
		return fmt.Errorf("%q is not a worker: write w/W, such as 0/4 for the first of four", s)
	}
	*v = shareValue{worker: worker, workers: workers, set: true, both: both}
	return nil
}

func (v *shareValue) Type() string { return "w/W" }

// parseCounts parses comma-separated numbers of records, such as "5120,5119".
func parseCounts(s string) ([]uint64, error) {
	var counts []uint64
	for part := range strings.SplitSeq(s, ",") {
		n, err := strconv.ParseUint(strings.TrimSpace(part), 10, 63)
		if err != nil {
			return nil, fmt.Errorf("%q is not a number of records: write one number a worker, with commas between them", part)
		}
		counts = append(counts, n)
	}
	return counts, nil
}

// flagProblem describes what is wrong with a flag of c in words that a user can act on. pflag's own
// text is the parser's ("strconv.ParseUint: …").
func flagProblem(c *cobra.Command, err error) string {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if near := nearFlag(c, unknown.GetSpecifiedName()); near != "" {
			return fmt.Sprintf("%v: did you mean --%s?", err, near)
		}
	}
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err.Error()
	}
	f := invalid.GetFlag()
	want := ""
	switch f.Value.Type() {
	case "uint", "uint64":
		want = "a whole number, 0 or more"
	case "int", "int64":
		want = "a whole number"
	case "float64":
		want = "a number"
	case "duration":
		want = "a time with its unit, such as 30s or 5m"
	}
	if f.Name == "log-level" {
		want = "debug, info, warn or error"
	}
	if want == "" { // Quote the flag's own message only if it may be shown: a URL may contain a secret.
		name := "--" + f.Name
		own := errors.Unwrap(invalid).Error()
		if strings.HasPrefix(own, name+" ") {
			return own
		}
		return name + ": " + own
	}
	return fmt.Sprintf("--%s (%s) must be %s", f.Name, invalid.GetValue(), want)
}

// nearBy returns the number of letters of a name that may be mistyped. Two would be most of a short
// name.
func nearBy(name string) int {
	if len(name) <= 4 {
		return 1
	}
	return 2
}

// nearFlag returns the flag of c whose name resembles name, by cobra's rules for commands, or "". A
// flag resembles name if at most nearBy changes separate them, or if it begins with name.
func nearFlag(c *cobra.Command, name string) string {
	names := &cobra.Command{SuggestionsMinimumDistance: nearBy(name)}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	found := names.SuggestionsFor(name)
	begins := func(flag string) int { // people seldom mistype the first letter
		if name != "" && flag[0] == name[0] {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(found, func(a, b string) int { return cmp.Or(begins(a)-begins(b), len(a)-len(b)) })
	if len(found) == 0 {
		return ""
	}
	return found[0]
}
