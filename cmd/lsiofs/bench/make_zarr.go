package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

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
		return fmt.Errorf("shape, shard and chunk have %d, %d and %d edges: give as many of each, 1 to %d", n, len(m.Object), len(m.Chunk), len(zarrDims))
	}
	bytes := float64(m.itemBytes())
	for d, n := range m.Shape {
		if n < 1 || m.Chunk[d] < 1 || m.Object[d] < 1 || m.Object[d]%m.Chunk[d] != 0 {
			problems = append(problems, fmt.Errorf("%s: edges of the array (%d), of shards (%d) and of chunks (%d) must be above 0, and those of shards multiples of those of chunks", zarrDims[len(zarrDims)-len(m.Shape)+d], n, m.Object[d], m.Chunk[d]))
		}
		bytes *= float64(n)
	}
	if bytes > maxZarrBytes {
		problems = append(problems, fmt.Errorf("an array of %.0f GiB is more than the %d that are made", bytes/(1<<30), maxZarrBytes>>30))
	}
	if !slices.Contains(encode.Codecs, m.Codec) {
		problems = append(problems, fmt.Errorf("codec %q: there are %v", m.Codec, encode.Codecs))
	}
	if m.DataType != "int16" && m.DataType != "float32" {
		problems = append(problems, fmt.Errorf("data type %q: there are int16 and float32", m.DataType))
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
