package bench

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

	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
)

// growing measures directories in which shards arrive while they are mounted. It is not safe for
// concurrent use.
type growing struct {
	program Program
	config  Config
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
	server  *server
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
	// mostLinks bounds the links to a file, as file systems do.
	mostLinks = 10_000
	// arrivalRate is the number of files that arrive per second.
	arrivalRate = 1000
	// growingPatience bounds each wait.
	growingPatience = 30 * time.Minute
)

func newGrowing(p Program, c Config, dir string) (*growing, error) {
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
			errs = append(errs, d.server.stop())
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
		if err := d.server.stop(); err != nil {
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
	server, err := g.program.mountOn(ctx, point, g.log, append(args, g.config.Flags...))
	if err != nil {
		return err
	}
	d.server = server
	return d.indexed(ctx)
}

// fill makes the shards that exist from the beginning. They are links to a few files, which is
// quick. A link changes its file's ctime, so none are made once the directory is watched.
func (d *grower) fill(shards int) error {
	seed := ""
	for n := range shards {
		if n%mostLinks == 0 {
			seed = filepath.Join(d.growing.dir, fmt.Sprintf("%s-%d.seed", filepath.Base(d.data), n))
			if err := os.WriteFile(seed, d.content, 0o600); err != nil {
				return err
			}
		}
		if err := os.Link(seed, d.nextPath()); err != nil {
			return notMeasured("shards can't be links here: %w", err)
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
	b, err := os.ReadFile(filepath.Join(d.server.point, "status.json"))
	if err != nil {
		return growingStatus{}, err
	}
	var r struct {
		Growing growingStatus `json:"growing"`
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return growingStatus{}, fmt.Errorf("%s/status.json: %w", d.server.point, err)
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
			return fmt.Errorf("%d of %d shards are indexed after %v: %s", s.Shards, d.number, growingPatience, s.Error)
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// next takes the next epoch by looking at its file, and measures how long that takes.
func (d *grower) next(ctx context.Context) (reading, error) {
	s, err := d.status()
	if err != nil {
		return reading{}, err
	}
	epoch := uint64(0)
	if s.Epoch != nil {
		epoch = *s.Epoch + 1
	}
	path := filepath.Join(d.server.point, fmt.Sprintf("epoch-%d", epoch), "worker-0-of-1"+d.stream)
	began := monotonic()
	_, err = os.Stat(path)
	took := monotonic() - began
	return reading{value: took.Seconds()}, errors.Join(err, ctx.Err())
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
	kib, err := strconv.ParseInt(strings.TrimSuffix(fieldOf(fmt.Sprintf("/proc/%d/status", d.server.cmd.Process.Pid), "RssAnon"), " kB"), 10, 64)
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
