package gate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/bench"
	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
	"github.com/lsiofs/lsiofs/uring"
	"github.com/lsiofs/lsiofs/uring/uringbench"
)

// arrays measures crops of Zarr arrays. It has the arrays, servers, readers and loops. It is not
// safe for concurrent use.
type arrays struct {
	*bench.Session
	data string // the arrays' directory

	mounts map[string]*bench.Server
	loops  map[string]*zarrLoop

	steps    [2]float64 // processor time in seconds of a crop of long chunks: in the loop, in the mount
	mostAnon int64      // the most memory of a server above its --memory so far
	again    float64    // duration in seconds of the second mount of many objects
}

// satellite are the codecs of the arrays that image crops are cut from, by the name used in rows.
var satellite = map[string]encode.Codec{"none": encode.None, "lz4": encode.BloscLZ4, "zstd": encode.BloscZstd}

// satelliteBytes is the size of their crops of 24 × 128 × 128 16-bit numbers.
const satelliteBytes = 24 * 128 * 128 * 2

// Names of the other datasets.
const (
	smallChunks = "small" // of 4 KiB
	longChunks  = "long"  // of 1008 steps, 16.5 MB
	manyObjects = "many"  // 10⁴ of them
	fixedOnes   = "fixed" // fixed records of the size of crops
)

const fixedRecords = 512

// zarrArrays returns all arrays.
func zarrArrays(dir string) map[string]MakeZarr {
	all := map[string]MakeZarr{
		smallChunks: {Shape: []int64{64, 512, 512}, Object: []int64{64, 256, 256}, Chunk: []int64{4, 16, 32}, Codec: encode.None, DataType: "int16"},
		longChunks:  {Shape: []int64{1008, 256, 256}, Object: []int64{1008, 128, 128}, Chunk: []int64{1008, 64, 64}, Codec: encode.BloscZstd, BlockBytes: 128 << 10, DataType: "float32"},
		manyObjects: {Shape: []int64{100, 80, 80}, Object: []int64{1, 8, 8}, Chunk: []int64{1, 8, 8}, Codec: encode.None, DataType: "int16"},
	}
	for name, codec := range satellite {
		all[name] = MakeZarr{Shape: ZarrShape, Object: ZarrObject, Chunk: ZarrChunk, Codec: codec, DataType: "int16"}
	}
	for name, m := range all {
		m.Dir = filepath.Join(dir, name)
		all[name] = m
	}
	return all
}

// cropFlags returns the flags for crops of an array, and the same settings as spec.Zarr for a loop.
func cropFlags(name string) (flags []string, z spec.Zarr) {
	crop, stride, jitter := "time=24,y=128,x=128", "time=12,y=64,x=64", true
	switch name {
	case smallChunks:
		stride, jitter = "time=4,y=16,x=32", false // whole chunks
	case longChunks:
		crop, stride = "time=24,y=64,x=64", "time=24,y=32,x=32"
	case manyObjects:
		crop, stride, jitter = "time=4,y=16,x=16", "time=4,y=16,x=16", false
	}
	flags = []string{"--format", "zarr", "--crop", crop, "--stride", stride}
	z = spec.Zarr{Jitter: jitter}
	z.Crop, _ = spec.ParseDims(crop)     // it is valid
	z.Stride, _ = spec.ParseDims(stride) // it is valid
	if jitter {
		flags = append(flags, "--jitter")
	}
	return flags, z
}

