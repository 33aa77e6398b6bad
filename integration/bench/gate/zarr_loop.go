package gate

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/bench"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
	"github.com/lsiofs/lsiofs/pipeline/zarr/codec"
)

// zarrLoop makes crops of an array of MakeZarr in a plain loop, as any program could with the
// decoders and copies that a mount uses: one crop at a time on each core, without keeping anything.
type zarrLoop struct {
	array *zarr.Array
	cut   *zarr.Cut
	order []int // of the crops
	files []*os.File
	// places are the positions of each object's chunks.
	places [][]zarr.Place
	rounds uint64 // passes through the order, each with other origins
}

// openZarrLoop reads the array's metadata and the indexes of its shards.
func openZarrLoop(dir string, z spec.Zarr) (l *zarrLoop, err error) {
	doc, err := os.ReadFile(filepath.Join(dir, "zarr.json"))
	if err != nil {
		return nil, err
	}
	l = &zarrLoop{}
	if l.array, err = zarr.ParseV3("zarr.json", doc); err != nil {
		return nil, err
	}
	if l.cut, err = zarr.NewCut(z, nil, []zarr.CutField{{Array: l.array}}); err != nil {
		return nil, err
	}
	l.order = rand.New(rand.NewPCG(1, 2)).Perm(int(l.cut.Total()))
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	objects := l.array.Objects()
	place := make([]int64, len(l.array.Shape))
	for n := range objects.Total() {
		objects.Place(place, n)
		f, err := os.Open(filepath.Join(dir, string(l.array.Keys.Append(nil, place))))
		if err != nil {
			return nil, err
		}
		l.files = append(l.files, f)
		places, err := l.index(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		l.places = append(l.places, places)
	}
	return l, nil
}

// index reads the positions of an object's chunks.
func (l *zarrLoop) index(f *os.File) ([]zarr.Place, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if len(l.array.Levels) == 0 {
		return []zarr.Place{{SizeBytes: st.Size()}}, nil
	}
	level := l.array.Levels[0]
	at, err := level.IndexOffset(st.Size())
	if err != nil {
		return nil, err
	}
	b := make([]byte, level.IndexBytes())
	if _, err := f.ReadAt(b, at); err != nil {
		return nil, err
	}
	places := make([]zarr.Place, level.Entries())
	return places, level.ParseIndex(places, b, st.Size(), l.array.Chain.Sizes(l.array.ChunkBytes())[0])
}

func (l *zarrLoop) close() {
	for _, f := range l.files {
		_ = f.Close() // it was only read
	}
}

// run makes crops on all cores until the slot ends, at least one per core.
func (l *zarrLoop) run(ctx context.Context, slot time.Duration) (bench.Reading, error) {
	return l.onAllCores(ctx, slot, func(next func() (uint64, uint64)) (work func() (int64, error), end func()) {
		c := l.newCropper()
		return func() (int64, error) {
			number, round := next()
			return int64(len(c.record)), c.cropOf(uint64(l.order[number]), round)
		}, c.decoder.Close
	})
}

// runPreads reads stored chunks at random places, one at a time on each core.
func (l *zarrLoop) runPreads(ctx context.Context, slot time.Duration) (bench.Reading, error) {
	return l.onAllCores(ctx, slot, func(next func() (uint64, uint64)) (work func() (int64, error), end func()) {
		n, _ := next()
		dice := rand.New(rand.NewPCG(n, 3))
		var stored []byte
		return func() (int64, error) {
			total := int64(0)
			for range 256 {
				o := dice.IntN(len(l.files))
				p := l.places[o][dice.IntN(len(l.places[o]))]
				if p.Absent() {
					continue
				}
				if int64(cap(stored)) < p.SizeBytes {
					stored = make([]byte, p.SizeBytes)
				}
				if n, err := unix.Pread(int(l.files[o].Fd()), stored[:p.SizeBytes], p.OffsetBytes); err != nil || int64(n) < p.SizeBytes {
					return total, fmt.Errorf("%s: %d of %d bytes at %d: %w", l.files[o].Name(), n, p.SizeBytes, p.OffsetBytes, err)
				}
				total += p.SizeBytes
			}
			return total, nil
		}, func() {}
	})
}

// onAllCores runs work on each core until the slot ends. next returns a number of the order and its
// pass.
func (l *zarrLoop) onAllCores(ctx context.Context, slot time.Duration, begin func(next func() (number, round uint64)) (work func() (int64, error), end func())) (bench.Reading, error) {
	var counter atomic.Uint64
	l.rounds++
	next := func() (uint64, uint64) {
		n := counter.Add(1) - 1
		return n % uint64(len(l.order)), l.rounds<<16 + n/uint64(len(l.order))
	}
	var bytes atomic.Int64
	errs := make([]error, runtime.GOMAXPROCS(0))
	cpu, began := bench.OwnCPU(), bench.Monotonic()
	var workers sync.WaitGroup
	for core := range errs {
		workers.Go(func() {
			work, end := begin(next)
			defer end()
			for first := true; (first || bench.Monotonic()-began < slot) && ctx.Err() == nil && errs[core] == nil; first = false {
				var n int64
				n, errs[core] = work()
				bytes.Add(n)
			}
		})
	}
	workers.Wait()
	r := bench.Reading{Bytes: bytes.Load(), Elapsed: bench.Monotonic() - began, CPU: bench.OwnCPU() - cpu, Mallocs: -1}
	return r, errors.Join(append(errs, ctx.Err())...)
}

// zarrCropper makes crops on one core.
type zarrCropper struct {
	*zarrLoop
	decoder *codec.Decoder
	spot    *zarr.Spot
	crop    *zarr.Crop
	object  []int64
	record  []byte
	chunk   []byte
	stored  []byte
}

func (l *zarrLoop) newCropper() *zarrCropper {
	return &zarrCropper{
		zarrLoop: l, decoder: codec.NewDecoder(), spot: l.cut.NewSpot(), crop: l.cut.NewCrop(0), object: make([]int64, len(l.array.Shape)),
		record: make([]byte, l.cut.Row().Bytes), chunk: make([]byte, l.array.ChunkBytes()),
	}
}

// cropOf makes a crop of an epoch, in c.record.
func (c *zarrCropper) cropOf(ordinal, epoch uint64) error {
	j := zarr.NewJitter(0, epoch, "loop")
	moved := &j
	if !c.cut.Jitters() {
		moved = nil
	}
	c.cut.Locate(c.spot, ordinal, moved)
	c.cut.Place(0, c.crop, c.spot)
	return c.crop.Parts(c.array.Shape, c.array.Chunk, c.part)
}

func (c *zarrCropper) part(p *zarr.Part) error {
	c.array.ObjectOf(c.object, p.Chunk)
	n, entry := c.array.Objects().Number(c.object), int64(0)
	if len(c.array.Levels) > 0 {
		entry = c.array.EntryOf(0, p.Chunk)
	}
	at := c.places[n][entry]
	if int64(cap(c.stored)) < at.SizeBytes {
		c.stored = make([]byte, 2*at.SizeBytes)
	}
	stored := c.stored[:at.SizeBytes]
	if got, err := unix.Pread(int(c.files[n].Fd()), stored, at.OffsetBytes); err != nil || got < len(stored) {
		return fmt.Errorf("%s: %d of %d bytes at %d: %w", c.files[n].Name(), got, len(stored), at.OffsetBytes, err)
	}
	chunk := stored
	if !c.array.Chain.Raw() {
		if chunk = c.chunk; c.decoder.Decode(chunk, stored, c.array.Chain) != nil {
			return fmt.Errorf("%s: the chunk at %d does not decode", c.files[n].Name(), at.OffsetBytes)
		}
	}
	c.cut.Copier(0).Copy(zarr.Window{Bytes: c.record}, zarr.Window{Bytes: chunk}, p)
	return nil
}
