package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/unpack/synthetic"
)

// The rows of directories that shards arrive in while they are mounted.
const (
	rowTakingFirst = "growing-taking-first"
	rowTaking      = "growing-taking"
	rowTakingTars  = "growing-taking-tars"
	rowGrowMemory  = "growing-memory"
	rowIdle        = "growing-idle"
	rowArrivals    = "growing-arrivals"
)

const (
	// growingSlot is how long files arrive, and how long nothing happens.
	growingSlot = 5 * time.Second
	// growingEpochs are taken before memory is measured.
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

// single is the mounted directory of single games.
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

// measureFirst takes an epoch as soon as a new process has looked at everything.
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

// measureNext takes an epoch of which a part is new, as it is in a training.
func (g *growing) measureNext(ctx context.Context) (reading, error) {
	d, err := g.single(ctx)
	if err != nil {
		return reading{}, err
	}
	return d.nextWithNew(ctx, g.shards/100)
}

// nextWithNew has some shards arrive, waits for them, and takes the next epoch.
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

// measureMemory is what is left in memory, of the stock and of epochs that were taken.
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

// measureIdle is what it costs to follow a directory in which nothing happens.
func (g *growing) measureIdle(ctx context.Context) (reading, error) {
	d, err := g.single(ctx)
	if err != nil {
		return reading{}, err
	}
	if err := sleep(ctx, time.Second); err != nil { // what taking an epoch has left to do
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

// measureArrivals has files arrive at a rate, and gives the longest time that one of them was
// there and not indexed.
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
		for ; seen < s.Shards-first && seen < len(arrived); seen++ { // those that come first are indexed first, about
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

// growing checks what is promised of directories that shards arrive in.
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