func newArrays(ctx context.Context, p bench.Program, c bench.Config, data string) (*arrays, error) {
	dir, err := os.MkdirTemp("", "lsiofs-bench-")
	if err != nil {
		return nil, err
	}
	s := &bench.Session{Program: p, Config: c, Dir: dir, Scope: &bench.Scope{Whole: true}}
	a := &arrays{Session: s, data: data, mounts: map[string]*bench.Server{}, loops: map[string]*zarrLoop{}}
	if s.Log, err = os.Create(filepath.Join(dir, "servers.log")); err == nil {
		err = a.start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

func (a *arrays) start(ctx context.Context) error {
	for range 2 {
		r, err := bench.StartReader(a.Program.Self, nil)
		if err != nil {
			return err
		}
		a.Readers = append(a.Readers, r)
	}
	for name, m := range zarrArrays(a.data) {
		if err := a.make(ctx, name, func() error { _, err := m.Run(ctx); return err }); err != nil {
			return err
		}
	}
	path := filepath.Join(a.data, fixedOnes)
	return a.make(ctx, fixedOnes, func() error {
		_, err := Make{Dir: path, Shape: synthetic.Shape{Format: "fixed", RecordBytes: satelliteBytes}, Records: fixedRecords}.Run(ctx)
		return err
	})
}

// make makes a dataset unless it exists.
func (a *arrays) make(ctx context.Context, name string, make func() error) error {
	if _, err := os.Stat(filepath.Join(a.data, name)); err == nil {
		return ctx.Err()
	}
	a.Config.Tell("making the array "+name, 0, 0)
	return make()
}

// close ends all processes and removes everything except the arrays.
func (a *arrays) close() error {
	for _, l := range a.loops {
		l.close()
	}
	return errors.Join(os.RemoveAll(a.indexDir()), a.Session.Close()) // nothing is mounted in it
}

func (a *arrays) indexDir() string { return filepath.Join(a.Dir, "index") }

// loop returns the loop over an array.
func (a *arrays) loop(name string) (*zarrLoop, error) {
	if l := a.loops[name]; l != nil {
		return l, nil
	}
	_, z := cropFlags(name)
	l, err := openZarrLoop(filepath.Join(a.data, name), z)
	if err == nil {
		a.loops[name] = l
	}
	return l, err
}

// mountArray mounts a dataset on a new mount point.
func (a *arrays) mountArray(ctx context.Context, name string, flags ...string) (*bench.Server, error) {
	point, err := a.NewPoint()
	if err != nil {
		return nil, err
	}
	own := []string{"--format", "fixed", "--record-bytes", strconv.Itoa(satelliteBytes)}
	if name != fixedOnes {
		own, _ = cropFlags(name)
	}
	args := append([]string{filepath.Join(a.data, name), point, "--workers", "1", "--index-dir", a.indexDir()}, own...)
	return a.Program.MountOn(ctx, point, a.Log, append(args, flags...))
}

// readArray measures two readers for a slot, on a mount that stays in place and is identified by
// key.
func (a *arrays) readArray(ctx context.Context, key, name, extension string, memoryBytes int64, flags ...string) (bench.Reading, error) {
	v := a.mounts[key]
	if v == nil {
		if err := bench.TouchMemory(ctx, memoryBytes+bench.LeastMemory); err != nil {
			return bench.Reading{}, err
		}
		var err error
		if v, err = a.mountArray(ctx, name, append(flags, fmt.Sprintf("--memory=%d", memoryBytes))...); err != nil {
			return bench.Reading{}, err
		}
		a.mounts[key], a.Servers = v, append(a.Servers, v)
		// Once, so that indexes exist and memory holds what it can.
		if _, err := a.ReadMount(ctx, v, a.JobsOf(v.Point, extension, len(a.Readers), a.Slot)); err != nil {
			return bench.Reading{}, err
		}
	}
	r, err := a.ReadMount(ctx, v, a.JobsOf(v.Point, extension, len(a.Readers), a.Slot))
	if err != nil {
		return r, err
	}
	anon, err := bench.AnonBytes(v.Cmd.Process.Pid)
	a.mostAnon = max(a.mostAnon, anon-memoryBytes)
	r.Counted = false // a record of a read of storage is not a crop
	return r, err
}

// measureMounts mounts the array of many objects twice. Only the first mount indexes it.
func (a *arrays) measureMounts(ctx context.Context) (bench.Reading, error) {
	if err := os.RemoveAll(a.indexDir()); err != nil {
		return bench.Reading{}, err
	}
	var took [2]time.Duration
	for i := range took {
		began := bench.Monotonic()
		v, err := a.mountArray(ctx, manyObjects)
		if err != nil {
			return bench.Reading{}, err
		}
		took[i] = bench.Monotonic() - began
		if err := v.Stop(); err != nil {
			return bench.Reading{}, err
		}
	}
	a.again = took[1].Seconds()
	return bench.Reading{Value: took[0].Seconds()}, nil
}

// zarr checks the promises about crops of Zarr arrays, with arrays that it makes.
func (k *check) zarr(ctx context.Context) error {
	if !k.config.wants(SectionZarr) || k.config.Spec.Dataset != "" {
		return nil
	}
	c := k.config.Config
	if c.Rows = zarrRowsOf(rowsOf(k.config.Promises, SectionZarr)); len(c.Rows) == 0 {
		return nil
	}
	path := filepath.Join(k.dir, "zarr")
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	r, err := runZarr(ctx, k.program, c, path)
	if err != nil {
		return err
	}
	k.report.Reports = append(k.report.Reports, r)
	for _, p := range k.config.Promises {
		if p.Section == SectionZarr {
			k.add(p.judge(r.Rows))
		}
	}
	if k.config.Dir == "" {
		return os.RemoveAll(path) // nothing is mounted in it
	}
	return nil
}

// runZarr measures crops of the arrays in a directory. It makes those that are missing.
func runZarr(ctx context.Context, p bench.Program, c bench.Config, data string) (report bench.Report, err error) {
	a, err := newArrays(ctx, p, c, data)
	if err != nil {
		return bench.Report{}, err
	}
	defer func() {
		err = errors.Join(err, a.close())
		if ctx.Err() != nil {
			err = ctx.Err()
		}
	}()
	rows := a.rows()
	a.Slot = c.Total / time.Duration(2*len(rows)*(c.Rounds+1)) // half of the time is for mounts
	r := bench.Rounds{Most: c.Rounds, WarmUp: true, Total: c.Total, Progress: c.Tell}
	report = bench.Report{Machine: bench.ThisMachine(data, p.Version)}
	if report.Dataset, err = a.info(); err != nil {
		return bench.Report{}, err
	}
	if report.Rounds, err = r.Run(ctx, rows); err != nil {
		return bench.Report{}, err
	}
	report.Rows = bench.Results(rows, satelliteBytes)
	return report, nil
}

// Rows for crops of Zarr arrays.
const (
	rowZarrLoop   = "zarr-loop-"   // followed by the name of a codec
	rowZarrRandom = "zarr-random-" // followed by the name of a codec
	rowZarrBlock  = "zarr-block-"  // followed by the name of a codec
	rowZarrFixed  = "zarr-fixed"
	rowZarrPreads = "zarr-preads"
	rowZarrSmall  = "zarr-small"
	rowZarrWhole  = "zarr-whole"
	rowZarrSteps  = "zarr-steps"
	rowZarrLess   = "zarr-steps-less"
	rowZarrMemory = "zarr-memory"
	rowZarrMount  = "zarr-mount"
	rowZarrAgain  = "zarr-mount-again"
	rowZarrFio    = "zarr-fio"
	rowZarrCold   = "zarr-cold"
)

// Memory of mounts: little compared with the arrays if crops are random, and enough for all chunks
// if neighbours are together.
const (
	zarrRandomMemory = 64 << 20
	zarrBlockMemory  = 1 << 30
)

// rows returns the rows for arrays.
func (a *arrays) rows() []*bench.Measurement {
	l := &bench.Measurements{Only: a.Config.Rows}
	codecs := slices.Sorted(maps.Keys(satellite))
	for _, name := range codecs {
		l.Add(bench.Measurement{ID: rowZarrLoop + name, Name: "a loop of the same decoders, random crops, " + name, Measure: func(ctx context.Context) (bench.Reading, error) {
			return a.measureLoop(ctx, name)
		}})
		l.Add(bench.Measurement{ID: rowZarrRandom + name, Name: "mount, --shuffle full --jitter, 2 readers, " + name, Against: rowZarrLoop + name, Measure: func(ctx context.Context) (bench.Reading, error) {
			return a.readArray(ctx, "random "+name, name, ".npy", zarrRandomMemory, "--shuffle", "full")
		}})
	}
	block := []string{"--shuffle", "block", "--shuffle-size", "1024"}
	l.Add(bench.Measurement{ID: rowZarrFixed, Name: "mount of fixed records as large as crops, --shuffle block, 2 readers", Measure: func(ctx context.Context) (bench.Reading, error) {
		return a.readArray(ctx, fixedOnes, fixedOnes, ".bin", zarrBlockMemory, block...)
	}})
	for _, name := range codecs {
		l.Add(bench.Measurement{ID: rowZarrBlock + name, Name: "mount, --shuffle block --shuffle-size 1024, 2 readers, " + name, Against: rowZarrFixed, Measure: func(ctx context.Context) (bench.Reading, error) {
			return a.readArray(ctx, "block "+name, name, ".npy", zarrBlockMemory, block...)
		}})
	}
	l.Add(bench.Measurement{ID: rowZarrPreads, Name: "pread of chunks of 4 KiB at random places, one loop per core", NoRecords: true, Measure: func(ctx context.Context) (bench.Reading, error) {
		loop, err := a.loop(smallChunks)
		if err != nil {
			return bench.Reading{}, err
		}
		return loop.runPreads(ctx, a.Slot)
	}})
	l.Add(bench.Measurement{ID: rowZarrSmall, Name: "mount, --shuffle full, 2 readers, chunks of 4 KiB", Against: rowZarrPreads, Measure: func(ctx context.Context) (bench.Reading, error) {
		return a.readArray(ctx, smallChunks, smallChunks, ".npy", zarrRandomMemory, "--shuffle", "full")
	}})
	l.Add(bench.Measurement{ID: rowZarrWhole, Name: "a loop that decodes whole chunks of 16.5 MB, crops of 24 of 1008 steps", NoRecords: true, Measure: func(ctx context.Context) (bench.Reading, error) {
		r, err := a.measureLoop(ctx, longChunks)
		a.steps[0] = r.CPU.Seconds() / float64(r.Bytes)
		return r, err
	}})
	l.Add(bench.Measurement{ID: rowZarrSteps, Name: "mount, --shuffle full, 2 readers, the same", NoRecords: true, Measure: func(ctx context.Context) (bench.Reading, error) {
		r, err := a.readArray(ctx, longChunks, longChunks, ".npy", zarrRandomMemory, "--shuffle", "full")
		a.steps[1] = r.CPU.Seconds() / float64(r.Bytes)
		return r, err
	}})
	l.Add(bench.Measurement{ID: rowZarrLess, Name: "processor time of the loop, relative to the mount", Unit: "times", Measure: func(context.Context) (bench.Reading, error) {
		if a.steps[1] <= 0 {
			return bench.Reading{}, bench.NotMeasured("it needs the two rows above")
		}
		return bench.Reading{Value: a.steps[0] / a.steps[1]}, nil
	}})
	l.Add(bench.Measurement{ID: rowZarrFio, Name: "fio O_DIRECT, pieces of 128 KiB at random places, 32 at a time", NoRecords: true, Measure: a.measureColdFio})
	l.Add(bench.Measurement{ID: rowZarrCold, Name: "mount --direct on, --shuffle full --jitter, 2 readers, none: bytes of the disk", NoRecords: true, Against: rowZarrFio, Measure: a.measureColdCrops})
	l.Add(bench.Measurement{ID: rowZarrMemory, Name: "memory of these servers above --memory, at most", Unit: "MiB", Measure: func(context.Context) (bench.Reading, error) {
		return bench.Reading{Value: float64(a.mostAnon) / (1 << 20)}, nil
	}})
	l.Add(bench.Measurement{ID: rowZarrMount, Name: "mount of an array of 10⁴ objects, first", Unit: "s", Measure: a.measureMounts})
	l.Add(bench.Measurement{ID: rowZarrAgain, Name: "the same, again", Unit: "s", Measure: func(context.Context) (bench.Reading, error) {
		return bench.Reading{Value: a.again}, nil
	}})
	return l.Rows
}

func (a *arrays) measureLoop(ctx context.Context, name string) (bench.Reading, error) {
	loop, err := a.loop(name)
	if err != nil {
		return bench.Reading{}, err
	}
	return loop.run(ctx, a.Slot)
}

// info describes what was measured for a report: the uncompressed array. The others have the same
// data with other codecs or other chunks.
func (a *arrays) info() (bench.DatasetInfo, error) {
	l, err := a.loop("none")
	if err != nil {
		return bench.DatasetInfo{}, err
	}
	i := bench.DatasetInfo{
		Path: filepath.Join(a.data, "none"), Format: "zarr", Shards: 1, Records: l.cut.Total(), RecordBytes: satelliteBytes,
		Shuffle: "full and block", ShuffleSize: 1024, MemoryBudget: zarrBlockMemory,
	}
	i.StreamBytes = int64(i.Records) * satelliteBytes
	i.MeasuredBytes = i.StreamBytes
	i.FileBytes = int64(l.array.Type.ItemBytes)
	for _, n := range l.array.Shape {
		i.FileBytes *= n
	}
	return i, nil
}

// zarrPromises returns the promises about crops.
func zarrPromises() []Promise {
	list := []Promise{
		{What: "mount, random crops of an uncompressed array, to a loop", Row: rowZarrRandom + "none", Figure: FigureRatio, AtLeast: 0.75},
		{What: "mount, random crops, blosc of lz4, to a loop of the same decoders", Row: rowZarrRandom + "lz4", Figure: FigureRatio, AtLeast: 0.75},
		{What: "mount, random crops, blosc of zstd, to a loop of the same decoders", Row: rowZarrRandom + "zstd", Figure: FigureRatio, AtLeast: 0.75},
		{What: "mount, crops in blocks of 1024, blosc of lz4, to fixed records", Row: rowZarrBlock + "lz4", Figure: FigureRatio, AtLeast: 0.80},
		{What: "mount, crops in blocks of 1024, blosc of zstd, to fixed records", Row: rowZarrBlock + "zstd", Figure: FigureRatio, AtLeast: 0.80},
		{What: "mount, random crops, chunks of 4 KiB, to pread of 4 KiB", Row: rowZarrSmall, Figure: FigureRatio, AtLeast: 0.40},
		{What: "mount, random crops of an uncompressed array, past the page cache, bytes of the disk to fio", Row: rowZarrCold, Figure: FigureRatio, AtLeast: 0.80},
		{What: "processor time of whole chunks of 16.5 MB, for that of a mount, crops of 24 of 1008 steps", Row: rowZarrLess, Figure: FigureValue, AtLeast: 20},
		{What: "memory of servers above --memory, crops", Row: rowZarrMemory, Figure: FigureValue, AtMost: 150},
		{What: "mount of an array of 10⁴ objects, first", Row: rowZarrMount, Figure: FigureValue, AtMost: 2},
		{What: "mount of an array of 10⁴ objects, again", Row: rowZarrAgain, Figure: FigureValue, AtMost: 0.3},
	}
	for i := range list {
		list[i].Section = SectionZarr
	}
	return list
}

// zarrRowsOf returns the given rows and those that they need.
func zarrRowsOf(ids []string) []string {
	against := map[string][]string{
		rowZarrSmall: {rowZarrPreads}, rowZarrLess: {rowZarrWhole, rowZarrSteps}, rowZarrMemory: {rowZarrRandom + "lz4", rowZarrLoop + "lz4"}, rowZarrAgain: {rowZarrMount},
		rowZarrCold: {rowZarrFio},
	}
	for name := range satellite {
		against[rowZarrRandom+name], against[rowZarrBlock+name] = []string{rowZarrLoop + name}, []string{rowZarrFixed}
	}
	for _, id := range slices.Clone(ids) {
		ids = append(ids, against[id]...)
	}
	return ids
}

// coldChunk is about the size of a chunk of an uncompressed array.
const coldChunk = 128 << 10

// measureColdFio makes fio read a file past the page cache: what the disk delivers in reads of the
// size of chunks.
func (a *arrays) measureColdFio(ctx context.Context) (bench.Reading, error) {
	files, err := filepath.Glob(filepath.Join(a.data, fixedOnes, "*"))
	if err != nil || len(files) == 0 {
		return bench.Reading{}, bench.NotMeasured("there is no file of fixed records")
	}
	slices.Sort(files)
	r, err := uringbench.Fio(ctx, uringbench.Job{
		Path: files[0], BlockBytes: coldChunk, Depth: bench.ColdDepth, Direct: true, Random: true, Duration: a.Slot, Mode: uring.ModeAuto,
	}, uringbench.FioUring)
	if err != nil && ctx.Err() == nil {
		return bench.Reading{}, bench.NotMeasured("%w", err) // it is missing, or may not use io_uring
	}
	return bench.FromJob(r), err
}

// measureColdCrops makes a mount read past the page cache. It counts the bytes that the mount reads
// from the disk.
func (a *arrays) measureColdCrops(ctx context.Context) (bench.Reading, error) {
	r, err := a.readArray(ctx, "cold none", "none", ".npy", zarrRandomMemory, "--shuffle", "full", "--direct", "on")
	r.Bytes = int64(r.ReadBytes)
	return r, err
}
