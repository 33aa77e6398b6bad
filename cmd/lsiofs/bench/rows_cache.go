package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Rows for a dataset at a web server that is cached on a disk.
const (
	rowCacheLocal = "network-local"
	rowCached     = "network-cached"
	rowSealed     = "network-sealed"
	rowCacheAll   = "network-cached-requests"
	rowCacheHalf  = "network-half-requests"
)

// cacheRows returns the rows for epochs after the first.
func (n *network) cacheRows() []*row {
	l := &rowList{only: n.config.Rows}
	l.add(row{id: rowCacheLocal, name: "mount of the files, second epoch", measure: func(ctx context.Context) (reading, error) {
		return n.laterEpoch(ctx, n.local, 1, cacheFlags())
	}})
	l.add(row{id: rowCached, name: "mount of a web server, second epoch, all in the cache", against: rowCacheLocal, measure: func(ctx context.Context) (reading, error) {
		return n.measureCached(ctx, 2, 1)
	}})
	l.add(row{id: rowCacheAll, name: "requests of the second epoch for each chunk, all in the cache", unit: "requests", measure: func(context.Context) (reading, error) {
		return reading{value: n.repeated}, n.wantCache()
	}})
	// The epoch before it has shown that the objects are complete, and they were checked meanwhile.
	l.add(row{id: rowSealed, name: "mount of a web server, third epoch, all in the cache and checked", against: rowCacheLocal, measure: func(ctx context.Context) (reading, error) {
		return n.measureCached(ctx, 2, 2)
	}})
	l.add(row{id: rowCacheHalf, name: "requests of the second epoch for each chunk, cache of half the dataset", unit: "requests", measure: func(ctx context.Context) (reading, error) {
		_, err := n.measureCached(ctx, 0.5, 1)
		return reading{value: n.repeated}, err
	}})
	return l.rows
}

// cacheChunkBytes is the default size of chunks.
const cacheChunkBytes = 256 << 10

// cacheFlags returns flags with far less memory than the dataset has.
func cacheFlags() []string {
	return append([]string{"--workers", "1", "--memory", "256MiB", "--shuffle-size", "4096"}, chunkFlags(cacheChunkBytes)...)
}

func (n *network) wantCache() error {
	if !n.program.Caches {
		return notMeasured("there is no --cache-dir")
	}
	return nil
}

// measureCached measures an epoch after the first (0), with a cache whose size is a multiple of the
// dataset's.
func (n *network) measureCached(ctx context.Context, size float64, epoch int) (r reading, err error) {
	if err := n.wantCache(); err != nil {
		return r, err
	}
	chunks, streamBytes, err := n.order(ctx, n.once, cacheChunkBytes)
	if err != nil {
		return r, err
	}
	dir := filepath.Join(n.dir, "cache")
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	args := append(cacheFlags(), "--cache-dir", dir, "--cache-size", strconv.FormatInt(int64(size*float64(streamBytes)), 10))
	n.fills = size >= 1
	r, err = n.laterEpoch(ctx, n.address.Dataset(n.once), epoch, args)
	n.fills = false
	n.repeated = float64(r.reads) / float64(chunks)
	return r, err
}

const (
	// fillTime is how long a cache gets after an epoch to store what its disk was too slow for.
	// Data still missing then counts as missing.
	fillTime  = 30 * time.Second
	fillEvery = 50 * time.Millisecond
)

// waitFilled waits until all of a dataset is in a mount's cache, or until fillTime has passed.
func waitFilled(ctx context.Context, v *server) error {
	for end := time.Now().Add(fillTime); ; {
		c, err := v.look(true)
		if err != nil || c.fill == 1 || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(fillEvery):
		}
	}
}

// waitSealed reads an epoch repeatedly until objects in a mount's cache are sealed and for a second
// no more become so. An object is checked when it is read. After a check that came too early, it is
// not checked again for ten seconds, which is longer than some epochs here.
func waitSealed(ctx context.Context, v *server, again func() error) error {
	last, since := 0, time.Now()
	for end := time.Now().Add(fillTime); ; {
		if err := again(); err != nil {
			return err
		}
		c, err := v.look(true)
		switch {
		case err != nil:
			return err
		case c.sealed != last:
			last, since = c.sealed, time.Now()
		case last > 0 && time.Since(since) > time.Second:
			return nil
		case time.Now().After(end):
			return notMeasured("no object of the cache was read like a local file")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(fillEvery):
		}
	}
}

// laterEpoch mounts a dataset, reads the epochs before last to the end, and measures epoch last.
// The reads of the result are its requests. A cache that can hold everything is filled after the
// first epoch, as happens while training evaluates its model.
func (n *network) laterEpoch(ctx context.Context, dataset string, last int, args []string) (r reading, err error) {
	n.points++
	point := filepath.Join(n.dir, fmt.Sprintf("mount-%d", n.points))
	if err := os.Mkdir(point, 0o700); err != nil {
		return r, err
	}
	v, err := n.program.mountOn(ctx, point, n.log, append([]string{dataset, point}, n.flags(args...)...))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, v.stop()) }()
	reader, err := startReader(n.program.Self, nil)
	if err != nil {
		return r, err
	}
	defer reader.kill()
	stop := context.AfterFunc(ctx, func() { _ = reader.cmd.Process.Kill() })
	defer stop()
	var done readDone
	var cpu [2]counts
	for epoch := range last + 1 {
		if epoch > 0 && n.fills {
			if err := waitFilled(ctx, v); err != nil {
				return r, err
			}
			if epoch > 1 {
				again := func() error {
					_, err := reader.do(readJob{Paths: epochPath(point, epoch-1)})
					return err
				}
				if err := waitSealed(ctx, v, again); err != nil {
					return r, err
				}
			}
		}
		if _, err := n.served(); err != nil {
			return r, err
		}
		if cpu[0], err = v.look(true); err != nil {
			return r, err
		}
		if done, err = reader.do(readJob{Paths: epochPath(point, epoch)}); err != nil {
			return r, errors.Join(ctx.Err(), err)
		}
		if cpu[1], err = v.look(false); err != nil {
			return r, err
		}
	}
	served, err := n.served()
	r = joined([]readDone{done}, true)
	r.cpu += cpu[1].cpu - cpu[0].cpu
	r.mallocs, r.reads = -1, uint64(len(served.Ranges))
	return r, err
}

// epochPath returns the path of the file with all of an epoch.
func epochPath(point string, epoch int) []string {
	return []string{filepath.Join(point, fmt.Sprintf("epoch-%d", epoch), "worker-0-of-1.tar")}
}
