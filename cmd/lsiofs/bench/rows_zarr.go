package bench

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
)

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
func (a *arrays) rows() []*row {
	l := &rowList{only: a.config.Rows}
	codecs := slices.Sorted(maps.Keys(satellite))
	for _, name := range codecs {
		l.add(row{id: rowZarrLoop + name, name: "a loop of the same decoders, random crops, " + name, measure: func(ctx context.Context) (reading, error) {
			return a.measureLoop(ctx, name)
		}})
		l.add(row{id: rowZarrRandom + name, name: "mount, --shuffle full --jitter, 2 readers, " + name, against: rowZarrLoop + name, measure: func(ctx context.Context) (reading, error) {
			return a.readArray(ctx, "random "+name, name, ".npy", zarrRandomMemory, "--shuffle", "full")
		}})
	}
	block := []string{"--shuffle", "block", "--shuffle-size", "1024"}
	l.add(row{id: rowZarrFixed, name: "mount of fixed records as large as crops, --shuffle block, 2 readers", measure: func(ctx context.Context) (reading, error) {
		return a.readArray(ctx, fixedOnes, fixedOnes, ".bin", zarrBlockMemory, block...)
	}})
	for _, name := range codecs {
		l.add(row{id: rowZarrBlock + name, name: "mount, --shuffle block --shuffle-size 1024, 2 readers, " + name, against: rowZarrFixed, measure: func(ctx context.Context) (reading, error) {
			return a.readArray(ctx, "block "+name, name, ".npy", zarrBlockMemory, block...)
		}})
	}
	l.add(row{id: rowZarrPreads, name: "pread of chunks of 4 KiB at random places, a loop a core", noRecords: true, measure: func(ctx context.Context) (reading, error) {
		loop, err := a.loop(smallChunks)
		if err != nil {
			return reading{}, err
		}
		return loop.runPreads(ctx, a.slot)
	}})
	l.add(row{id: rowZarrSmall, name: "mount, --shuffle full, 2 readers, chunks of 4 KiB", against: rowZarrPreads, measure: func(ctx context.Context) (reading, error) {
		return a.readArray(ctx, smallChunks, smallChunks, ".npy", zarrRandomMemory, "--shuffle", "full")
	}})
	l.add(row{id: rowZarrWhole, name: "a loop that decodes whole chunks of 16.5 MB, crops of 24 of 1008 steps", noRecords: true, measure: func(ctx context.Context) (reading, error) {
		r, err := a.measureLoop(ctx, longChunks)
		a.steps[0] = r.cpu.Seconds() / float64(r.bytes)
		return r, err
	}})
	l.add(row{id: rowZarrSteps, name: "mount, --shuffle full, 2 readers, the same", noRecords: true, measure: func(ctx context.Context) (reading, error) {
		r, err := a.readArray(ctx, longChunks, longChunks, ".npy", zarrRandomMemory, "--shuffle", "full")
		a.steps[1] = r.cpu.Seconds() / float64(r.bytes)
		return r, err
	}})
	l.add(row{id: rowZarrLess, name: "processor time of the loop, for that of the mount", unit: "times", measure: func(context.Context) (reading, error) {
		if a.steps[1] <= 0 {
			return reading{}, notMeasured("it needs both rows before it")
		}
		return reading{value: a.steps[0] / a.steps[1]}, nil
	}})
	l.add(row{id: rowZarrFio, name: "fio O_DIRECT, pieces of 128 KiB at random places, 32 at a time", noRecords: true, measure: a.measureColdFio})
	l.add(row{id: rowZarrCold, name: "mount --direct on, --shuffle full --jitter, 2 readers, none: bytes of the disk", noRecords: true, against: rowZarrFio, measure: a.measureColdCrops})
	l.add(row{id: rowZarrMemory, name: "memory of these servers above --memory, at most", unit: "MiB", measure: func(context.Context) (reading, error) {
		return reading{value: float64(a.mostAnon) / (1 << 20)}, nil
	}})
	l.add(row{id: rowZarrMount, name: "mount of an array of 10⁴ objects, first", unit: "s", measure: a.measureMounts})
	l.add(row{id: rowZarrAgain, name: "the same, again", unit: "s", measure: func(context.Context) (reading, error) {
		return reading{value: a.again}, nil
	}})
	return l.rows
}

func (a *arrays) measureLoop(ctx context.Context, name string) (reading, error) {
	loop, err := a.loop(name)
	if err != nil {
		return reading{}, err
	}
	return loop.run(ctx, a.slot)
}

// info describes what was measured for a report: the uncompressed array. The others have the same
// data with other codecs or other chunks.
func (a *arrays) info() (DatasetInfo, error) {
	l, err := a.loop("none")
	if err != nil {
		return DatasetInfo{}, err
	}
	i := DatasetInfo{
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
		{What: "mount, random crops of an array that is not compressed, to a loop", Row: rowZarrRandom + "none", Figure: FigureRatio, AtLeast: 0.75},
		{What: "mount, random crops, blosc of lz4, to a loop of the same decoders", Row: rowZarrRandom + "lz4", Figure: FigureRatio, AtLeast: 0.75},
		{What: "mount, random crops, blosc of zstd, to a loop of the same decoders", Row: rowZarrRandom + "zstd", Figure: FigureRatio, AtLeast: 0.75},
		{What: "mount, crops in blocks of 1024, blosc of lz4, to fixed records", Row: rowZarrBlock + "lz4", Figure: FigureRatio, AtLeast: 0.80},
		{What: "mount, crops in blocks of 1024, blosc of zstd, to fixed records", Row: rowZarrBlock + "zstd", Figure: FigureRatio, AtLeast: 0.80},
		{What: "mount, random crops, chunks of 4 KiB, to pread of 4 KiB", Row: rowZarrSmall, Figure: FigureRatio, AtLeast: 0.40},
		{What: "mount, random crops of an array that is not compressed, past the page cache, bytes of the disk to fio", Row: rowZarrCold, Figure: FigureRatio, AtLeast: 0.80},
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
