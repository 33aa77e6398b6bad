package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/bench/service"
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
func (n *network) rows() []*row {
	l := &rowList{only: n.config.Rows}
	for _, size := range chunkSizes {
		text := fmt.Sprintf("chunks of %d KiB", size.bytes>>10)
		l.add(row{id: rowNetCat + size.name, name: "cat of a web server, " + text, against: rowNetLoop + size.name, measure: func(ctx context.Context) (reading, error) {
			return n.measureCat(ctx, size.bytes, size.settle)
		}})
		l.add(row{id: rowNetLoop + size.name, name: fmt.Sprintf("net/http, the same ranges, %d at a time, %s", connections, text), noRecords: true, measure: n.measureLoop})
		l.add(row{id: rowNetPiped + size.name, name: "the same loop, which writes them to a pipe with a reader, " + text, noRecords: true, against: rowNetLoop + size.name, measure: n.measurePiped})
		l.add(row{id: rowNetCPU + size.name, name: "processor time of cat above that of net/http, " + text, unit: "s/GiB", measure: func(context.Context) (reading, error) {
			return reading{value: n.above}, n.wantCat()
		}})
	}
	l.add(row{id: rowNetMemory, name: "memory of cat above --memory, at most", unit: "MiB", measure: func(context.Context) (reading, error) {
		return reading{value: float64(n.mostAnon) / (1 << 20)}, n.wantCat()
	}})
	l.add(row{id: rowNetRequests, name: "requests of an epoch for each chunk", unit: "requests", measure: n.measureRequests})
	l.add(row{id: rowNetBytes, name: "bytes that an epoch asks for, for each of its records' bytes", unit: "bytes", measure: func(context.Context) (reading, error) {
		return reading{value: n.asked}, nil
	}})
	l.add(row{id: rowNetPass, name: "index of a web server's shards", noRecords: true, against: rowNetStreams, measure: n.measurePass})
	l.add(row{id: rowNetPassGets, name: "requests of the index for each shard, with the two that tell the format", unit: "requests", measure: func(context.Context) (reading, error) {
		return reading{value: float64(len(n.passed.Ranges)) / float64(n.passShards())}, nil
	}})
	l.add(row{id: rowNetStreams, name: fmt.Sprintf("net/http, the same shards, %d at a time", passStreams), noRecords: true, measure: n.measureStreams})
	l.add(row{id: rowNetProgram, name: "size of the program, without symbols", unit: "MB", measure: func(context.Context) (reading, error) {
		bytes, err := programBytes(n.program.Lsiofs)
		return reading{value: float64(bytes) / 1e6}, err
	}})
	l.rows = append(l.rows, n.cacheRows()...)
	return l.rows
}

func (n *network) measureCat(ctx context.Context, chunkBytes int64, settle time.Duration) (reading, error) {
	// So that memory's first touch, which is slow in a virtual machine, is not measured.
	if err := touchMemory(ctx, n.config.Spec.MemoryBytes+leastMemory); err != nil {
		return reading{}, err
	}
	n.last = catRun{}
	run, err := n.cat(ctx, append([]string{n.address.Dataset(n.address.Objects)}, chunkFlags(chunkBytes)...), catPart{settle: settle, slot: n.slot})
	if err != nil {
		return reading{}, err
	}
	n.last = run
	n.mostAnon = max(n.mostAnon, run.anon-n.config.Spec.MemoryBytes)
	return run.reading, nil
}

// wantCat returns an error that wraps errNotMeasured if the last cat could not be measured.
func (n *network) wantCat() error {
	if len(n.last.ranges) == 0 {
		return notMeasured("that of cat was not")
	}
	return nil
}

// measureLoop makes the bare client request what the last cat did.
func (n *network) measureLoop(ctx context.Context) (reading, error) {
	if err := n.wantCat(); err != nil {
		return reading{}, err
	}
	if _, err := n.bare(ctx, n.last.ranges, connections, n.slot/4); err != nil { // allocates its memory
		return reading{}, err
	}
	r, err := n.bare(ctx, n.last.ranges, connections, n.slot)
	n.above = perGiB(n.last.reading) - perGiB(r)
	return r, err
}

// measurePiped is like measureLoop, but the bytes are passed on in the order of their arrival: no
// cat can be faster.
func (n *network) measurePiped(ctx context.Context) (reading, error) {
	if err := n.wantCat(); err != nil {
		return reading{}, err
	}
	return n.piped(ctx, n.last.ranges, connections, n.slot)
}

// perGiB returns the processor time per GiB, in seconds.
func perGiB(r reading) float64 { return r.cpu.Seconds() / gib(max(r.bytes, 1)) }

// measureRequests reads a whole epoch, with each file once.
func (n *network) measureRequests(ctx context.Context) (reading, error) {
	const chunkBytes = 256 << 10
	chunks, streamBytes, err := n.order(ctx, n.once, chunkBytes)
	if err != nil {
		return reading{}, err
	}
	run, err := n.cat(ctx, append([]string{n.address.Dataset(n.once)}, chunkFlags(chunkBytes)...), catPart{})
	if err != nil {
		return reading{}, err
	}
	if run.bytes < streamBytes { // it also writes the tail of an archive
		return reading{}, fmt.Errorf("lsiofs cat has written %d bytes of %d", run.bytes, streamBytes)
	}
	asked := int64(0)
	for _, r := range run.ranges {
		asked += max(r.SizeBytes, 0)
	}
	n.asked = float64(asked) / float64(streamBytes)
	return reading{value: float64(len(run.ranges)) / float64(chunks)}, nil
}

// withoutCache is for datasets opened in this process, which must not use the user's own cache.
func withoutCache(s spec.Spec) spec.Spec {
	s.Cache = spec.Cache{Off: true, Fill: spec.FillOff}
	return s
}

// order returns the number of chunks and of stream bytes in a dataset of the first objects.
func (n *network) order(ctx context.Context, objects int, chunkBytes int64) (chunks int, streamBytes int64, err error) {
	s := n.config.Spec
	s.Dataset, s.IndexDir = n.address.Dataset(objects), filepath.Join(n.dir, "index")
	s = withoutCache(s)
	s.Order.ChunkBytes, s.Order.ChunkRecords = uint64(chunkBytes), 1<<20
	d, err := n.program.Open(ctx, s)
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
func (n *network) measurePass(ctx context.Context) (r reading, err error) {
	dir := filepath.Join(n.dir, "pass")
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if _, err := n.served(); err != nil {
		return r, err
	}
	var said struct {
		StreamBytes int64 `json:"stream_bytes"`
	}
	elapsed, err := n.decoded(ctx, &said, append([]string{"index", n.address.Dataset(n.passShards())}, n.flags("--index-dir", dir)...)...)
	if err != nil {
		return r, err
	}
	n.passed, err = n.served()
	return reading{bytes: said.StreamBytes, elapsed: elapsed, mallocs: -1}, err
}

// measureStreams makes the bare client read the same shards from start to end.
func (n *network) measureStreams(ctx context.Context) (reading, error) {
	shards := make([]service.Range, n.passShards())
	for i := range shards {
		shards[i] = service.Range{Object: i, SizeBytes: -1}
	}
	return n.bare(ctx, shards, passStreams, 0)
}
