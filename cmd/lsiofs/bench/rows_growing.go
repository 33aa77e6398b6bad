package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
)

// Rows for directories in which shards arrive while they are mounted.
const (
	rowTakingFirst = "growing-taking-first"
	rowTaking      = "growing-taking"
	rowTakingTars  = "growing-taking-tars"
	rowGrowMemory  = "growing-memory"
	rowIdle        = "growing-idle"
	rowArrivals    = "growing-arrivals"
)

const (
	// growingSlot is how long files arrive in one measurement, and how long nothing happens in
	// another.
	growingSlot = 5 * time.Second
	// growingEpochs is the number of epochs taken before memory is measured.
	growingEpochs = 3
)

func (g *growing) rows() []*row {
	l := &rowList{only: g.config.Rows}
	of := fmt.Sprintf("%d single games", g.shards)
	l.add(row{id: rowTakingFirst, name: "first epoch that a mount takes, of " + of, unit: "s", measure: g.measureFirst})
	l.add(row{id: rowTaking, name: "next epoch, of " + of + ", some of them new", unit: "s", measure: g.measureNext})
	l.add(row{id: rowGrowMemory, name: fmt.Sprintf("memory of its own after %d epochs of %s", growingEpochs, of), unit: "MiB", measure: g.measureMemory})
	l.add(row{id: rowIdle, name: "processor time of a mount that nobody reads, of " + of, unit: "% of a core", measure: g.measureIdle})
	l.add(row{id: rowArrivals, name: fmt.Sprintf("a file's close until it is indexed, %d files a second", arrivalRate), unit: "s", measure: g.measureArrivals})
	l.add(row{id: rowTakingTars, name: fmt.Sprintf("next epoch, of %d tars", growingTars), unit: "s", measure: g.measureTars})
	return l.rows
}

// single returns the mounted directory of single games.
func (g *growing) single(ctx context.Context) (*grower, error) {
	if g.games == nil {
		var err error
		games := synthetic.Shape{Format: "lc0", RecordBytes: synthetic.FrameBytes, Codec: "gz"}
		if g.games, err = g.mounted(ctx, "games", g.shards, games); err != nil {
			return nil, err
		}
	}
	return g.games, nil
}

// measureFirst takes an epoch as soon as a new process has looked at all shards.
func (g *growing) measureFirst(ctx context.Context) (reading, error) {
	d, err := g.single(ctx)
	if err == nil {
		err = d.mount(ctx)
	}
	if err != nil {
		return reading{}, err
	}
	return d.next(ctx)
}

// measureNext takes an epoch after a part of the shards has been added, as in training.
func (g *growing) measureNext(ctx context.Context) (reading, error) {
	d, err := g.single(ctx)
	if err != nil {
		return reading{}, err
	}
	return d.nextWithNew(ctx, g.shards/100)
}

// nextWithNew adds shards, waits until they are indexed, and takes the next epoch.
func (d *grower) nextWithNew(ctx context.Context, fresh int) (reading, error) {
	for range fresh {
		if err := d.arrive(); err != nil {
			return reading{}, err
		}
	}
	if err := d.indexed(ctx); err != nil {
		return reading{}, err
	}
	return d.next(ctx)
}

// measureMemory measures the memory that stays in use for the stock and for the epochs taken.
func (g *growing) measureMemory(ctx context.Context) (reading, error) {
	d, err := g.single(ctx)
	if err != nil {
		return reading{}, err
	}
	for range growingEpochs {
		if _, err := d.nextWithNew(ctx, g.shards/100); err != nil {
			return reading{}, err
		}
	}
	bytes, err := d.anonBytes()
	return reading{value: float64(bytes) / (1 << 20)}, err
}

