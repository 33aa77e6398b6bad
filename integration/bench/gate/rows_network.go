package gate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/bench"
	"github.com/lsiofs/lsiofs/integration/bench/service"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Rows for a dataset at a web server.
const (
	rowNetCat      = "network-cat-"   // followed by the name of the chunk size
	rowNetLoop     = "network-loop-"  // followed by the name of the chunk size
	rowNetPiped    = "network-piped-" // followed by the name of the chunk size
	rowNetCPU      = "network-cpu-"   // followed by the name of the chunk size
	rowNetMemory   = "network-memory"
	rowNetRequests = "network-requests"
	rowNetBytes    = "network-bytes"
	rowNetPass     = "network-pass"
	rowNetStreams  = "network-streams"
	rowNetPassGets = "network-pass-requests"
	rowNetProgram  = "network-program"
)

// chunkSizes are the chunk sizes that are measured. The longer the requests, the sooner the maximum
// number of them is in flight.
var chunkSizes = []struct {
	name   string
	bytes  int64
	settle time.Duration
}{
	{"256k", 256 << 10, 9 * time.Second},
	{"1m", 1 << 20, 4 * time.Second},
	{"8m", 8 << 20, 2 * time.Second},
}

// rows returns the rows for a dataset at a web server.
func (n *network) rows() []*bench.Measurement {
	l := &bench.Measurements{Only: n.Config.Rows}
	for _, size := range chunkSizes {
		text := fmt.Sprintf("chunks of %d KiB", size.bytes>>10)
		l.Add(bench.Measurement{ID: rowNetCat + size.name, Name: "cat of a web server, " + text, Against: rowNetLoop + size.name, Measure: func(ctx context.Context) (bench.Reading, error) {
			return n.measureCat(ctx, size.bytes, size.settle)
		}})
		l.Add(bench.Measurement{ID: rowNetLoop + size.name, Name: fmt.Sprintf("net/http, the same ranges, %d at a time, %s", connections, text), NoRecords: true, Measure: n.measureLoop})
		l.Add(bench.Measurement{ID: rowNetPiped + size.name, Name: "the same loop, which writes them to a pipe with a reader, " + text, NoRecords: true, Against: rowNetLoop + size.name, Measure: n.measurePiped})
		l.Add(bench.Measurement{ID: rowNetCPU + size.name, Name: "processor time of cat above that of net/http, " + text, Unit: "s/GiB", Measure: func(context.Context) (bench.Reading, error) {
			return bench.Reading{Value: n.above}, n.wantCat()
		}})
	}
	l.Add(bench.Measurement{ID: rowNetMemory, Name: "memory of cat above --memory, at most", Unit: "MiB", Measure: func(context.Context) (bench.Reading, error) {
		return bench.Reading{Value: float64(n.mostAnon) / (1 << 20)}, n.wantCat()
	}})
	l.Add(bench.Measurement{ID: rowNetRequests, Name: "requests of an epoch per chunk", Unit: "requests", Measure: n.measureRequests})
	l.Add(bench.Measurement{ID: rowNetBytes, Name: "bytes requested in an epoch, per byte of its records", Unit: "bytes", Measure: func(context.Context) (bench.Reading, error) {
		return bench.Reading{Value: n.asked}, nil
	}})
	l.Add(bench.Measurement{ID: rowNetPass, Name: "index of a web server's shards", NoRecords: true, Against: rowNetStreams, Measure: n.measurePass})
	l.Add(bench.Measurement{ID: rowNetPassGets, Name: "requests of the index per shard, including the two that detect the format", Unit: "requests", Measure: func(context.Context) (bench.Reading, error) {
		return bench.Reading{Value: float64(len(n.passed.Ranges)) / float64(n.passShards())}, nil
	}})
	l.Add(bench.Measurement{ID: rowNetStreams, Name: fmt.Sprintf("net/http, the same shards, %d at a time", passStreams), NoRecords: true, Measure: n.measureStreams})
	l.Add(bench.Measurement{ID: rowNetProgram, Name: "size of the program, without symbols", Unit: "MB", Measure: func(context.Context) (bench.Reading, error) {
		bytes, err := programBytes(n.Program.Lsiofs)
		return bench.Reading{Value: float64(bytes) / 1e6}, err
	}})
	l.Rows = append(l.Rows, n.cacheRows()...)
	return l.Rows
}

