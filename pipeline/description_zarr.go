package pipeline

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/storage/crops/listing"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// describedZarr describes crops in dataset.json. Lists of numbers of elements follow Dims or, in a
// field, the field's own dimensions.
type describedZarr struct {
	Dims   []string `json:"dims"` // of the first field, "" for a dimension without a name
	Crop   []int64  `json:"crop"`
	Stride []int64  `json:"stride,omitempty"` // absent with a list, unless origins move
	Step   []int64  `json:"step"`
	Wrap   []bool   `json:"wrap,omitempty"`
	Jitter bool     `json:"jitter"`
	Edge   string   `json:"edge,omitempty"`
	List   string   `json:"crops,omitempty"` // the file of origins
	Stack  bool     `json:"stack,omitempty"`
	As     string   `json:"as,omitempty"` // the type that elements were converted to
	// Cubes are in the order of the first number of a row of worker-W.crops.npy. If there are too
	// many to list, Omitted is their number instead.
	Cubes   []describedCube            `json:"cubes,omitempty"`
	Omitted int                        `json:"cubes_omitted,omitempty"`
	Fields  []describedField           `json:"fields"`
	Coords  map[string]describedCoords `json:"coords,omitempty"` // of the first cube
}

type describedCube struct {
	Path    string     `json:"path"`
	Shape   []int64    `json:"shape"`
	Region  [][2]int64 `json:"region"`         // begin and end of each dimension
	Grid    []int64    `json:"grid,omitempty"` // positions along each dimension
	Records uint64     `json:"records"`
	LeftOut uint64     `json:"left_out,omitempty"` // records left out by --missing skip and --on-corrupt skip
}

// describedField is an array of the first cube, and the place of its crop in a record.
type describedField struct {
	Name   string          `json:"name"`
	Path   string          `json:"path"` // below the cube
	Dtype  json.RawMessage `json:"dtype"`
	Dims   []string        `json:"dims"`
	Crop   []int64         `json:"shape"`
	Offset int64           `json:"offset"`
	Bytes  int64           `json:"bytes"`
	Chunk  []int64         `json:"brick"`
	Object []int64         `json:"object"`
	Codecs []string        `json:"codecs"`
	Fill   any             `json:"fill_value"`
	// Stored describes what elements of Dtype were computed from. Attributes then lacks those that
	// were applied, because applying them again would be wrong.
	Stored     *describedStored `json:"stored,omitempty"`
	Attributes json.RawMessage  `json:"attributes,omitempty"`
}

// describedStored has the stored type of an array, and the numbers of zarr.Packing.
type describedStored struct {
	Dtype   json.RawMessage `json:"dtype"`
	Scale   float32         `json:"scale"`
	Offset  float32         `json:"offset"`
	Missing []any           `json:"missing"` // elements that became NaN
}

type describedCoords struct {
	File       string          `json:"file"` // below the mount point
	Dtype      json.RawMessage `json:"dtype"`
	Attributes json.RawMessage `json:"attributes,omitempty"`
}

// Bounds of what dataset.json lists.
const (
	maxDescribedCubes      = 1 << 16
	maxDescribedAttributes = 64 << 10
)

// describeCrops returns nil if records are not crops.
func (g *generation) describeCrops(ctx context.Context) (*describedZarr, error) {
	if g.cubes == nil {
		return nil, nil
	}
	first, asked := g.cubes[0], g.spec.Format.Zarr
	d := &describedZarr{Dims: namesOf(first.Cut.Dims(), len(first.Cut.Axes())), Jitter: asked.Jitter, List: asked.List, Stack: asked.Stack, As: string(asked.As)}
	wraps := false
	for _, a := range first.Cut.Axes() {
		d.Crop, d.Step, d.Wrap = append(d.Crop, a.Crop), append(d.Step, a.Step), append(d.Wrap, a.Wrap)
		if asked.List == "" || asked.Jitter {
			d.Stride = append(d.Stride, a.Stride)
		}
		wraps = wraps || a.Wrap
	}
	if !wraps {
		d.Wrap = nil
	}
	if asked.List == "" {
		if d.Edge = "drop"; asked.Cover {
			d.Edge = "cover"
		}
	}
	if len(g.cubes) > maxDescribedCubes {
		d.Omitted = len(g.cubes)
	} else {
		for _, c := range g.cubes {
			d.Cubes = append(d.Cubes, describeCube(c))
		}
	}
	var err error
	if d.Fields, err = describeFields(first); err != nil {
		return nil, err
	}
	d.Coords, err = g.describeCoords(ctx)
	return d, err
}

func describeCube(c *listing.Grid) describedCube {
	x := describedCube{Path: c.Object.Path, Grid: c.Cut.Counts(), Records: c.Cut.Total()}
	for _, a := range c.Cut.Axes() {
		x.Shape, x.Region = append(x.Shape, a.Length), append(x.Region, [2]int64{a.Begin, a.End})
	}
	return x
}

