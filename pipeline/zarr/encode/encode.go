// Package encode writes arrays of Zarr version 3, for tests, demonstrations and benchmarks.
//
//	Array{Shape, Object, Chunk, …}.Write(dir, chunk)  ──►  dir/zarr.json, dir/c/0/0, …
//
// Objects are sharded if their edges differ from those of chunks. The code follows the
// specification (zarr-specs docs/v3 @fc7dd9c) and, for blosc buffers, c-blosc's
// README_CHUNK_FORMAT.rst.
package encode

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// Codec is how chunks are compressed.
type Codec string

// The codecs. Those of blosc shuffle bytes.
const (
	None      Codec = "none"
	Zstd      Codec = "zstd"
	BloscLZ4  Codec = "blosc-lz4"
	BloscZstd Codec = "blosc-zstd"
)

// Codecs lists all codecs.
var Codecs = []Codec{None, Zstd, BloscLZ4, BloscZstd}

// Array describes the array to write. Edges of Object are multiples of those of Shards, each of the
// next, and the last of Chunk's.
type Array struct {
	Shape, Object, Chunk []int64
	Shards               [][]int64 // in an object, outermost first
	Dims                 []string  // nil: no names
	DataType             string    // such as "int16"
	ItemBytes            int
	Fill                 any // a number; nil means 0
	Codec                Codec
	BlockBytes           int // of blosc; 0: 256 KiB
	IndexAtStart         bool
	NoChecksum           bool // of an index
	Attributes           map[string]any
	// Writers is how many objects are written at a time, by as many goroutines, which call chunk
	// concurrently.
	Writers int // 0: 1
}

// Write writes the array to a directory, which it creates. chunk fills in the elements of a chunk,
// little-endian and in C order, and reports whether it is stored at all; its elements beyond the
// array's edges may be anything. An object without chunks is not written.
func (a Array) Write(dir string, chunk func(place []int64, elements []byte) bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	doc, err := json.Marshal(a.document())
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "zarr.json"), doc, 0o644); err != nil {
		return err
	}
	places := make(chan []int64)
	errs := make(chan error)
	n := max(a.Writers, 1)
	for range n {
		go func() { errs <- a.objects(dir, chunk, places) }()
	}
	go func() {
		defer close(places)
		_ = each(counts(a.Shape, a.Object), func(place []int64) error {
			places <- slices.Clone(place)
			return nil
		})
	}()
	for range n {
		err = errors.Join(err, <-errs)
	}
	return err
}

// objects writes the objects at places. It drains the channel even after an error.
func (a Array) objects(dir string, chunk func(place []int64, elements []byte) bool, places <-chan []int64) error {
	w := writer{Array: a, dir: dir, chunk: chunk, elements: make([]byte, product(a.Chunk)*int64(a.ItemBytes))}
	var err error
	if w.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault)); err == nil {
		defer w.zstd.Close()
	}
	for place := range places {
		if err == nil {
			err = w.object(place)
		}
	}
	return err
}

func (a Array) document() map[string]any {
	inner := []any{named("bytes", map[string]any{"endian": "little"})}
	blosc := func(name string) any {
		return named("blosc", map[string]any{"cname": name, "clevel": 5, "shuffle": "shuffle", "typesize": a.ItemBytes, "blocksize": 0})
	}
	switch a.Codec {
	case Zstd:
		inner = append(inner, named("zstd", map[string]any{"level": 3, "checksum": false}))
	case BloscLZ4:
		inner = append(inner, blosc("lz4"))
	case BloscZstd:
		inner = append(inner, blosc("zstd"))
	}
	codecs := inner
	edges := a.levels()
	for _, edge := range slices.Backward(edges[1:]) {
		index := []any{named("bytes", map[string]any{"endian": "little"})}
		if !a.NoChecksum {
			index = append(index, named("crc32c", nil))
		}
		location := "end"
		if a.IndexAtStart {
			location = "start"
		}
		codecs = []any{named("sharding_indexed", map[string]any{"chunk_shape": edge, "codecs": codecs, "index_codecs": index, "index_location": location})}
	}
	fill := a.Fill
	if fill == nil {
		fill = 0
	}
	doc := map[string]any{
		"zarr_format": 3, "node_type": "array", "shape": a.Shape, "data_type": a.DataType, "fill_value": fill, "codecs": codecs,
		"chunk_grid":         named("regular", map[string]any{"chunk_shape": a.Object}),
		"chunk_key_encoding": named("default", nil),
	}
	if a.Dims != nil {
		doc["dimension_names"] = a.Dims
	}
	if a.Attributes != nil {
		doc["attributes"] = a.Attributes
	}
	return doc
}

func named(name string, configuration map[string]any) any {
	if configuration == nil {
		return map[string]any{"name": name}
	}
	return map[string]any{"name": name, "configuration": configuration}
}

// levels returns the nested edges: those of objects, of shards in them, and of chunks.
func (a Array) levels() [][]int64 {
	edges := append([][]int64{a.Object}, a.Shards...)
	if len(a.Shards) > 0 || !slices.Equal(a.Object, a.Chunk) {
		edges = append(edges, a.Chunk)
	}
	return edges
}

// writer is the state of one goroutine of Write.
type writer struct {
	Array
	dir      string
	chunk    func(place []int64, elements []byte) bool
	elements []byte
	zstd     *zstd.Encoder
}

// object writes the object at a place, unless it has no chunk.
func (w *writer) object(place []int64) error {
	first := make([]int64, len(place))
	for d := range first {
		first[d] = place[d] * (w.Object[d] / w.Chunk[d])
	}
	content, err := w.box(0, first)
	if err != nil || content == nil {
		return err
	}
	path := filepath.Join(w.dir, string(zarr.Keys{Prefixed: true, Separator: '/'}.Append(nil, place)))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}

