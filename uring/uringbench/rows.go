package uringbench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lsiofs/lsiofs/uring"
)

// Row is a comparison with fio: a job, and what an engine must reach relative to fio.
type Row struct {
	Name string `json:"name"`
	Job  Job    `json:"job"`

	FioEngine string `json:"fio_engine"`
	FioDepth  int    `json:"fio_depth"` // for psync: its number of processes

	MinThroughput float64 `json:"min_throughput"` // ratio to fio's
	MaxCPU        float64 `json:"max_cpu"`        // ratio to fio's CPU time per byte; 0 if nothing is promised
}

// promises are the rows without path, region and duration.
var promises = []Row{
	{Job: Job{Mode: uring.ModeUring, Direct: true, Random: true, BlockBytes: 128 << 10, Depth: 32}, FioEngine: FioUring, FioDepth: 32, MinThroughput: 0.90, MaxCPU: 1.5},
	{Job: Job{Mode: uring.ModeUring, Direct: true, BlockBytes: 1 << 20, Depth: 16}, FioEngine: FioUring, FioDepth: 16, MinThroughput: 0.90, MaxCPU: 1.5},
	{Job: Job{Mode: uring.ModeUring, Direct: true, Random: true, BlockBytes: 4 << 10, Depth: 128}, FioEngine: FioUring, FioDepth: 128, MinThroughput: 0.90},
	{Job: Job{Mode: uring.ModeUring, Direct: true, Random: true, BlockBytes: 4 << 10, Depth: 32}, FioEngine: FioUring, FioDepth: 32, MinThroughput: 0.75},
	{Job: Job{Mode: uring.ModeUring, Direct: true, Random: true, BlockBytes: 4 << 10, Depth: 1}, FioEngine: FioPsync, FioDepth: 1, MinThroughput: 0.80},
	// Data in the page cache is copied by one processor: so it is for fio.
	{Job: Job{Mode: uring.ModeUring, Random: true, BlockBytes: 4 << 10, Depth: 32}, FioEngine: FioPsync, FioDepth: 1, MinThroughput: 0.80},
	{Job: Job{Mode: uring.ModeUring, Random: true, BlockBytes: 4 << 10, Depth: 1, Inline: true}, FioEngine: FioPsync, FioDepth: 1, MinThroughput: 0.80},
	{Job: Job{Mode: uring.ModeUring, Random: true, BlockBytes: 128 << 10, Depth: 32}, FioEngine: FioPsync, FioDepth: 1, MinThroughput: 0.80},
	{Job: Job{Mode: uring.ModeUring, Random: true, BlockBytes: 1 << 20, Depth: 16}, FioEngine: FioPsync, FioDepth: 1, MinThroughput: 0.80},
	// One process for each of the pool's goroutines.
	{Job: Job{Mode: uring.ModePread, Direct: true, Random: true, BlockBytes: 128 << 10, Depth: 32}, FioEngine: FioPsync, FioDepth: 32, MinThroughput: 0.90},
	{Job: Job{Mode: uring.ModePread, Direct: true, BlockBytes: 1 << 20, Depth: 16}, FioEngine: FioPsync, FioDepth: 16, MinThroughput: 0.90},
	{Job: Job{Mode: uring.ModePread, Direct: true, Random: true, BlockBytes: 4 << 10, Depth: 32}, FioEngine: FioPsync, FioDepth: 32, MinThroughput: 0.50},
	// Reads at any offset go through the engine's own memory; fio can't do them, so its reads are
	// aligned.
	{Job: Job{Mode: uring.ModeUring, Direct: true, Random: true, BlockBytes: 128 << 10, Depth: 32, ShiftBytes: 333}, FioEngine: FioUring, FioDepth: 32},
	{Job: Job{Mode: uring.ModeUring, Direct: true, Random: true, BlockBytes: 1 << 20, Depth: 16, ShiftBytes: 333}, FioEngine: FioUring, FioDepth: 16},
	{Job: Job{Mode: uring.ModeUring, Direct: true, Random: true, BlockBytes: 4 << 20, Depth: 4, ShiftBytes: 333}, FioEngine: FioUring, FioDepth: 4},
}