func (n *network) measureCat(ctx context.Context, chunkBytes int64, settle time.Duration) (bench.Reading, error) {
	// So that memory's first touch, which is slow in a virtual machine, is not measured.
	if err := bench.TouchMemory(ctx, n.Config.Spec.MemoryBytes+bench.LeastMemory); err != nil {
		return bench.Reading{}, err
	}
	n.last = networkCat{}
	run, err := n.cat(ctx, append([]string{n.address.Dataset(n.address.Objects)}, chunkFlags(chunkBytes)...), bench.CatPart{Settle: settle, Slot: n.Slot})
	if err != nil {
		return bench.Reading{}, err
	}
	n.last = run
	n.mostAnon = max(n.mostAnon, run.Anon-n.Config.Spec.MemoryBytes)
	return run.Reading, nil
}

// wantCat returns an error that wraps bench.ErrNotMeasured if the last cat could not be measured.
func (n *network) wantCat() error {
	if len(n.last.ranges) == 0 {
		return bench.NotMeasured("cat was not measured")
	}
	return nil
}

// measureLoop makes the bare client request what the last cat did.
func (n *network) measureLoop(ctx context.Context) (bench.Reading, error) {
	if err := n.wantCat(); err != nil {
		return bench.Reading{}, err
	}
	if _, err := n.bare(ctx, n.last.ranges, connections, n.Slot/4); err != nil { // allocates its memory
		return bench.Reading{}, err
	}
	r, err := n.bare(ctx, n.last.ranges, connections, n.Slot)
	n.above = perGiB(n.last.Reading) - perGiB(r)
	return r, err
}

// measurePiped is like measureLoop, but the bytes are passed on in the order of their arrival: no
// cat can be faster.
func (n *network) measurePiped(ctx context.Context) (bench.Reading, error) {
	if err := n.wantCat(); err != nil {
		return bench.Reading{}, err
	}
	return n.piped(ctx, n.last.ranges, connections, n.Slot)
}

// perGiB returns the processor time per GiB, in seconds.
func perGiB(r bench.Reading) float64 { return r.CPU.Seconds() / bench.GiB(max(r.Bytes, 1)) }

// measureRequests reads a whole epoch, with each file once.
func (n *network) measureRequests(ctx context.Context) (bench.Reading, error) {
	const chunkBytes = 256 << 10
	chunks, streamBytes, err := n.order(ctx, n.once, chunkBytes)
	if err != nil {
		return bench.Reading{}, err
	}
	run, err := n.cat(ctx, append([]string{n.address.Dataset(n.once)}, chunkFlags(chunkBytes)...), bench.CatPart{})
	if err != nil {
		return bench.Reading{}, err
	}
	if run.Bytes < streamBytes { // it also writes the tail of an archive
		return bench.Reading{}, fmt.Errorf("lsiofs cat wrote only %d of %d bytes", run.Bytes, streamBytes)
	}
	asked := int64(0)
	for _, r := range run.ranges {
		asked += max(r.SizeBytes, 0)
	}
	n.asked = float64(asked) / float64(streamBytes)
	return bench.Reading{Value: float64(len(run.ranges)) / float64(chunks)}, nil
}

// withoutCache is for datasets opened in this process, which must not use the user's own cache.
func withoutCache(s spec.Spec) spec.Spec {
	s.Cache = spec.Cache{Off: true, Fill: spec.FillOff}
	return s
}

