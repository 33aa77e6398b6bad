package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/resuming"
	"github.com/lsiofs/lsiofs/pipeline/cgroup"
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

	enumFlag(c, "format", "how shards are cut into records", &s.Format.Name, append([]string{"auto"}, spec.Formats...)...)
	d.flags.Var(arraysValue{&s.Format.Arrays}, "array", "format npy: read arrays together, one `NAME=PATTERN` each, relative to DATASET: --array 'x=x-*.npy' --array 'y=y-*.npy'; format zarr: paths of arrays that crops are cut from together, as t=2m_temperature,wind")
	d.zarr.add(c)
	addExclude(d.flags, &s.Exclude)
	sizeFlag(d.flags, "record-bytes", "format fixed: bytes of a record", &s.Format.RecordBytes)
	sizeFlag(d.flags, "stride-bytes", "format fixed: distance between records (0: their size)", &s.Format.StrideBytes)
	sizeFlag(d.flags, "header-bytes", "format fixed: bytes before the first record", &s.Format.HeaderBytes)
	enumFlag(c, "remainder", "format fixed: what becomes of bytes that fill no record", &s.Format.Remainder, spec.RemainderCorrupt, spec.RemainderDrop)
	d.flags.BoolVar(&s.Format.Lc0Check, "lc0-check", s.Format.Lc0Check, "format lc0: look at every frame; those that can't be are damaged")
	d.flags.Var(asValue{&s.Format.As}, "as", "`type` of streams. Format lc0: tensors instead of frames, an array with a row a frame; planes are of type u1 unless another one is said: tensors:u1, tensors:f2, tensors:f4. Format zarr: float32 numbers, scaled as arrays' attributes say")
	enumFlag(c, "on-corrupt", "refuse damaged shards, or leave out what is damaged", &s.OnCorrupt, spec.CorruptFail, spec.CorruptSkip)

	d.flags.Uint64Var(&s.Order.Seed, "seed", s.Order.Seed, "the order's seed")
	d.flags.Uint64Var(&s.Epoch, "epoch", s.Epoch, "the epoch that the worker files hold (with --grow: the latest of the run, unless given)")
	enumFlag(c, "shuffle", "how records are shuffled", &s.Order.Shuffle, spec.ShuffleReservoir, spec.ShuffleBlock, spec.ShuffleFull, spec.ShuffleNone)
	d.flags.Uint64Var(&s.Order.SizeRecords, "shuffle-size", s.Order.SizeRecords, "records in the shuffle buffer")
	d.flags.Uint64Var(&s.Order.Lanes, "lanes", s.Order.Lanes, "places of the dataset that are read at a time")
	d.flags.Uint64Var(&s.Order.Groups, "groups", s.Order.Groups, "groups of lanes, for locality across machines; must divide --lanes")
	sizeFlag(d.flags, "chunk-bytes", "a chunk, the unit in which shards are permuted, ends at so many bytes …", &s.Order.ChunkBytes)
	d.flags.Uint64Var(&s.Order.ChunkRecords, "chunk-records", s.Order.ChunkRecords, "… or so many records")
	d.split = addSplit(c, &s.Order.Split)
	d.sample = addSample(c, &s.Order.Sample)

	d.flags.Uint64Var(&s.Deal.Workers, "workers", s.Deal.Workers, "workers that share the records")
	d.flags.Uint64Var(&s.Deal.Batch, "batch", s.Deal.Batch, "records that a worker is dealt at a time")
	enumFlag(c, "deal", "how records go to workers", &s.Deal.Dealing, spec.DealInterleaved, spec.DealContiguous)
	enumFlag(c, "tail", "records that do not fill a round of all workers: keep, drop, or pad with the first ones", &s.Deal.Tail, spec.TailKeep, spec.TailDrop, spec.TailPad)

	d.addSnapshot()

	sizeFlag(d.flags, "memory", "memory for everything that is kept of the data, and of what describes it", &s.MemoryBytes)
	sizeFlag(d.flags, "max-record", "refuse a dataset with a larger record, which would be held whole (0: no bound)", &s.MaxRecordBytes)
	for _, name := range []string{"memory", "max-record"} {
		d.flags.Lookup(name).DefValue = "1GiB, and at most a quarter of what this process may have"
	}
	enumFlag(c, "io", "how shards are read", &s.IO, spec.IOAuto, spec.IOUring, spec.IOPread)
	enumFlag(c, "direct", "bypass the page cache: large cold reads of a dataset that exceeds memory, all reads, or none", &s.Direct, spec.DirectAuto, spec.DirectOn, spec.DirectOff)
	enumFlag(c, "read", "how records are fetched: scan pieces of shards, gather exactly the records that come next, or spool compressed shards, decoded, to a file", &s.Read, spec.ReadAuto, spec.ReadScan, spec.ReadGather, spec.ReadSpool)
	d.flags.StringVar(&s.SpoolDir, "spool-dir", s.SpoolDir, "the `directory` of the spool, on a disk (default: spool beside the index)")
	sizeFlag(d.flags, "spool-max", "bytes of decoded shards in the spool at most (0: what the order needs)", &s.SpoolMaxBytes)
	d.flags.DurationVar(&s.ReadTimeout, "read-timeout", s.ReadTimeout, "after how long a read that storage does not answer fails")
	r := &s.Remote
	addService(d.flags, r)
	d.flags.IntVar(&r.Connections, "connections", r.Connections, "requests to a service at a time at most")
	enumFlag(c, "hedge", "a second request for what a service answers far later than usual: auto makes one for at most 5 % of requests", &r.Hedge, spec.HedgeAuto, spec.HedgeOff)
	addCache(d.flags, &s.Cache)
	sizeFlag(d.flags, "lookahead", "services and disk caches: how far ahead all readers together ask for chunks (0: two seconds of what they read, 128MiB to 2GiB)", &s.Lookahead)
	d.flags.StringVar(&s.IndexDir, "index-dir", s.IndexDir, "the `directory` where indexes are stored (default: DATASET/.lsiofs where it exists, else the user's cache directory)")
}

// addResume defines --resume.
func (d *datasetFlags) addResume() {
	d.flags.StringVar(&d.resume, "resume", "", "go on from this checkpoint `file`; it brings its order, and, unless given, --workers, --batch and --deal")
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
func (d *datasetFlags) resolve(dataset string) (spec.Spec, *resuming.Checkpoint, error) {
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
	var r *resuming.Checkpoint
	if d.resume == resuming.Stdin {
		return s, nil, exit.Usagef("--resume can't be standard input, as a checkpoint is read more than once: save it to a file first")
	}
	if d.resume != "" {
		var err error
		if r, err = resuming.Read(d.resume); err != nil {
			return s, nil, err
		}
		if s, err = r.Apply(s, d.given); err != nil {
			return s, nil, err
		}
	}
	if err := d.grow(&s.Grow, r); err != nil {
		return s, nil, err
	}
	if err := s.Validate(); err != nil {
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