// Rows returns the comparisons of package uring, with and without a promise. They read the first
// regionBytes of a file; each job runs for the duration each. That should be a second or more if
// CPU is compared, since 1 MiB reads use only a hundredth of it. regionBytes of 1 GiB exceeds the
// cache of any disk. If ring is false, io_uring can't be used: rows of the ring are left out, and
// those of the page cache use the pread engine.
func Rows(path string, regionBytes int64, each time.Duration, ring bool) []Row {
	var rows []Row
	for _, row := range promises {
		if !ring && row.Job.Mode == uring.ModeUring {
			if row.Job.Direct {
				continue
			}
			row.Job.Mode = uring.ModePread
		}
		row.Job.Path, row.Job.RegionBytes, row.Job.Duration = path, regionBytes, each
		row.Name = row.Job.name()
		rows = append(rows, row)
	}
	return rows
}

func (j Job) name() string {
	where, order, way := "hot", "sequential", ""
	if j.Direct {
		where = "direct"
	}
	if j.Random {
		order = "random"
	}
	size := fmt.Sprintf("%d KiB", j.BlockBytes>>10)
	if j.BlockBytes%(1<<20) == 0 {
		size = fmt.Sprintf("%d MiB", j.BlockBytes>>20)
	}
	if j.Inline {
		way = " inline"
	}
	if j.ShiftBytes != 0 {
		way += fmt.Sprintf(" at +%d B", j.ShiftBytes)
	}
	return fmt.Sprintf("%s %s %s %s QD %d%s", j.Mode, where, size, order, j.Depth, way)
}

// Comparison is the result of a row.
type Comparison struct {
	Row  Row    `json:"row"`
	Ours Result `json:"ours"` // from the round with the median throughput
	Fio  Result `json:"fio"`

	Throughput float64 `json:"throughput"` // ratio of ours to fio's, medians
	CPU        float64 `json:"cpu"`        // ratio of ours to fio's CPU time per byte, medians
	// Spread is the lowest and the highest throughput ratio of a round.
	Spread [2]float64 `json:"spread"`
}

// Reached reports whether the row's promise was kept.
func (c Comparison) Reached() bool {
	return c.Throughput >= c.Row.MinThroughput && (c.Row.MaxCPU == 0 || c.CPU <= c.Row.MaxCPU)
}

// Compare warms the file and alternates a row's job and fio's, for the given number of rounds.
// Without fio it fails with ErrNoFio.
func Compare(ctx context.Context, row Row, rounds int) (Comparison, error) {
	if rounds < 1 {
		return Comparison{}, errors.New("a comparison needs a round")
	}
	theirs := row.Job
	theirs.Depth, theirs.ShiftBytes = row.FioDepth, 0
	var ours, fio []Result
	var ratios []float64
	for range rounds {
		// Each before its own: data that is warm for one may be cold for the other.
		if err := Warm(ctx, row.Job); err != nil {
			return Comparison{}, err
		}
		f, err := Fio(ctx, theirs, row.FioEngine)
		if err != nil {
			return Comparison{}, err
		}
		o, err := Run(ctx, row.Job)
		if err != nil {
			return Comparison{}, err
		}
		ours, fio = append(ours, o), append(fio, f)
		ratios = append(ratios, o.BytesPerSecond()/f.BytesPerSecond())
	}
	c := Comparison{Row: row, Spread: [2]float64{slices.Min(ratios), slices.Max(ratios)}}
	c.CPU = median(ours, Result.CPUSecondsPerGiB).CPUSecondsPerGiB() / median(fio, Result.CPUSecondsPerGiB).CPUSecondsPerGiB()
	c.Ours, c.Fio = median(ours, Result.BytesPerSecond), median(fio, Result.BytesPerSecond)
	c.Throughput = c.Ours.BytesPerSecond() / c.Fio.BytesPerSecond()
	return c, nil
}

// median returns the middle result (the lower of two) by some measure.
func median(results []Result, by func(Result) float64) Result {
	sorted := slices.SortedFunc(slices.Values(results), func(a, b Result) int { return cmp.Compare(by(a), by(b)) })
	return sorted[(len(sorted)-1)/2]
}
