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

// Row is a promise: what an engine reaches of what fio reaches.
type Row struct {
	Name string `json:"name"`
	Job  Job    `json:"job"`

	FioEngine string `json:"fio_engine"`
	FioDepth  int    `json:"fio_depth"` // processes of psync

	MinThroughput float64 `json:"min_throughput"` // ratio to fio's
	MaxCPU        float64 `json:"max_cpu"`        // ratio to fio's CPU time a byte; 0 promises nothing
}

// Rows are the promises of package uring about the first regionBytes of a file,
// with jobs that take so long each. 1 GiB makes a region that no disk's cache
// holds; where ring is false io_uring can't be used, and its rows are left out.
func Rows(path string, regionBytes int64, each time.Duration, ring bool) []Row {
	var rows []Row
	add := func(mode uring.Mode, direct, random bool, kib, depth int, fio string, fioDepth int, throughput, cpu float64) {
		if mode == uring.ModeUring && !ring {
			return
		}
		rows = append(rows, Row{
			Name: rowName(mode, direct, random, kib, depth),
			Job: Job{
				Path: path, RegionBytes: regionBytes, BlockBytes: kib << 10, Depth: depth,
				Direct: direct, Random: random, Mode: mode, Duration: each,
			},
			FioEngine: fio, FioDepth: fioDepth, MinThroughput: throughput, MaxCPU: cpu,
		})
	}
	const direct, hot, random, sequential = true, false, true, false
	add(uring.ModeUring, direct, random, 128, 32, FioUring, 32, 0.90, 1.5)
	add(uring.ModeUring, direct, sequential, 1024, 16, FioUring, 16, 0.90, 1.5)
	add(uring.ModeUring, direct, random, 4, 128, FioUring, 128, 0.90, 0)
	add(uring.ModeUring, direct, random, 4, 32, FioUring, 32, 0.75, 0)
	add(uring.ModeUring, direct, random, 4, 1, FioPsync, 1, 0.80, 0)
	// What the page cache holds is copied by a processor: one of fio's too.
	add(uring.ModeUring, hot, random, 4, 32, FioPsync, 1, 0.80, 0)
	add(uring.ModeUring, hot, random, 128, 32, FioPsync, 1, 0.80, 0)
	add(uring.ModeUring, hot, random, 1024, 16, FioPsync, 1, 0.80, 0)
	add(uring.ModePread, direct, random, 128, 32, FioPsync, 32, 0.90, 0)
	add(uring.ModePread, direct, sequential, 1024, 16, FioPsync, 16, 0.90, 0)
	add(uring.ModePread, direct, random, 4, 32, FioPsync, 32, 0.50, 0)
	return rows
}

func rowName(mode uring.Mode, direct, random bool, kib, depth int) string {
	where, order := "hot", "sequential"
	if direct {
		where = "direct"
	}
	if random {
		order = "random"
	}
	return fmt.Sprintf("%s %s %d KiB %s QD %d", mode, where, kib, order, depth)
}

// Comparison is what became of a row.
type Comparison struct {
	Row  Row    `json:"row"`
	Ours Result `json:"ours"` // of the round with the median throughput
	Fio  Result `json:"fio"`

	Throughput float64 `json:"throughput"` // ours to fio's, medians
	CPU        float64 `json:"cpu"`        // ours to fio's CPU time a byte, medians
	// Spread is the lowest and the highest ratio of throughputs of a round.
	Spread [2]float64 `json:"spread"`
}

// Reached says whether the row's promise was kept.
func (c Comparison) Reached() bool {
	return c.Throughput >= c.Row.MinThroughput && (c.Row.MaxCPU == 0 || c.CPU <= c.Row.MaxCPU)
}

// Compare does a row's job and fio's in turns, so many rounds, after warming the
// file. Without fio it fails with ErrNoFio.
func Compare(ctx context.Context, row Row, rounds int) (Comparison, error) {
	if rounds < 1 {
		return Comparison{}, errors.New("a comparison needs a round")
	}
	theirs := row.Job
	theirs.Depth = row.FioDepth
	var ours, fio []Result
	var ratios []float64
	for range rounds {
		// Each before its own: what warms the one may be cold to the other.
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

// median gives the result in the middle (the lower of two) by some measure.
func median(results []Result, by func(Result) float64) Result {
	sorted := slices.SortedFunc(slices.Values(results), func(a, b Result) int { return cmp.Compare(by(a), by(b)) })
	return sorted[(len(sorted)-1)/2]
}
