package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

// arrays measures crops of Zarr arrays. It has the arrays, servers, readers and loops. It is not
// safe for concurrent use.
type arrays struct {
	*session
	data string // the arrays' directory

	mounts map[string]*server
	loops  map[string]*zarrLoop

	steps    [2]float64 // processor time in seconds of a crop of long chunks: in the loop, in the mount
	mostAnon int64      // the most memory of a server above its --memory so far
	again    float64    // duration in seconds of the second mount of many objects
}

// satellite are the codecs of the arrays that image crops are cut from, by the name used in rows.
var satellite = map[string]encode.Codec{"none": encode.None, "lz4": encode.BloscLZ4, "zstd": encode.BloscZstd}

// satelliteBytes is the size of their crops of 24 × 128 × 128 16-bit numbers.
const satelliteBytes = 24 * 128 * 128 * 2

// Names of the other datasets.
const (
	smallChunks = "small" // of 4 KiB
	longChunks  = "long"  // of 1008 steps, 16.5 MB
	manyObjects = "many"  // 10⁴ of them
	fixedOnes   = "fixed" // fixed records of the size of crops
)

const fixedRecords = 512

// zarrArrays returns all arrays.
func zarrArrays(dir string) map[string]MakeZarr {
	all := map[string]MakeZarr{
		smallChunks: {Shape: []int64{64, 512, 512}, Object: []int64{64, 256, 256}, Chunk: []int64{4, 16, 32}, Codec: encode.None, DataType: "int16"},
		longChunks:  {Shape: []int64{1008, 256, 256}, Object: []int64{1008, 128, 128}, Chunk: []int64{1008, 64, 64}, Codec: encode.BloscZstd, BlockBytes: 128 << 10, DataType: "float32"},
		manyObjects: {Shape: []int64{100, 80, 80}, Object: []int64{1, 8, 8}, Chunk: []int64{1, 8, 8}, Codec: encode.None, DataType: "int16"},
	}
	for name, codec := range satellite {
		all[name] = MakeZarr{Shape: ZarrShape, Object: ZarrObject, Chunk: ZarrChunk, Codec: codec, DataType: "int16"}
	}
	for name, m := range all {
		m.Dir = filepath.Join(dir, name)
		all[name] = m
	}
	return all
}

// cropFlags returns the flags for crops of an array, and the same settings as spec.Zarr for a loop.
func cropFlags(name string) (flags []string, z spec.Zarr) {
	crop, stride, jitter := "time=24,y=128,x=128", "time=12,y=64,x=64", true
	switch name {
	case smallChunks:
		stride, jitter = "time=4,y=16,x=32", false // whole chunks
	case longChunks:
		crop, stride = "time=24,y=64,x=64", "time=24,y=32,x=32"
	case manyObjects:
		crop, stride, jitter = "time=4,y=16,x=16", "time=4,y=16,x=16", false
	}
	flags = []string{"--format", "zarr", "--crop", crop, "--stride", stride}
	z = spec.Zarr{Jitter: jitter}
	z.Crop, _ = spec.ParseDims(crop)     // it is valid
	z.Stride, _ = spec.ParseDims(stride) // it is valid
	if jitter {
		flags = append(flags, "--jitter")
	}
	return flags, z
}