// box encodes a box of the given level with the given first chunk: a shard, or a chunk. It returns
// nil if no chunk in it is stored.
func (w *writer) box(level int, first []int64) ([]byte, error) {
	edges := w.levels()
	if level == len(edges)-1 {
		for d := range first {
			if first[d]*w.Chunk[d] >= w.Shape[d] {
				return nil, nil
			}
		}
		if !w.chunk(first, w.elements) {
			return nil, nil
		}
		b, err := w.encode(w.elements)
		return slices.Clone(b), err
	}
	var content, index []byte
	n := counts(edges[level], edges[level+1])
	if w.IndexAtStart {
		content = make([]byte, w.indexBytes(n))
	}
	at, stored := make([]int64, len(first)), false
	err := each(n, func(inner []int64) error {
		for d := range at {
			at[d] = first[d] + inner[d]*(edges[level+1][d]/w.Chunk[d])
		}
		b, err := w.box(level+1, slices.Clone(at))
		if b == nil {
			index = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(index, math.MaxUint64), math.MaxUint64)
			return err
		}
		stored = true
		index = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(index, uint64(len(content))), uint64(len(b)))
		content = append(content, b...)
		return err
	})
	if err != nil || !stored {
		return nil, err
	}
	if !w.NoChecksum {
		index = binary.LittleEndian.AppendUint32(index, crc32.Checksum(index, crc32.MakeTable(crc32.Castagnoli)))
	}
	if w.IndexAtStart {
		copy(content, index)
		return content, nil
	}
	return append(content, index...), nil
}

// indexBytes returns the size of an index of n boxes along each dimension.
func (w *writer) indexBytes(n []int64) int64 {
	bytes := 16 * product(n)
	if !w.NoChecksum {
		bytes += 4
	}
	return bytes
}

func (w *writer) encode(b []byte) ([]byte, error) {
	switch w.Codec {
	case "", None:
		return b, nil
	case Zstd:
		return w.zstd.EncodeAll(b, nil), nil
	case BloscLZ4, BloscZstd:
		return w.blosc(b)
	}
	return nil, fmt.Errorf("codec %q is not known", w.Codec)
}

// each calls f for all places of a grid, in C order.
func each(counts []int64, f func(place []int64) error) error {
	place := make([]int64, len(counts))
	grid := zarr.Grid{Counts: counts}
	for i := range grid.Total() {
		grid.Place(place, i)
		if err := f(place); err != nil {
			return err
		}
	}
	return nil
}

func counts(shape, edges []int64) []int64 {
	n := make([]int64, len(shape))
	for d := range n {
		n[d] = (shape[d] + edges[d] - 1) / edges[d]
	}
	return n
}

func product(list []int64) int64 {
	p := int64(1)
	for _, n := range list {
		p *= n
	}
	return p
}

// defaultBlockBytes is between c-blosc's block sizes for lz4 and for zstd.
const defaultBlockBytes = 256 << 10

// Flags of a blosc buffer; the upper three bits are the number of its codec.
const (
	bloscShuffled = 0x01
	bloscLZ4      = 1 << 5
	bloscZstd     = 4 << 5
)

// blosc encodes a buffer of shuffled blocks.
func (w *writer) blosc(b []byte) ([]byte, error) {
	size := w.BlockBytes
	if size == 0 {
		size = defaultBlockBytes
	}
	size = min(size/w.ItemBytes*w.ItemBytes, len(b))
	flags := byte(bloscShuffled | bloscLZ4)
	if w.Codec == BloscZstd {
		flags = bloscShuffled | bloscZstd
	}
	out := []byte{2, 1, flags, byte(w.ItemBytes)}
	out = binary.LittleEndian.AppendUint32(out, uint32(len(b)))
	out = binary.LittleEndian.AppendUint32(out, uint32(size))
	out = append(out, 0, 0, 0, 0)
	blocks := (len(b) + size - 1) / size
	starts := len(out)
	out = append(out, make([]byte, 4*blocks)...)
	for i := range blocks {
		binary.LittleEndian.PutUint32(out[starts+4*i:], uint32(len(out)))
		block := b[i*size : min((i+1)*size, len(b))]
		streams := 1
		if w.ItemBytes <= 16 && size/w.ItemBytes >= 128 && len(block) == size {
			streams = w.ItemBytes
		}
		mixed := shuffle(block, w.ItemBytes)
		for n := len(mixed) / streams; len(mixed) > 0; mixed = mixed[n:] {
			packed, err := w.stream(mixed[:n])
			if err != nil {
				return nil, err
			}
			out = append(binary.LittleEndian.AppendUint32(out, uint32(len(packed))), packed...)
		}
	}
	binary.LittleEndian.PutUint32(out[12:], uint32(len(out)))
	return out, nil
}

// stream compresses a part of a block; if the result is not smaller, it stays uncompressed.
func (w *writer) stream(b []byte) ([]byte, error) {
	packed := b
	if w.Codec == BloscZstd {
		packed = w.zstd.EncodeAll(b, nil)
	} else {
		out := make([]byte, lz4.CompressBlockBound(len(b)))
		n, err := lz4.CompressBlock(b, out, nil)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			packed = out[:n]
		}
	}
	if len(packed) >= len(b) {
		return b, nil
	}
	return packed, nil
}

// shuffle puts the first bytes of all elements first, then all second bytes, and so on.
func shuffle(b []byte, itemBytes int) []byte {
	n := len(b) / itemBytes
	mixed := make([]byte, len(b))
	for i := range n {
		for j := range itemBytes {
			mixed[j*n+i] = b[i*itemBytes+j]
		}
	}
	copy(mixed[n*itemBytes:], b[n*itemBytes:])
	return mixed
}
