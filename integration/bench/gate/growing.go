package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/bench"
	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
)

// growing measures directories in which shards arrive while they are mounted. It is not safe for
// concurrent use.
type growing struct {
	program bench.Program
	config  bench.Config
	dir     string   // for data, indexes, runs and mount points
	log     *os.File // output of servers
	slot    time.Duration
	shards  int // in the directory with single games
	points  int

	games, tars *grower // nil until they are mounted
}

// grower is one such directory, mounted.
type grower struct {
	growing *growing
	server  *bench.Server
	data    string // the directory of its shards
	flags   []string
	content []byte // of each shard
	number  int    // number of shards so far

	extension, stream string // of shards, of streams
}

const (
	// manyGames is the number of games that epochs are made of, fewGames that for short runs.
	manyGames = 500_000
	fewGames  = 20_000
	// fewTime is the time for all rows up to which a run is short.
	fewTime = 30 * time.Second
	// growingTars is the number of shards in the directory with tars.
	growingTars = 100
	// shardRecords is the number of records in each shard. What matters is the number of shards.
	shardRecords = 2
	// arrivalRate is the number of files that arrive per second.
	arrivalRate = 1000
	// growingPatience bounds each wait.
	growingPatience = 30 * time.Minute
)

func newGrowing(p bench.Program, c bench.Config, dir string) (*growing, error) {
	own, err := os.MkdirTemp(dir, ".lsiofs-growing-")
	if err != nil {
		return nil, err
	}
	g := &growing{program: p, config: c, dir: own, shards: manyGames, slot: growingSlot}
	if c.Total <= fewTime {
		g.shards = fewGames
	}
	if g.log, err = os.Create(filepath.Join(own, "servers.log")); err != nil {
		return nil, errors.Join(err, os.RemoveAll(own))
	}
	return g, nil
}

// close unmounts and removes everything.
func (g *growing) close() error {
	var errs []error
	for _, d := range []*grower{g.games, g.tars} {
		if d != nil && d.server != nil {
			errs = append(errs, d.server.Stop())
		}
	}
	if err := errors.Join(append(errs, g.log.Close())...); err != nil {
		return err // something may still be mounted there
	}
	return os.RemoveAll(g.dir)
}

// mounted makes a directory with that many shards and mounts it. It returns when all of them are
// indexed.
func (g *growing) mounted(ctx context.Context, name string, shards int, shape synthetic.Shape) (*grower, error) {
	d := &grower{growing: g, data: filepath.Join(g.dir, name), extension: shape.Extension(), stream: streamExtension(shape)}
	var content bytes.Buffer
	if err := shape.WriteShard(&content, 0, shardRecords, nil); err != nil {
		return nil, err
	}
	d.content = content.Bytes()
	d.flags = []string{
		"--grow", "--run", filepath.Join(g.dir, name+".run"), "--index-dir", filepath.Join(g.dir, name+".index"),
		"--window", fmt.Sprintf("%dshards", shards), "--workers", "1",
	}
	if err := os.Mkdir(d.data, 0o700); err != nil {
		return nil, err
	}
	if err := d.fill(shards); err != nil {
		return nil, err
	}
	return d, d.mount(ctx)
}

// mount mounts the directory, again if it is already mounted.
func (d *grower) mount(ctx context.Context) error {
	g := d.growing
	if d.server != nil {
		if err := d.server.Stop(); err != nil {
			return err
		}
		d.server = nil
	}
	g.points++
	point := filepath.Join(g.dir, fmt.Sprintf("mount-%d", g.points))
	if err := os.Mkdir(point, 0o700); err != nil {
		return err
	}
	args := append([]string{d.data, point}, d.flags...)
	server, err := g.program.MountOn(ctx, point, g.log, append(args, g.config.Flags...))
	if err != nil {
		return err
	}
	d.server = server
	return d.indexed(ctx)
}

