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

	"github.com/lsiofs/lsiofs/pipeline/unpack/synthetic"
)

// growing is the measuring of a directory that shards arrive in while it is mounted. It is
// not for concurrent use.
type growing struct {
	program Program
	config  Config
	dir     string   // of data, indexes, runs and mount points
	log     *os.File // of servers
	slot    time.Duration
	shards  int // of the directory with single games
	points  int

	games, tars *grower // nil until they are mounted
}

// grower is one such directory, mounted.
type grower struct {
	growing *growing
	server  *server
	data    string // where its shards lie
	flags   []string
	content []byte // of each shard
	number  int    // shards that there are

	extension, stream string // of shards, of streams
}

const (
	// manyGames are the games of which epochs are made, fewGames where there is little time.
	manyGames = 500_000
	fewGames  = 20_000
	// fewTime is up to which time for all rows there are few games.
	fewTime = 30 * time.Second
	// growingTars are the shards of the directory with tars.
	growingTars = 100
	// shardRecords are in each shard: what is measured is how many shards there are.
	shardRecords = 2
	// mostLinks of a file are made: file systems have bounds.
	mostLinks = 10_000
	// arrivalRate is how many files arrive in a second.
	arrivalRate = 1000
	// growingPatience is how long is waited for what has to happen.
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
		return err // something may be mounted there still
	}
	return os.RemoveAll(g.dir)
}

// mounted makes a directory with so many shards and mounts it. It returns when all of them
// are indexed.
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

// mount mounts the directory, anew where it is mounted already.
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

// fill makes the shards that are there from the begin: links to a few files, which is quick.
// A link changes its file's time, so none are made once files are looked at.
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

// arrive has one more shard arrive, as a writer renames it.
func (d *grower) arrive() error {
	unfinished := filepath.Join(d.data, ".writing")
	if err := os.WriteFile(unfinished, d.content, 0o600); err != nil {
		return err
	}
	return os.Rename(unfinished, d.nextPath())
}

// nextPath is that of one more shard, newer by its name than all others.
func (d *grower) nextPath() string {
	d.number++
	return filepath.Join(d.data, fmt.Sprintf("training.%d%s", d.number, d.extension))
}

// growingStatus is what status.json says.
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

// indexed waits until all that has arrived is indexed.
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

// next takes the next epoch, by a look at its file, and measures how long that takes.
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

// streamExtension is that of streams of records of a shape.
func streamExtension(s synthetic.Shape) string {
	if s.Format == "lc0" {
		return ".bin"
	}
	return "." + s.Format
}

// anonBytes is how much memory of its own the server has now.
func (d *grower) anonBytes() (int64, error) {
	kib, err := strconv.ParseInt(strings.TrimSuffix(fieldOf(fmt.Sprintf("/proc/%d/status", d.server.cmd.Process.Pid), "RssAnon"), " kB"), 10, 64)
	return kib << 10, err
}

// sleep waits for a while, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