// measureIdle measures the cost of watching a directory in which nothing happens.
func (g *growing) measureIdle(ctx context.Context) (reading, error) {
	d, err := g.single(ctx)
	if err != nil {
		return reading{}, err
	}
	if err := sleep(ctx, time.Second); err != nil { // let remaining work of taking an epoch finish
		return reading{}, err
	}
	before, err := processCPU(d.server.cmd.Process.Pid)
	if err != nil {
		return reading{}, err
	}
	if err := sleep(ctx, g.slot); err != nil {
		return reading{}, err
	}
	after, err := processCPU(d.server.cmd.Process.Pid)
	return reading{value: 100 * (after - before).Seconds() / g.slot.Seconds()}, err
}

// measureArrivals adds files at a fixed rate, and returns the longest time between a file's arrival
// and its indexing.
func (g *growing) measureArrivals(ctx context.Context) (reading, error) {
	d, err := g.single(ctx)
	if err != nil {
		return reading{}, err
	}
	first := d.number
	arrived := make([]time.Duration, 0, int(g.slot.Seconds()*arrivalRate))
	longest, seen := time.Duration(0), 0
	look := func() error {
		s, err := d.status()
		for ; seen < s.Shards-first && seen < len(arrived); seen++ { // files are indexed roughly in their order of arrival
			longest = max(longest, monotonic()-arrived[seen])
		}
		return err
	}
	began := monotonic()
	for len(arrived) < cap(arrived) {
		if err := d.arrive(); err != nil {
			return reading{}, err
		}
		arrived = append(arrived, monotonic())
		if len(arrived)%(arrivalRate/10) == 0 {
			if err := look(); err != nil {
				return reading{}, err
			}
		}
		if err := sleep(ctx, began+time.Duration(len(arrived))*time.Second/arrivalRate-monotonic()); err != nil {
			return reading{}, err
		}
	}
	for end := time.Now().Add(growingPatience); seen < len(arrived); {
		if time.Now().After(end) {
			return reading{}, fmt.Errorf("%d of %d files are indexed after %v", seen, len(arrived), growingPatience)
		}
		if err := errors.Join(look(), sleep(ctx, 10*time.Millisecond)); err != nil {
			return reading{}, err
		}
	}
	return reading{value: longest.Seconds()}, nil
}

func (g *growing) measureTars(ctx context.Context) (reading, error) {
	if g.tars == nil {
		var err error
		if g.tars, err = g.mounted(ctx, "tars", growingTars, synthetic.Shape{Format: "tar", RecordBytes: 12500}); err != nil {
			return reading{}, err
		}
	}
	return g.tars.nextWithNew(ctx, 1)
}

// growing checks the promises about directories in which shards arrive.
func (k *check) growing(ctx context.Context) (err error) {
	if !k.config.wants(SectionGrowing) || k.config.Spec.Dataset != "" {
		return nil
	}
	c := k.config.Config
	if c.Rows = rowsOf(k.config.Promises, SectionGrowing); len(c.Rows) == 0 {
		return nil
	}
	k.config.progress("making games", 0, 0)
	g, err := newGrowing(k.program, c, k.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	rows := g.rows()
	r := rounds{most: c.Rounds, total: c.Total, progress: c.progress}
	report := Report{Machine: thisMachine(k.dir, k.program.Version)}
	if report.Rounds, err = r.run(ctx, rows); err != nil {
		said, _ := os.ReadFile(filepath.Join(g.dir, "servers.log"))
		return fmt.Errorf("%w\n%s", err, said)
	}
	report.Rows = finished(rows, 0)
	o, records := c.Spec.Order, uint64(g.shards*shardRecords)
	report.Dataset = DatasetInfo{
		Path: g.dir, Format: "lc0", Compression: "gzip", Shards: g.shards, Records: records, RecordBytes: synthetic.FrameBytes,
		StreamBytes: int64(records) * synthetic.FrameBytes, MeasuredBytes: int64(records) * synthetic.FrameBytes,
		Shuffle: string(o.Shuffle), ShuffleSize: o.SizeRecords, Lanes: o.Lanes, MemoryBudget: c.Spec.MemoryBytes,
	}
	k.report.Reports = append(k.report.Reports, report)
	for _, p := range k.config.Promises {
		if p.Section == SectionGrowing {
			k.add(p.judge(report.Rows))
		}
	}
	return nil
}
