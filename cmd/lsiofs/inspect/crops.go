package inspect

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/pipeline"
	"github.com/lsiofs/lsiofs/pipeline/printable"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Crops describes crops of Zarr arrays and what they cost. Chunks are Zarr's: the unit of decoding.
type Crops struct {
	Arrays []CropsArray `json:"arrays"`
	// Records is the number of crops examined, from the epoch's start on.
	Records     uint64 `json:"crops_looked_at"`
	RecordBytes int64  `json:"crop_bytes"`
	// Chunks is the number of stored chunks that a crop touches, and ChunkBytes their decoded size.
	Chunks      float64      `json:"chunks_a_crop"`
	ChunkBytes  float64      `json:"chunk_bytes_a_crop"`
	MemoryBytes int64        `json:"memory_for_chunks"`
	Orders      []CropsOrder `json:"orders"`
	Warnings    []string     `json:"warnings,omitempty"`
}

// CropsArray is an array that crops are cut from. If there are several hierarchies, it is the first
// one's.
type CropsArray struct {
	Name       string   `json:"name"`
	Path       string   `json:"path"`
	Dtype      string   `json:"dtype"`
	ComputedOf string   `json:"computed_of,omitempty"` // the stored type and its scaling
	Dims       []string `json:"dims"`
	Shape      []int64  `json:"shape"`
	Crop       []int64  `json:"crop"`
	Chunk      []int64  `json:"chunk"`
	Object     []int64  `json:"object"` // of a file; without sharding the same as Chunk
	Codecs     []string `json:"codecs"`
	ChunkBytes int64    `json:"chunk_bytes"`
	Objects    int64    `json:"objects"`        // in all hierarchies
	Stored     int64    `json:"objects_stored"` // the others consist of the fill value
	Ignored    int64    `json:"files_ignored"`
	// Decoded is the number of elements decoded for each element of a crop, along each dimension.
	Decoded []float64 `json:"decoded_along"`
}

// CropsOrder is how much an order decodes.
type CropsOrder struct {
	Shuffle    spec.Shuffle `json:"shuffle"`
	InUse      bool         `json:"in_use"`
	Chunks     float64      `json:"chunks_decoded_a_crop"`
	ChunkBytes float64      `json:"bytes_decoded_a_crop"`
	// OnceMemory is the --memory from which on each chunk is decoded about once.
	OnceMemory int64 `json:"once_from_memory"`
}

// CropsOf returns nil if the records are not crops.
func CropsOf(ctx context.Context, d *pipeline.Dataset) (*Crops, error) {
	f, err := d.ForecastCrops(ctx)
	if f == nil || err != nil {
		return nil, err
	}
	return newCrops(f, d.Spec().MemoryBytes), nil
}

// newCrops converts the forecast for a mount with that memory.
func newCrops(f *pipeline.CropsForecast, memoryBytes int64) *Crops {
	c := &Crops{Records: f.Records, RecordBytes: f.RecordBytes, Chunks: f.ChunksWanted, ChunkBytes: f.WantedBytes, MemoryBytes: f.MemoryBytes}
	for _, x := range f.Fields {
		a := CropsArray{
			Name: x.Name, Path: x.Path, Dtype: strings.Trim(x.Descr, "'"), ComputedOf: x.ComputedOf, Dims: x.Dims, Shape: x.Shape, Crop: x.Crop, Chunk: x.Chunk, Object: x.Object,
			Codecs: x.Codecs, ChunkBytes: x.ChunkBytes, Objects: x.Objects, Stored: x.Stored, Ignored: x.IgnoredFiles, Decoded: x.DecodedAlong,
		}
		c.Arrays = append(c.Arrays, a)
		c.Warnings = append(c.Warnings, a.warnings()...)
	}
	for _, o := range f.Orders {
		once := int64(0)
		if o.OnceBytes > 0 { // chunks get half of any additional memory
			once = memoryBytes + 2*(o.OnceBytes-f.MemoryBytes)
		}
		c.Orders = append(c.Orders, CropsOrder{o.Shuffle, o.InUse, o.Chunks, o.Bytes, once})
	}
	return c
}

// How many times the elements of a crop may be decoded along a dimension without a warning: if the
// array is not chunked along it, and if chunks are long.
const (
	notChunked = 2
	longChunks = 4
)

// warnings returns a warning for each dimension along which chunks are far longer than crops.
func (a CropsArray) warnings() (list []string) {
	of := ""
	if a.Name != "" { // the array is not the dataset itself
		of = a.Name + ": "
	}
	for d, times := range a.Decoded {
		name := dimName(a.Dims, d)
		whole := a.Chunk[d] >= a.Shape[d]
		if whole && times >= notChunked {
			list = append(list, fmt.Sprintf("%s%s is not chunked: a crop decodes %.3g times its own size", of, name, times))
		}
		if !whole && times >= longChunks {
			list = append(list, fmt.Sprintf("%schunks span %s elements of %s, crops only %s: a crop decodes %.3g times its own size", of, terminal.Count(uint64(a.Chunk[d])), name, terminal.Count(uint64(a.Crop[d])), times))
		}
	}
	return list
}