// order returns the number of chunks and of stream bytes in a dataset of the first objects.
func (n *network) order(ctx context.Context, objects int, chunkBytes int64) (chunks int, streamBytes int64, err error) {
	s := n.Config.Spec
	s.Dataset, s.IndexDir = n.address.Dataset(objects), filepath.Join(n.Dir, "index")
	s = withoutCache(s)
	s.Order.ChunkBytes, s.Order.ChunkRecords = uint64(chunkBytes), 1<<20
	d, err := n.Program.Open(ctx, s)
	if err != nil {
		return 0, 0, err
	}
	chunks, streamBytes = d.Chunks(), d.StreamBytes()
	return chunks, streamBytes, d.Close()
}

const (
	// passStreams is the number of shards indexed at a time.
	passStreams = 32
	passCopies  = 8
)

// passShards returns the number of shards to index, enough for some seconds.
func (n *network) passShards() int { return n.once * passCopies }

// measurePass indexes shards for which no index is stored.
func (n *network) measurePass(ctx context.Context) (r bench.Reading, err error) {
	dir := filepath.Join(n.Dir, "pass")
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if _, err := n.served(); err != nil {
		return r, err
	}
	var said struct {
		StreamBytes int64 `json:"stream_bytes"`
	}
	elapsed, err := n.decoded(ctx, &said, append([]string{"index", n.address.Dataset(n.passShards())}, n.Flags("--index-dir", dir)...)...)
	if err != nil {
		return r, err
	}
	n.passed, err = n.served()
	return bench.Reading{Bytes: said.StreamBytes, Elapsed: elapsed, Mallocs: -1}, err
}

// measureStreams makes the bare client read the same shards from start to end.
func (n *network) measureStreams(ctx context.Context) (bench.Reading, error) {
	shards := make([]service.Range, n.passShards())
	for i := range shards {
		shards[i] = service.Range{Object: i, SizeBytes: -1}
	}
	return n.bare(ctx, shards, passStreams, 0)
}

// Rows for a dataset at a web server that is cached on a disk.
const (
	rowCacheLocal = "network-local"
	rowCached     = "network-cached"
	rowSealed     = "network-sealed"
	rowCacheAll   = "network-cached-requests"
	rowCacheHalf  = "network-half-requests"
)

// cacheRows returns the rows for epochs after the first.
func (n *network) cacheRows() []*bench.Measurement {
	l := &bench.Measurements{Only: n.Config.Rows}
	l.Add(bench.Measurement{ID: rowCacheLocal, Name: "mount of the files, second epoch", Measure: func(ctx context.Context) (bench.Reading, error) {
		return n.laterEpoch(ctx, n.local, 1, cacheFlags())
	}})
	l.Add(bench.Measurement{ID: rowCached, Name: "mount of a web server, second epoch, all in the cache", Against: rowCacheLocal, Measure: func(ctx context.Context) (bench.Reading, error) {
		return n.measureCached(ctx, 2, 1)
	}})
	l.Add(bench.Measurement{ID: rowCacheAll, Name: "requests of the second epoch per chunk, all in the cache", Unit: "requests", Measure: func(context.Context) (bench.Reading, error) {
		return bench.Reading{Value: n.repeated}, n.wantCache()
	}})
	// The epoch before it has shown that the objects are complete, and they were checked meanwhile.
	l.Add(bench.Measurement{ID: rowSealed, Name: "mount of a web server, third epoch, all in the cache and checked", Against: rowCacheLocal, Measure: func(ctx context.Context) (bench.Reading, error) {
		return n.measureCached(ctx, 2, 2)
	}})
	l.Add(bench.Measurement{ID: rowCacheHalf, Name: "requests of the second epoch per chunk, cache of half the dataset", Unit: "requests", Measure: func(ctx context.Context) (bench.Reading, error) {
		_, err := n.measureCached(ctx, 0.5, 1)
		return bench.Reading{Value: n.repeated}, err
	}})
	return l.Rows
}

// cacheChunkBytes is the default size of chunks.
const cacheChunkBytes = 256 << 10

// cacheFlags returns flags with far less memory than the dataset has.
func cacheFlags() []string {
	return append([]string{"--workers", "1", "--memory", "256MiB", "--shuffle-size", "4096"}, chunkFlags(cacheChunkBytes)...)
}

