package gate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

// Make describes a dataset to make.
type Make struct {
	Dir     string
	Shape   synthetic.Shape
	Records uint64
	Shards  uint64 // 0: about 100 MB each, or one game each for lc0
	// Progress, if set, is called periodically with the decoded bytes made so far and the
	// approximate total.
	Progress func(bytes, total int64)
}

// shardBytes is the default decoded size of a shard.
const shardBytes = 100e6

// maxRecords bounds the number of records, so that it fits into the samples' keys.
const maxRecords = 1e9

// Made is what has been made.
type Made struct {
	Dir     string `json:"made"`
	Format  string `json:"format"`
	Shards  uint64 `json:"shards"`
	Records uint64 `json:"records"`
	// DecodedBytes is the size before, FileBytes after compression.
	DecodedBytes int64         `json:"decoded_bytes"`
	FileBytes    int64         `json:"file_bytes"`
	Took         time.Duration `json:"took_nanos"`
}

// Validate reports all problems. It chooses the number of shards if none is given.
func (m *Make) Validate() error {
	problems := []error{m.Shape.Validate()}
	if m.Records < 1 || m.Records > maxRecords {
		problems = append(problems, fmt.Errorf("records (%d) must be between 1 and %d", m.Records, uint64(maxRecords)))
	}
	if m.Shards == 0 {
		m.Shards = min(max(uint64(float64(m.Records)*float64(m.Shape.RecordBytes)/shardBytes+0.5), 1), max(m.Records, 1))
		if m.Shape.Format == "lc0" && m.Shape.Codec == "gz" { // one game per shard
			m.Shards = min(max((m.Records+synthetic.GameFrames-1)/synthetic.GameFrames, 1), max(m.Records, 1))
		}
	}
	if m.Shards > m.Records && m.Records > 0 {
		problems = append(problems, fmt.Errorf("shards (%d) must be at most the number of records (%d)", m.Shards, m.Records))
	}
	return errors.Join(problems...)
}

// Run makes the dataset on all cores. The directory must be empty or not exist. It appears when it
// is complete: if anything fails, or ctx ends, nothing is left of it.
func (m Make) Run(ctx context.Context) (made Made, err error) {
	begin := time.Now()
	if err := m.Validate(); err != nil {
		return Made{}, err
	}
	made = Made{Format: m.Shape.Format, Shards: m.Shards, Records: m.Records}
	made.Dir, err = completed(m.Dir, func(half string) (err error) {
		made.DecodedBytes, made.FileBytes, err = m.shards(ctx, half)
		return err
	})
	if err != nil {
		return Made{}, err
	}
	made.Took = time.Since(begin)
	return made, nil
}

// completed lets fill write to a directory next to dir. On success the directory replaces dir,
// otherwise it is removed. It returns dir's path.
func completed(dir string, fill func(half string) error) (path string, err error) {
	if path, err = filepath.Abs(dir); err != nil {
		return "", err
	}
	if err := vacant(path); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("make %s: %w", path, err)
	}
	// Next to it, so that a rename suffices.
	half, err := os.MkdirTemp(filepath.Dir(path), ".lsiofs-make-")
	if err != nil {
		return "", fmt.Errorf("make %s: %w", path, err)
	}
	if err = os.Chmod(half, 0o755); err == nil {
		err = fill(half)
	}
	if err == nil { // rename replaces an empty directory, but not one with files
		if err = unix.Rename(half, path); err != nil {
			err = fmt.Errorf("make %s: %w", path, err)
		}
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(half))
	}
	return path, nil
}

// vacant returns an error if a directory is not empty.
func vacant(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("make %s: %w", dir, err)
	case len(entries) > 0:
		return fmt.Errorf("make %s: it is not empty (it has %q): name an empty directory, or one that does not exist", dir, entries[0].Name())
	}
	return nil
}

// shards makes all shards in dir.
func (m *Make) shards(ctx context.Context, dir string) (decoded, written int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next, bytes, files atomic.Int64
	stop := reporting(m.Progress, &bytes, int64(m.Records)*m.Shape.RecordBytes)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := uint64(next.Add(1) - 1); i < m.Shards && ctx.Err() == nil; i = uint64(next.Add(1) - 1) {
				n, err := m.shard(ctx, dir, i, &bytes)
				files.Add(n)
				if err != nil {
					cancel(err)
				}
			}
		})
	}
	workers.Wait()
	stop()
	return bytes.Load(), files.Load(), context.Cause(ctx)
}

// reportEvery is the interval of progress reports.
const reportEvery = 200 * time.Millisecond

