package crops

import (
	"context"
	"encoding/binary"
	"runtime"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
	"github.com/lsiofs/lsiofs/pipeline/zarr/blosc"
	"github.com/lsiofs/lsiofs/uring"
)

// Dry is a Storage for dry runs: it does with reads what a Storage does, with as much memory, but
// no byte is read, decoded or copied. It has no goroutines: what its workers would do is done by
// calls of Step. Submit and the Hints are for the caller of Step as well.
//
//	reads ──Submit──► Dry ──► below, which counts
//	                   ▲
//	                  Step: a job of a worker
//
// How long stored chunks and their blocks are is in indexes of shards and heads of chunks. Some of
// these are read from the storage that is simulated, each once: the indexes of the first knownShards
// shards that are needed, and the heads of a few chunks of each array. The others are assumed to be
// alike.
type Dry struct {
	*Storage
	begun []begun // jobs that workers have taken, oldest first
	idle  []*worker
	ctx   context.Context
	real  *Storage
	wants uint64

	nothing []byte // memory that stands for all stored bytes, and is not touched
	mapped  [][]byte

	known   int                   // indexes that have been read
	shards  map[level]*shardSizes // by level of an array
	heads   map[*field]*knownHead
	scratch []byte // of the last call of head
}

// knownShards is how many indexes of shards a dry run reads, and knownHeads of how many chunks of an
// array it reads the head, until it has found one with blocks.
const (
	knownShards = 64
	knownHeads  = 8
)

// level is a level of shards of an array.
type level struct {
	field  *field
	number int
}

// shardSizes are sums over the shards of a level whose indexes are known.
type shardSizes struct{ chunks, bytes int64 }

// knownHead is the head of a chunk that has blocks.
type knownHead struct {
	tried int
	head  []byte // blosc.HeaderBytes; nil if none is known
}

// Dry returns a storage of the listed cubes for a dry run. It submits its reads to below, whose
// caller completes them, in any goroutine that does not run Step at the same time, and not within
// Submit. ctx ends the reads of sizes.
func (s *Storage) Dry(ctx context.Context, below storage.Storage) (*Dry, error) {
	d := &Dry{ctx: ctx, real: s, shards: map[level]*shardSizes{}, heads: map[*field]*knownHead{}}
	c := s.config
	c.TrustAbsence, c.room, c.dry = true, nil, d
	d.Storage = Wrap(below, c)
	d.caps = storage.Caps{HeldBytes: s.caps.HeldBytes}
	for range runtime.GOMAXPROCS(0) {
		d.idle = append(d.idle, d.newWorker())
	}
	s.mu.Lock()
	listed := s.cubes
	s.mu.Unlock()
	for path, x := range listed {
		c, err := d.open(x.Grid)
		if err != nil {
			return nil, err
		}
		d.cubes[path] = c
	}
	return d, d.share(d.cubes)
}

// begun is a job that a worker does.
type begun struct {
	w *worker
	j job
}

// Step lets each idle worker take a job and does the one that was taken first. It reports whether
// there was one; if not, all wait for reads below. So there are as many jobs at a time as in a
// Storage: wants that come later are not added to their chunks.
func (d *Dry) Step() bool {
	d.mu.Lock()
	for len(d.idle) > 0 {
		w := d.idle[0]
		j, ok := d.ready(w.group[:0])
		if !ok {
			break
		}
		d.begun, d.idle = append(d.begun, begun{w, j}), d.idle[1:]
	}
	d.mu.Unlock()
	if len(d.begun) == 0 {
		return false
	}
	x := d.begun[0]
	d.begun = d.begun[1:]
	x.w.do(x.j)
	d.idle = append(d.idle, x.w)
	return true
}

// Wants returns how many parts of chunks were wanted so far, on which a dry run's time depends.
func (d *Dry) Wants() uint64 { return d.wants }