// fill makes the shards that exist from the beginning: files of their own, since links to one file
// would count as one shard.
func (d *grower) fill(shards int) error {
	for range shards {
		if err := os.WriteFile(d.nextPath(), d.content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// arrive adds one shard, by a rename as writers do.
func (d *grower) arrive() error {
	unfinished := filepath.Join(d.data, ".writing")
	if err := os.WriteFile(unfinished, d.content, 0o600); err != nil {
		return err
	}
	return os.Rename(unfinished, d.nextPath())
}

// nextPath returns the path of one more shard, whose name makes it the newest.
func (d *grower) nextPath() string {
	d.number++
	return filepath.Join(d.data, fmt.Sprintf("training.%d%s", d.number, d.extension))
}

// growingStatus is the part about growing datasets in status.json.
type growingStatus struct {
	Epoch    *uint64 `json:"epoch"`
	Shards   int     `json:"shards"`
	Indexing int     `json:"indexing"`
	Settling int     `json:"settling"`
	Error    string  `json:"error"`
}

func (d *grower) status() (growingStatus, error) {
	b, err := os.ReadFile(filepath.Join(d.server.Point, "status.json"))
	if err != nil {
		return growingStatus{}, err
	}
	var r struct {
		Growing growingStatus `json:"growing"`
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return growingStatus{}, fmt.Errorf("%s/status.json: %w", d.server.Point, err)
	}
	return r.Growing, nil
}

// indexed waits until all shards that have arrived are indexed.
func (d *grower) indexed(ctx context.Context) error {
	for end := time.Now().Add(growingPatience); ; {
		s, err := d.status()
		switch {
		case err != nil:
			return err
		case s.Shards == d.number && s.Indexing == 0:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("only %d of %d shards were indexed after %v: %s", s.Shards, d.number, growingPatience, s.Error)
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// next takes the next epoch by looking at its file, and measures how long that takes.
func (d *grower) next(ctx context.Context) (bench.Reading, error) {
	s, err := d.status()
	if err != nil {
		return bench.Reading{}, err
	}
	epoch := uint64(0)
	if s.Epoch != nil {
		epoch = *s.Epoch + 1
	}
	path := filepath.Join(d.server.Point, fmt.Sprintf("epoch-%d", epoch), "worker-0-of-1"+d.stream)
	began := bench.Monotonic()
	_, err = os.Stat(path)
	took := bench.Monotonic() - began
	return bench.Reading{Value: took.Seconds()}, errors.Join(err, ctx.Err())
}

// streamExtension returns the extension of streams with records of a shape.
func streamExtension(s synthetic.Shape) string {
	if s.Format == "lc0" {
		return ".bin"
	}
	return "." + s.Format
}

// anonBytes returns the current size of the server's private memory.
func (d *grower) anonBytes() (int64, error) {
	kib, err := strconv.ParseInt(strings.TrimSuffix(bench.FieldOf(fmt.Sprintf("/proc/%d/status", d.server.Cmd.Process.Pid), "RssAnon"), " kB"), 10, 64)
	return kib << 10, err
}

// sleep waits for d or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

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

func (g *growing) rows() []*bench.Measurement {
	l := &bench.Measurements{Only: g.config.Rows}
	of := fmt.Sprintf("%d single games", g.shards)
	l.Add(bench.Measurement{ID: rowTakingFirst, Name: "first epoch of a mount, of " + of, Unit: "s", Measure: g.measureFirst})
	l.Add(bench.Measurement{ID: rowTaking, Name: "next epoch, of " + of + ", some of them new", Unit: "s", Measure: g.measureNext})
	l.Add(bench.Measurement{ID: rowGrowMemory, Name: fmt.Sprintf("private memory after %d epochs of %s", growingEpochs, of), Unit: "MiB", Measure: g.measureMemory})
	l.Add(bench.Measurement{ID: rowIdle, Name: "processor time of a mount without readers, of " + of, Unit: "% of a core", Measure: g.measureIdle})
	l.Add(bench.Measurement{ID: rowArrivals, Name: fmt.Sprintf("from closing a file until it is indexed, %d files per second", arrivalRate), Unit: "s", Measure: g.measureArrivals})
	l.Add(bench.Measurement{ID: rowTakingTars, Name: fmt.Sprintf("next epoch, of %d tars", growingTars), Unit: "s", Measure: g.measureTars})
	return l.Rows
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
func (g *growing) measureFirst(ctx context.Context) (bench.Reading, error) {
	d, err := g.single(ctx)
	if err == nil {
		err = d.mount(ctx)
	}
	if err != nil {
		return bench.Reading{}, err
	}
	return d.next(ctx)
}

// measureNext takes an epoch after a part of the shards has been added, as in training.
func (g *growing) measureNext(ctx context.Context) (bench.Reading, error) {
	d, err := g.single(ctx)
	if err != nil {
		return bench.Reading{}, err
	}
	return d.nextWithNew(ctx, g.shards/100)
}

// nextWithNew adds shards, waits until they are indexed, and takes the next epoch.
func (d *grower) nextWithNew(ctx context.Context, fresh int) (bench.Reading, error) {
	for range fresh {
		if err := d.arrive(); err != nil {
			return bench.Reading{}, err
		}
	}
	if err := d.indexed(ctx); err != nil {
		return bench.Reading{}, err
	}
	return d.next(ctx)
}

// measureMemory measures the memory that stays in use for the stock and for the epochs taken.
func (g *growing) measureMemory(ctx context.Context) (bench.Reading, error) {
	d, err := g.single(ctx)
	if err != nil {
		return bench.Reading{}, err
	}
	for range growingEpochs {
		if _, err := d.nextWithNew(ctx, g.shards/100); err != nil {
			return bench.Reading{}, err
		}
	}
	bytes, err := d.anonBytes()
	return bench.Reading{Value: float64(bytes) / (1 << 20)}, err
}

// measureIdle measures the cost of watching a directory in which nothing happens.
func (g *growing) measureIdle(ctx context.Context) (bench.Reading, error) {
	d, err := g.single(ctx)
	if err != nil {
		return bench.Reading{}, err
	}
	if err := sleep(ctx, time.Second); err != nil { // let remaining work of taking an epoch finish
		return bench.Reading{}, err
	}
	before, err := bench.ProcessCPU(d.server.Cmd.Process.Pid)
	if err != nil {
		return bench.Reading{}, err
	}
	if err := sleep(ctx, g.slot); err != nil {
		return bench.Reading{}, err
	}
	after, err := bench.ProcessCPU(d.server.Cmd.Process.Pid)
	return bench.Reading{Value: 100 * (after - before).Seconds() / g.slot.Seconds()}, err
}

// measureArrivals adds files at a fixed rate, and returns the longest time between a file's arrival
// and its indexing.
func (g *growing) measureArrivals(ctx context.Context) (bench.Reading, error) {
	d, err := g.single(ctx)
	if err != nil {
		return bench.Reading{}, err
	}
	first := d.number
	arrived := make([]time.Duration, 0, int(g.slot.Seconds()*arrivalRate))
	longest, seen := time.Duration(0), 0
	look := func() error {
		s, err := d.status()
		for ; seen < s.Shards-first && seen < len(arrived); seen++ { // files are indexed roughly in their order of arrival
			longest = max(longest, bench.Monotonic()-arrived[seen])
		}
		return err
	}
	began := bench.Monotonic()
	for len(arrived) < cap(arrived) {
		if err := d.arrive(); err != nil {
			return bench.Reading{}, err
		}
		arrived = append(arrived, bench.Monotonic())
		if len(arrived)%(arrivalRate/10) == 0 {
			if err := look(); err != nil {
				return bench.Reading{}, err
			}
		}
		if err := sleep(ctx, began+time.Duration(len(arrived))*time.Second/arrivalRate-bench.Monotonic()); err != nil {
			return bench.Reading{}, err
		}
	}
	for end := time.Now().Add(growingPatience); seen < len(arrived); {
		if time.Now().After(end) {
			return bench.Reading{}, fmt.Errorf("only %d of %d files were indexed after %v", seen, len(arrived), growingPatience)
		}
		if err := errors.Join(look(), sleep(ctx, 10*time.Millisecond)); err != nil {
			return bench.Reading{}, err
		}
	}
	return bench.Reading{Value: longest.Seconds()}, nil
}

func (g *growing) measureTars(ctx context.Context) (bench.Reading, error) {
	if g.tars == nil {
		var err error
		if g.tars, err = g.mounted(ctx, "tars", growingTars, synthetic.Shape{Format: "tar", RecordBytes: 12500}); err != nil {
			return bench.Reading{}, err
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
	k.config.Tell("making games", 0, 0)
	g, err := newGrowing(k.program, c, k.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	rows := g.rows()
	r := bench.Rounds{Most: c.Rounds, Total: c.Total, Progress: c.Tell}
	report := bench.Report{Machine: bench.ThisMachine(k.dir, k.program.Version)}
	if report.Rounds, err = r.Run(ctx, rows); err != nil {
		said, _ := os.ReadFile(filepath.Join(g.dir, "servers.log"))
		return fmt.Errorf("%w\n%s", err, said)
	}
	report.Rows = bench.Results(rows, 0)
	o, records := c.Spec.Order, uint64(g.shards*shardRecords)
	report.Dataset = bench.DatasetInfo{
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