func newArrays(ctx context.Context, p Program, c Config, data string) (*arrays, error) {
	dir, err := os.MkdirTemp("", "lsiofs-bench-")
	if err != nil {
		return nil, err
	}
	s := &session{program: p, config: c, dir: dir, scope: &scope{whole: true}}
	a := &arrays{session: s, data: data, mounts: map[string]*server{}, loops: map[string]*zarrLoop{}}
	if s.log, err = os.Create(filepath.Join(dir, "servers.log")); err == nil {
		err = a.start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	return a, nil
}

func (a *arrays) start(ctx context.Context) error {
	for range 2 {
		r, err := startReader(a.program.Self, nil)
		if err != nil {
			return err
		}
		a.readers = append(a.readers, r)
	}
	for name, m := range zarrArrays(a.data) {
		if err := a.make(ctx, name, func() error { _, err := m.Run(ctx); return err }); err != nil {
			return err
		}
	}
	path := filepath.Join(a.data, fixedOnes)
	return a.make(ctx, fixedOnes, func() error {
		_, err := Make{Dir: path, Shape: synthetic.Shape{Format: "fixed", RecordBytes: satelliteBytes}, Records: fixedRecords}.Run(ctx)
		return err
	})
}

// make makes a dataset unless it exists.
func (a *arrays) make(ctx context.Context, name string, make func() error) error {
	if _, err := os.Stat(filepath.Join(a.data, name)); err == nil {
		return ctx.Err()
	}
	a.config.progress("making the array "+name, 0, 0)
	return make()
}

// close ends all processes and removes everything except the arrays.
func (a *arrays) close() error {
	for _, l := range a.loops {
		l.close()
	}
	return errors.Join(os.RemoveAll(a.indexDir()), a.session.close()) // nothing is mounted in it
}

func (a *arrays) indexDir() string { return filepath.Join(a.dir, "index") }

// loop returns the loop over an array.
func (a *arrays) loop(name string) (*zarrLoop, error) {
	if l := a.loops[name]; l != nil {
		return l, nil
	}
	_, z := cropFlags(name)
	l, err := openZarrLoop(filepath.Join(a.data, name), z)
	if err == nil {
		a.loops[name] = l
	}
	return l, err
}

// mountArray mounts a dataset on a new mount point.
func (a *arrays) mountArray(ctx context.Context, name string, flags ...string) (*server, error) {
	point, err := a.newPoint()
	if err != nil {
		return nil, err
	}
	own := []string{"--format", "fixed", "--record-bytes", strconv.Itoa(satelliteBytes)}
	if name != fixedOnes {
		own, _ = cropFlags(name)
	}
	args := append([]string{filepath.Join(a.data, name), point, "--workers", "1", "--index-dir", a.indexDir()}, own...)
	return a.program.mountOn(ctx, point, a.log, append(args, flags...))
}

// readArray measures two readers for a slot, on a mount that stays in place and is identified by
// key.
func (a *arrays) readArray(ctx context.Context, key, name, extension string, memoryBytes int64, flags ...string) (reading, error) {
	v := a.mounts[key]
	if v == nil {
		if err := touchMemory(ctx, memoryBytes+leastMemory); err != nil {
			return reading{}, err
		}
		var err error
		if v, err = a.mountArray(ctx, name, append(flags, fmt.Sprintf("--memory=%d", memoryBytes))...); err != nil {
			return reading{}, err
		}
		a.mounts[key], a.servers = v, append(a.servers, v)
		// Once, so that indexes exist and memory holds what it can.
		if _, err := a.readMount(ctx, v, a.jobsOf(v.point, extension, len(a.readers), a.slot)); err != nil {
			return reading{}, err
		}
	}
	r, err := a.readMount(ctx, v, a.jobsOf(v.point, extension, len(a.readers), a.slot))
	if err != nil {
		return r, err
	}
	anon, err := anonBytes(v.cmd.Process.Pid)
	a.mostAnon = max(a.mostAnon, anon-memoryBytes)
	r.counted = false // a record of a read of storage is not a crop
	return r, err
}

// anonBytes returns the size of a process's private memory.
func anonBytes(pid int) (int64, error) {
	kib, err := strconv.ParseInt(strings.TrimSuffix(fieldOf(fmt.Sprintf("/proc/%d/status", pid), "RssAnon"), " kB"), 10, 64)
	return kib << 10, err
}

// measureMounts mounts the array of many objects twice. Only the first mount indexes it.
func (a *arrays) measureMounts(ctx context.Context) (reading, error) {
	if err := os.RemoveAll(a.indexDir()); err != nil {
		return reading{}, err
	}
	var took [2]time.Duration
	for i := range took {
		began := monotonic()
		v, err := a.mountArray(ctx, manyObjects)
		if err != nil {
			return reading{}, err
		}
		took[i] = monotonic() - began
		if err := v.stop(); err != nil {
			return reading{}, err
		}
	}
	a.again = took[1].Seconds()
	return reading{value: took[0].Seconds()}, nil
}