// reporting reports progress, unless it is nil, until stop is called.
func reporting(progress func(bytes, total int64), bytes *atomic.Int64, total int64) (stop func()) {
	if progress == nil {
		return func() {}
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(reportEvery)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				progress(bytes.Load(), total)
			case <-end:
				return
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}

// shard makes shard i and returns its size.
func (m *Make) shard(ctx context.Context, dir string, i uint64, bytes *atomic.Int64) (int64, error) {
	path := filepath.Join(dir, fmt.Sprintf("shard-%05d%s", i, m.Shape.Extension()))
	// Shards differ by at most one record.
	first, last := i*m.Records/m.Shards, (i+1)*m.Records/m.Shards
	if m.Shape.Format == "files" {
		if err := os.Mkdir(path, 0o777); err != nil {
			return 0, err
		}
		return m.Shape.WriteFiles(path, first, last-first, func(n int64) error {
			bytes.Add(n)
			return context.Cause(ctx)
		})
	}
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	err = m.Shape.WriteShard(stopping{ctx, f}, first, last-first, func(n int64) { bytes.Add(n) })
	size, serr := f.Seek(0, io.SeekCurrent)
	return size, errors.Join(err, serr, f.Close())
}

// stopping is a writer that fails once ctx has ended.
type stopping struct {
	ctx context.Context
	out io.Writer
}

func (s stopping) Write(p []byte) (int, error) {
	if err := context.Cause(s.ctx); err != nil {
		return 0, err
	}
	return s.out.Write(p)
}

// MakeZarr describes an array of Zarr version 3 to make: waves of 10 bits with noise, which
// compress about as well as satellite images.
type MakeZarr struct {
	Dir string
	// Shape, Object and Chunk are edges of the array, of its shards, and of the chunks in these.
	Shape, Object, Chunk []int64
	Codec                encode.Codec
	DataType             string // "int16" or "float32"
	BlockBytes           int    // of blosc; 0: encode's default
	Seed                 uint64
	// Progress is like Make's.
	Progress func(bytes, total int64)
}

// ZarrShape, ZarrObject and ZarrBrick are the default edges.
var (
	ZarrShape  = []int64{256, 768, 768}
	ZarrObject = []int64{64, 256, 256}
	ZarrChunk  = []int64{16, 64, 64}
)

// zarrDims are the dimensions' names. An array uses the last ones.
var zarrDims = []string{"channel", "time", "y", "x"}

// maxZarrBytes bounds the decoded size of an array.
const maxZarrBytes = 1 << 44

func (m *MakeZarr) itemBytes() int64 {
	if m.DataType == "float32" {
		return 4
	}
	return 2
}

// Validate reports all problems.
func (m *MakeZarr) Validate() error {
	var problems []error
	if n := len(m.Shape); n < 1 || n > len(zarrDims) || len(m.Object) != n || len(m.Chunk) != n {
		return fmt.Errorf("shape, shard and chunk have %d, %d and %d edges: give the same number for each, 1 to %d", n, len(m.Object), len(m.Chunk), len(zarrDims))
	}
	bytes := float64(m.itemBytes())
	for d, n := range m.Shape {
		if n < 1 || m.Chunk[d] < 1 || m.Object[d] < 1 || m.Object[d]%m.Chunk[d] != 0 {
			problems = append(problems, fmt.Errorf("%s: edges of the array (%d), of shards (%d) and of chunks (%d) must be above 0, and those of shards multiples of those of chunks", zarrDims[len(zarrDims)-len(m.Shape)+d], n, m.Object[d], m.Chunk[d]))
		}
		bytes *= float64(n)
	}
	if bytes > maxZarrBytes {
		problems = append(problems, fmt.Errorf("an array of %.0f GiB is too large: at most %d GiB are made", bytes/(1<<30), maxZarrBytes>>30))
	}
	if !slices.Contains(encode.Codecs, m.Codec) {
		problems = append(problems, fmt.Errorf("unknown codec %q: use one of %v", m.Codec, encode.Codecs))
	}
	if m.DataType != "int16" && m.DataType != "float32" {
		problems = append(problems, fmt.Errorf("unknown data type %q: use int16 or float32", m.DataType))
	}
	return errors.Join(problems...)
}

// Run makes the array on all cores. As with Make.Run, it appears when it is complete.
func (m MakeZarr) Run(ctx context.Context) (made Made, err error) {
	begin := time.Now()
	if err := m.Validate(); err != nil {
		return Made{}, err
	}
	made = Made{Format: "zarr", DecodedBytes: m.itemBytes()}
	made.Shards = 1
	for d, n := range m.Shape {
		made.DecodedBytes *= n
		made.Shards *= uint64((n + m.Object[d] - 1) / m.Object[d])
	}
	made.Dir, err = completed(m.Dir, func(half string) error {
		var bytes atomic.Int64
		stop := reporting(m.Progress, &bytes, made.DecodedBytes)
		defer stop()
		a := encode.Array{
			Shape: m.Shape, Object: m.Object, Chunk: m.Chunk, Dims: zarrDims[len(zarrDims)-len(m.Shape):], DataType: m.DataType, ItemBytes: int(m.itemBytes()),
			Codec: m.Codec, BlockBytes: m.BlockBytes, Writers: runtime.GOMAXPROCS(0),
			Attributes: map[string]any{"scale_factor": 0.5, "add_offset": 180.0, "units": "K"},
		}
		err := a.Write(half, func(place []int64, elements []byte) bool {
			if ctx.Err() != nil {
				return false
			}
			m.fill(place, elements)
			bytes.Add(int64(len(elements)))
			return true
		})
		return errors.Join(err, ctx.Err())
	})
	if err != nil {
		return Made{}, err
	}
	err = filepath.WalkDir(made.Dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			made.FileBytes += info.Size()
		}
		return err
	})
	made.Took = time.Since(begin)
	return made, err
}