func (d *Dry) count(tasks []*task) {
	for _, t := range tasks {
		d.wants += uint64(len(t.wants))
	}
}

// Close frees the memory. All reads must have completed. It does not close the storage below.
func (d *Dry) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	for _, w := range d.idle {
		w.close()
	}
	d.cells.Close()
	for _, m := range d.mapped {
		_ = uring.Unmap(m) // nothing to do about it: only addresses are lost
	}
	d.mapped, d.nothing = nil, nil
	return nil
}

// buffer returns memory for n bytes to read from below.
func (s *Storage) buffer(n int64) []byte {
	d := s.config.dry
	if d == nil {
		return make([]byte, n)
	}
	if n > int64(len(d.nothing)) {
		mem, err := uring.Map(int(max(n, 2*int64(len(d.nothing)))))
		if err != nil {
			return make([]byte, n)
		}
		d.nothing, d.mapped = mem, append(d.mapped, mem)
	}
	return d.nothing[:n:n]
}

// places returns the places in a shard: those of its index, or about what they may be.
func (d *Dry) places(x *storedIndex) []zarr.Place {
	f := x.of.field
	of := level{f, x.of.level}
	sum := d.shards[of]
	if sum == nil {
		sum = new(shardSizes)
		d.shards[of] = sum
	}
	if d.known < knownShards {
		d.known++
		if places, _, err := d.real.indexOf(d.ctx, f, x.listed, x.of.level, x.within); err == nil && places != nil {
			for _, p := range places {
				if !p.Absent() {
					sum.chunks++
					sum.bytes += p.SizeBytes
				}
			}
			return places
		}
	}
	l := f.Array.Levels[x.of.level]
	n, left := l.Entries(), max(x.within.SizeBytes-l.IndexBytes(), 0)
	stored := n
	if sum.bytes > 0 {
		stored = min(max(int64(float64(left)*float64(sum.chunks)/float64(sum.bytes)+0.5), 1), n)
	}
	begin, each := x.within.OffsetBytes, max(left/stored, 1)
	if l.AtStart {
		begin += l.IndexBytes()
	}
	places := make([]zarr.Place, n)
	for i, at := int64(0), int64(0); i < n; i++ {
		if (i+1)*stored/n == i*stored/n { // absent ones are spread evenly
			places[i] = zarr.Place{OffsetBytes: -1}
			continue
		}
		places[i] = zarr.Place{OffsetBytes: begin + at*each, SizeBytes: each}
		at++
	}
	return places
}

// head returns the beginning of a task's chunk, with the starts of its blocks, as it may be: blocks
// are of the size that other chunks have, and all stored in equally many bytes. It is valid until
// the next call.
func (d *Dry) head(t *task) []byte {
	k := d.heads[t.field]
	if k == nil {
		k = new(knownHead)
		d.heads[t.field] = k
	}
	if k.head == nil && k.tried < knownHeads {
		k.tried++
		head := make([]byte, blosc.HeaderBytes)
		if t.place.SizeBytes >= blosc.HeaderBytes && storage.ReadAt(d.ctx, d.real.under, t.listed, head, t.place.OffsetBytes) == nil {
			if h, err := blosc.Parse(head, t.place.SizeBytes, t.field.chunkBytes); err == nil {
				if h.Stored() {
					return head
				}
				k.head = head
			}
		}
	}
	if k.head == nil {
		return nil
	}
	stored := t.place.SizeBytes
	d.scratch = append(d.scratch[:0], k.head...)
	binary.LittleEndian.PutUint32(d.scratch[12:], uint32(stored))
	h, err := blosc.Parse(d.scratch, stored, t.field.chunkBytes)
	if err != nil {
		return nil
	}
	first, blocks := h.StartsBytes(), int64(h.Blocks())
	for b := range blocks {
		d.scratch = binary.LittleEndian.AppendUint32(d.scratch, uint32(first+b*(stored-first)/blocks))
	}
	return d.scratch
}
