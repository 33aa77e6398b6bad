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

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/unpack/synthetic"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

// arrays is the measuring of crops of Zarr arrays: the arrays that it makes, servers, readers
// and loops. It is not for concurrent use.
type arrays struct {
	*session
	data string // the directory of the arrays

	mounts map[string]*server
	loops  map[string]*zarrLoop

	steps    [2]float64 // seconds of processor time of a crop of long chunks: of the loop, of the mount
	mostAnon int64      // the most memory of a server above its --memory, so far
	again    float64    // seconds that the second mount of many objects took
}

// satellite are the arrays that crops of images are cut from, by the name of their codec in rows.
var satellite = map[string]encode.Codec{"none": encode.None, "lz4": encode.BloscLZ4, "zstd": encode.BloscZstd}

// satelliteBytes is the size of their crops, of 24 × 128 × 128 numbers of 16 bits.
const satelliteBytes = 24 * 128 * 128 * 2

// Names of the other datasets.
const (
	smallChunks = "small" // of 4 KiB
	longChunks  = "long"  // of 1008 steps, 16.5 MB
	manyObjects = "many"  // 10⁴
	fixedOnes   = "fixed" // records of as many bytes as crops have
)

const fixedRecords = 512

// zarrArrays are all arrays.
func zarrArrays(dir string) map[string]MakeZarr {
	all := map[string]MakeZarr{
		smallChunks: {Shape: []int64{64, 512, 512}, Object: []int64{64, 256, 256}, Brick: []int64{4, 16, 32}, Codec: encode.None, DataType: "int16"},
		longChunks:  {Shape: []int64{1008, 256, 256}, Object: []int64{1008, 128, 128}, Brick: []int64{1008, 64, 64}, Codec: encode.BloscZstd, BlockBytes: 128 << 10, DataType: "float32"},
		manyObjects: {Shape: []int64{100, 80, 80}, Object: []int64{1, 8, 8}, Brick: []int64{1, 8, 8}, Codec: encode.None, DataType: "int16"},
	}
	for name, codec := range satellite {
		all[name] = MakeZarr{Shape: ZarrShape, Object: ZarrObject, Brick: ZarrBrick, Codec: codec, DataType: "int16"}
	}
	for name, m := range all {
		m.Dir = filepath.Join(dir, name)
		all[name] = m
	}
	return all
}

// cropFlags cut crops of an array, as spec.Zarr does for a loop.
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
	z.Crop, _ = spec.ParseDims(crop)     // they are right
	z.Stride, _ = spec.ParseDims(stride) // likewise
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

// make makes a dataset unless it is there.
func (a *arrays) make(ctx context.Context, name string, make func() error) error {
	if _, err := os.Stat(filepath.Join(a.data, name)); err == nil {
		return ctx.Err()
	}
	a.config.progress("making the array "+name, 0, 0)
	return make()
}

// close ends all processes, and removes everything but the arrays.
func (a *arrays) close() error {
	for _, l := range a.loops {
		l.close()
	}
	return errors.Join(os.RemoveAll(a.indexDir()), a.session.close()) // nothing is mounted in it
}

func (a *arrays) indexDir() string { return filepath.Join(a.dir, "index") }

// loop is the loop over an array.
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

// mountArray mounts a dataset on a new point.
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

// readArray measures a slot of two readers of a mount that stays, which key names.
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
		// Once, so that indexes and what memory holds are there.
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
	r.counted = false // a record of reads of storage is none of a crop
	return r, err
}

// anonBytes is the memory of a process that is its own.
func anonBytes(pid int) (int64, error) {
	kib, err := strconv.ParseInt(strings.TrimSuffix(fieldOf(fmt.Sprintf("/proc/%d/status", pid), "RssAnon"), " kB"), 10, 64)
	return kib << 10, err
}

// measureMounts mounts the array of many objects, indexed for the first time and once more.
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