// fill makes the elements of the chunk at a place. They do not depend on where chunks end.
func (m *MakeZarr) fill(place []int64, elements []byte) {
	dims := len(place)
	at := make([]int64, dims)
	width := m.Chunk[dims-1]
	for row := range int64(len(elements)) / (width * m.itemBytes()) {
		rest, phase, number := row, float64(m.Seed%1000), uint64(m.Seed)
		for d := dims - 2; d >= 0; d-- {
			at[d] = place[d]*m.Chunk[d] + rest%m.Chunk[d]
			rest /= m.Chunk[d]
			phase += float64(at[d]) * []float64{0.9, 0.31, 0.043}[min(d+len(zarrDims)-1-dims, 2)]
			number = number*1_000_003 + uint64(at[d])
		}
		first := place[dims-1] * width
		line := elements[row*width*m.itemBytes():]
		for i := range width {
			x := number*1_000_003 + uint64(first+i)
			x ^= x >> 33
			x *= 0xff51afd7ed558ccd
			x ^= x >> 33
			v := 512 + 400*math.Sin(phase+0.021*float64(first+i)) + float64(x>>60)
			if m.itemBytes() == 2 {
				binary.LittleEndian.PutUint16(line[2*i:], uint16(int16(v)))
			} else {
				binary.LittleEndian.PutUint32(line[4*i:], math.Float32bits(float32(math.Floor(v*8)/8)))
			}
		}
	}
}

// makeZarr is the value of --make that makes an array.
const makeZarr = "zarr"

// makeShards makes the dataset that the flags describe.
func (o *options) makeShards(ctx context.Context) error {
	switch {
	case len(o.paths) != 1:
		return exit.Usagef("--make takes the directory where the dataset is to be made (see --help)")
	case o.gz && o.zst || o.gz && o.lz4 || o.zst && o.lz4:
		return exit.Usagef("--gz, --zst and --lz4: choose one")
	case o.tar:
		o.shape.Codec = "tar"
	case o.make == "lc0" && !o.zst && !o.lz4:
		o.shape.Codec = "gz"
	case o.gz:
		o.shape.Codec = "gz"
	case o.zst:
		o.shape.Codec = "zst"
	case o.lz4:
		o.shape.Codec = "lz4"
	}
	if o.make == "lc0" && !o.given("bytes") {
		o.shape.RecordBytes = synthetic.FrameBytes
	}
	o.shape.Format, o.shape.Seed = o.make, o.seed
	return o.command().Make(ctx, Make{Dir: o.paths[0], Shape: o.shape, Records: o.count, Shards: o.shards})
}

// edges are the flags of --make zarr.
type edges struct {
	shape, shard, chunk []int64
	plain               bool
}

func (e *edges) add(f *pflag.FlagSet) {
	f.Int64SliceVar(&e.shape, "shape", ZarrShape, "with --make zarr: `edges` of the array")
	f.Int64SliceVar(&e.shard, "shard", ZarrObject, "with --make zarr: `edges` of its shards; those of chunks for none")
	f.Int64SliceVar(&e.chunk, "chunk", ZarrChunk, "with --make zarr: `edges` of its chunks")
	f.BoolVar(&e.plain, "plain", false, "with --make zarr --zst: without blosc")
}

// makeZarr makes the array that the flags describe.
func (o *options) makeZarr(ctx context.Context) error {
	codec := encode.None
	switch {
	case len(o.paths) != 1:
		return exit.Usagef("--make takes the directory where the dataset is to be made (see --help)")
	case o.gz || o.tar || o.given("records") || o.given("bytes") || o.given("shards"):
		return exit.Usagef("--make zarr has --shape, --shard, --chunk, --zst and --lz4; --gz, --tar, --records, --bytes and --shards are for other formats")
	case o.zst && o.lz4, o.array.plain && !o.zst:
		return exit.Usagef("--zst, --lz4 and --plain --zst: choose one")
	case o.array.plain:
		codec = encode.Zstd
	case o.zst:
		codec = encode.BloscZstd
	case o.lz4:
		codec = encode.BloscLZ4
	}
	return o.command().MakeZarr(ctx, MakeZarr{
		Dir: o.paths[0], Shape: o.array.shape, Object: o.array.shard, Chunk: o.array.chunk, Codec: codec, DataType: "int16", Seed: o.seed,
	})
}