func (n *network) wantCache() error {
	if !n.Program.Caches {
		return bench.NotMeasured("there is no --cache-dir")
	}
	return nil
}

// measureCached measures an epoch after the first (0), with a cache whose size is a multiple of the
// dataset's.
func (n *network) measureCached(ctx context.Context, size float64, epoch int) (r bench.Reading, err error) {
	if err := n.wantCache(); err != nil {
		return r, err
	}
	chunks, streamBytes, err := n.order(ctx, n.once, cacheChunkBytes)
	if err != nil {
		return r, err
	}
	dir := filepath.Join(n.Dir, "cache")
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	args := append(cacheFlags(), "--cache-dir", dir, "--cache-size", strconv.FormatInt(int64(size*float64(streamBytes)), 10))
	n.fills = size >= 1
	r, err = n.laterEpoch(ctx, n.address.Dataset(n.once), epoch, args)
	n.fills = false
	n.repeated = float64(r.Reads) / float64(chunks)
	return r, err
}

const (
	// fillTime is how long a cache gets after an epoch to store what its disk was too slow for.
	// Data still missing then counts as missing.
	fillTime  = 30 * time.Second
	fillEvery = 50 * time.Millisecond
)

// waitFilled waits until all of a dataset is in a mount's cache, or until fillTime has passed.
func waitFilled(ctx context.Context, v *bench.Server) error {
	for end := time.Now().Add(fillTime); ; {
		c, err := v.Look(true)
		if err != nil || c.Fill == 1 || time.Now().After(end) {
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
func waitSealed(ctx context.Context, v *bench.Server, again func() error) error {
	last, since := 0, time.Now()
	for end := time.Now().Add(fillTime); ; {
		if err := again(); err != nil {
			return err
		}
		c, err := v.Look(true)
		switch {
		case err != nil:
			return err
		case c.Sealed != last:
			last, since = c.Sealed, time.Now()
		case last > 0 && time.Since(since) > time.Second:
			return nil
		case time.Now().After(end):
			return bench.NotMeasured("no object of the cache was read like a local file")
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
func (n *network) laterEpoch(ctx context.Context, dataset string, last int, args []string) (r bench.Reading, err error) {
	n.points++
	point := filepath.Join(n.Dir, fmt.Sprintf("mount-%d", n.points))
	if err := os.Mkdir(point, 0o700); err != nil {
		return r, err
	}
	v, err := n.Program.MountOn(ctx, point, n.Log, append([]string{dataset, point}, n.Flags(args...)...))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, v.Stop()) }()
	reader, err := bench.StartReader(n.Program.Self, nil)
	if err != nil {
		return r, err
	}
	defer reader.Kill()
	stop := context.AfterFunc(ctx, func() { _ = reader.Cmd.Process.Kill() })
	defer stop()
	var done bench.ReadDone
	var cpu [2]bench.Counts
	for epoch := range last + 1 {
		if epoch > 0 && n.fills {
			if err := waitFilled(ctx, v); err != nil {
				return r, err
			}
			if epoch > 1 {
				again := func() error {
					_, err := reader.Do(bench.ReadJob{Paths: epochPath(point, epoch-1)})
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
		if cpu[0], err = v.Look(true); err != nil {
			return r, err
		}
		if done, err = reader.Do(bench.ReadJob{Paths: epochPath(point, epoch)}); err != nil {
			return r, errors.Join(ctx.Err(), err)
		}
		if cpu[1], err = v.Look(false); err != nil {
			return r, err
		}
	}
	served, err := n.served()
	r = bench.Joined([]bench.ReadDone{done}, true)
	r.CPU += cpu[1].CPU - cpu[0].CPU
	r.Mallocs, r.Reads = -1, uint64(len(served.Ranges))
	return r, err
}

// epochPath returns the path of the file with all of an epoch.
func epochPath(point string, epoch int) []string {
	return []string{filepath.Join(point, fmt.Sprintf("epoch-%d", epoch), "worker-0-of-1.tar")}
}