func describeFields(c *listing.Grid) ([]describedField, error) {
	crops, _, err := zarr.FieldsOf(c.Cut.Kind())
	if err != nil {
		return nil, err
	}
	var list []describedField
	row := c.Cut.Row()
	for k := range c.Fields {
		f, a := c.Cut.Field(k), c.Fields[k].Array
		descr := c.Cut.Type(k).Descr
		field := describedField{
			Name: f.Name, Path: f.Path, Dtype: dtypeJSON(descr), Dims: namesOf(a.Dims, len(a.Shape)), Crop: crops[k].Crop,
			Offset: row.Offsets[k], Bytes: row.Sizes[k], Chunk: a.Chunk, Object: a.Object, Codecs: codecNames(a),
			Fill: fillValue(descr, c.Cut.Fill(k)), Attributes: attributesOf(a),
		}
		if p := c.Cut.Packing(k); p != nil {
			field.Stored = &describedStored{Dtype: dtypeJSON(p.Type.Descr), Scale: p.Scale, Offset: p.Offset, Missing: []any{}}
			for _, m := range p.Missing {
				field.Stored.Missing = append(field.Stored.Missing, fillValue(p.Type.Descr, m))
			}
			field.Attributes = p.Others(field.Attributes)
		}
		list = append(list, field)
	}
	return list, nil
}

// describeCoords describes the files in coords.
func (g *generation) describeCoords(ctx context.Context) (map[string]describedCoords, error) {
	x, err := g.coordinatesOf(ctx, 0)
	if err != nil {
		return nil, fmt.Errorf("coordinates of %s: %w", g.cubes[0].Object.Path, err)
	}
	list := map[string]describedCoords{}
	for _, c := range x.found {
		file := "coords/" + c.Dim + ".npy"
		if len(g.cubes) > 1 {
			file = "coords/" + g.cubes[0].Object.Path + "/" + c.Dim + ".npy"
		}
		list[c.Dim] = describedCoords{file, dtypeJSON(c.Array.Type.Descr), attributesOf(c.Array)}
	}
	return list, nil
}

// namesOf returns the names of n dimensions.
func namesOf(names []string, n int) []string {
	if names == nil {
		return make([]string, n)
	}
	return names
}

// dtypeJSON returns a dtype as JSON: "<i2", or a list of fields in the form of NumPy's descr.
func dtypeJSON(descr string) json.RawMessage {
	if strings.HasPrefix(descr, "'") {
		b, _ := json.Marshal(strings.Trim(descr, "'")) // a string can always be marshalled
		return b
	}
	b, _ := json.Marshal(descr)
	return b
}

// packingText describes the computation for people: "<i2 × 0.01 + 273.15, NaN for -32768".
func packingText(p *zarr.Packing) string {
	text := strings.Trim(p.Type.Descr, "'")
	if p.Scale != 1 {
		text += fmt.Sprintf(" × %v", p.Scale)
	}
	if p.Offset != 0 {
		text += fmt.Sprintf(" + %v", p.Offset)
	}
	for i, m := range p.Missing {
		word := []string{", NaN for", " and"}[min(i, 1)]
		text += fmt.Sprintf("%s %v", word, fillValue(p.Type.Descr, m))
	}
	return text
}

// codecNames are the encoding steps of a chunk, in the order in which they are undone.
func codecNames(a *zarr.Array) []string {
	names := []string{}
	for range a.Levels {
		names = append(names, "sharding")
	}
	for _, s := range a.Chain.Steps {
		names = append(names, string(s.Codec))
	}
	if a.Chain.Order != nil {
		names = append(names, "transpose")
	}
	return names
}

// attributesOf returns an array's attributes, or nil if they are too large.
func attributesOf(a *zarr.Array) json.RawMessage {
	if len(a.Attributes) > maxDescribedAttributes {
		return nil
	}
	return a.Attributes
}

// fillValue returns a fill value as a number or text: "NaN", "Infinity" and "-Infinity" for what
// JSON has no number for, and the bytes in hex for all other types.
func fillValue(descr string, b []byte) any {
	bits := uint64(0)
	for i := len(b) - 1; i >= 0 && len(b) <= 8; i-- {
		bits = bits<<8 | uint64(b[i])
	}
	switch strings.Trim(descr, "'") {
	case "|b1":
		return bits != 0
	case "|u1", "<u2", "<u4", "<u8":
		return bits
	case "|i1", "<i2", "<i4", "<i8":
		shift := 64 - 8*len(b)
		return int64(bits<<shift) >> shift
	case "<f4":
		return floatJSON(float64(math.Float32frombits(binary.LittleEndian.Uint32(b))))
	case "<f8":
		return floatJSON(math.Float64frombits(bits))
	}
	return fmt.Sprintf("0x%x", b)
}

func floatJSON(x float64) any {
	switch {
	case math.IsNaN(x):
		return "NaN"
	case math.IsInf(x, 1):
		return "Infinity"
	case math.IsInf(x, -1):
		return "-Infinity"
	}
	return x
}