func dimName(dims []string, d int) string {
	if dims[d] == "" {
		return fmt.Sprintf("dimension %d", d)
	}
	return dims[d]
}

// edges formats lengths along dimensions, with names if all have one: "time=24, y=128".
func edges(dims []string, list []int64) string {
	named := !slices.Contains(dims, "")
	var parts []string
	for d, n := range list {
		if named {
			parts = append(parts, fmt.Sprintf("%s=%d", dims[d], n))
		} else {
			parts = append(parts, fmt.Sprint(n))
		}
	}
	if named {
		return strings.Join(parts, ", ")
	}
	return strings.Join(parts, " × ")
}

// cropsRows returns the lines of a report on crops. Their shards are virtual. The order's chunks
// are called runs here, because an array has chunks, too.
func (i Report) cropsRows() [][2]string {
	rows := [][2]string{
		{"dataset", i.Root},
		{"format", i.Format},
		{"fingerprint", i.Fingerprint},
		{"cubes", terminal.Count(uint64(i.Shards))},
		{"crops", fmt.Sprintf("%s, %s each, %s in streams", terminal.Count(i.Records), terminal.Bytes(i.Crops.RecordBytes), terminal.Bytes(i.StreamBytes))},
	}
	rows = append(rows, i.Crops.rows(i.Shards > 1)...)
	return append(rows,
		[2]string{"runs", fmt.Sprintf("%s, each of %d to %d neighbouring crops", terminal.Count(i.Chunks), i.ChunkRecords.Min, i.ChunkRecords.Max)},
		[2]string{"damaged", fmt.Sprintf("%d of %s", len(i.Damaged), terminal.Plural(uint64(i.Shards), "cube"))})
}

// rows returns lines about the arrays, for a table. If there are several cubes, shapes are the
// first one's.
func (c *Crops) rows(several bool) (rows [][2]string) {
	for _, a := range c.Arrays {
		how := "not compressed"
		if len(a.Codecs) > 0 {
			how = strings.Join(a.Codecs, ", ")
		}
		objects := fmt.Sprintf("%s of %s stored", terminal.Count(uint64(a.Stored)), terminal.Count(uint64(a.Objects)))
		if !slices.Equal(a.Object, a.Chunk) {
			objects += ", of " + edges(make([]string, len(a.Object)), a.Object)
		}
		if a.Ignored > 0 {
			objects += ", " + terminal.Plural(uint64(a.Ignored), "other file") + " ignored"
		}
		dtype := a.Dtype
		if a.ComputedOf != "" {
			dtype += " of " + a.ComputedOf
		}
		shape := printable.Line(edges(a.Dims, a.Shape))
		if several {
			shape += " in the first cube"
		}
		rows = append(rows,
			[2]string{"array " + printable.Line(a.Name), shape + ", " + dtype},
			[2]string{"  crops", edges(make([]string, len(a.Crop)), a.Crop)},
			[2]string{"  chunks", fmt.Sprintf("%s, %s, %s", edges(make([]string, len(a.Chunk)), a.Chunk), terminal.Bytes(a.ChunkBytes), how)},
			[2]string{"  files", objects})
	}
	return rows
}

// Text describes what crops cost.
func (c *Crops) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "decoding (the first %s of the epoch)\n  a crop of %[4]s touches %.1[2]f chunks, %[3]s decoded\n",
		terminal.Plural(c.Records, "crop"), c.Chunks, terminal.Bytes(int64(c.ChunkBytes)), terminal.Bytes(c.RecordBytes))
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "  shuffle\tdecoded per crop\tbytes\teach chunk decoded about once with\n")
	for _, o := range c.Orders {
		name := string(o.Shuffle)
		if o.InUse {
			name += " (in use)"
		}
		from := "any --memory" // no chunk is needed twice
		if o.OnceMemory > 0 {
			from = "--memory " + terminal.Bytes(o.OnceMemory)
		}
		fmt.Fprintf(t, "  %s\t%.2f chunks\t%s\t%s\n", name, o.Chunks, terminal.Bytes(int64(o.ChunkBytes)), from)
	}
	_ = t.Flush() // writing to a builder does not fail
	fmt.Fprintf(&b, "  counted by dry runs with %s for decoded chunks\n", terminal.Bytes(c.MemoryBytes))
	for _, text := range c.Warnings {
		fmt.Fprintf(&b, "  %s\n", printable.Line(text))
	}
	return b.String()
}
