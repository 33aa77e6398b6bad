package pipeline

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/printable"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage/crops/listing"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// maxDescribedDamage bounds the damaged shards that dataset.json lists.
const maxDescribedDamage = 100

// describe is Dataset.Describe, for an epoch that orders the selection of.
func (g *generation) describe(of *selection) ([]byte, error) {
	s, c := g.spec, g.catalog
	document := description{
		Fingerprint: c.Fingerprint(), Root: c.Root(), Dataset: s.Dataset,
		Format:    describedFormat{s.Format.Name, c.Kind(), s.Format.RecordBytes, s.Format.StrideBytes, s.Format.HeaderBytes, s.Format.Lc0Check, nil},
		Extension: c.StreamExtension(),
		Shards:    c.Shards(), Records: g.recordsOf(of), Chunks: len(of.starts) - 1, RecordBytes: g.bytesOf(of),
		Order: describedOrder{
			s.Order.Seed, string(s.Order.Shuffle), s.Order.SizeRecords, s.Order.Lanes, s.Order.Groups,
			s.Order.Batch, s.Order.ChunkBytes, s.Order.ChunkRecords, nil, nil, s.Order.Length,
		},
		Deal:    describedDeal{s.Deal.Workers, s.Deal.Batch, string(s.Deal.Dealing), string(s.Deal.Tail)},
		Damaged: len(c.Damaged()),
	}
	for _, a := range s.Format.Arrays {
		document.Format.Arrays = append(document.Format.Arrays, describedArray(a))
	}
	if p, ok := c.Unpacker().(format.Presenter); ok {
		descr, remark := p.RowType()
		document.Rows = &describedRows{string(s.Format.As), c.RowBytes(), descr, remark}
	}
	if s.Order.Split != (spec.Split{}) {
		document.Order.Split = &describedSplit{s.Order.Split.Part.String(), s.Order.Split.Seed, string(s.Order.Split.By)}
	}
	if g.sampled() {
		document.Order.Sample = &describedSample{s.Order.Sample.Of, s.Order.Sample.Seed}
	}
	for _, x := range g.mixedSources() {
		document.Sources = append(document.Sources, describedSource{x.Name, spec.WeightText(x.Weight), x.Dataset, x.Fingerprint, x.Records, x.Bytes, x.Passes})
	}
	if of.part != nil {
		document.Whole = &describedWhole{c.Records(), c.StreamBytes()}
	}
	for _, found := range c.Damaged()[:min(len(c.Damaged()), maxDescribedDamage)] {
		one := describedDamage{Shard: found.Path, Reason: found.Errors[0].Error()}
		if n := found.Count(); n > 1 {
			one.Damages = n
		}
		document.Damage = append(document.Damage, one)
	}
	crops, err := g.describeCrops(context.Background())
	if err != nil {
		return nil, fmt.Errorf("dataset.json: %w", err)
	}
	document.Zarr = crops
	document.Reasons = g.damages()
	document.Directories, document.Omitted = g.directories()
	b, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("dataset.json: %w", err)
	}
	return append(printable.JSON(b), '\n'), nil
}

// damages counts what was left out, by reason; nil if nothing was.
func (g *generation) damages() map[string]uint64 {
	var m map[string]uint64
	for _, r := range g.catalog.DamageReasons() {
		if m == nil {
			m = map[string]uint64{}
		}
		m[r.Text] = r.Count
	}
	return m
}

// description is the document dataset.json.
type description struct {
	Fingerprint string          `json:"fingerprint"`
	Root        string          `json:"root"`
	Dataset     string          `json:"dataset"`
	Format      describedFormat `json:"format"`
	Extension   string          `json:"extension"`
	Shards      int             `json:"shards"`
	Records     uint64          `json:"records"` // after the split; with a sample, those of the epoch
	Chunks      int             `json:"chunks"`  // likewise
	RecordBytes int64           `json:"bytes"`   // likewise
	Whole       *describedWhole `json:"whole,omitempty"`
	Rows        *describedRows  `json:"rows,omitempty"`
	Zarr        *describedZarr  `json:"zarr,omitempty"`
	// Sources are those of a mixture. Records then counts the positions of an epoch; bytes is the
	// size of all sources' records, each counted once.
	Sources []describedSource `json:"sources,omitempty"`
	Order   describedOrder    `json:"order"`
	Deal    describedDeal     `json:"deal"`
	// Directories are those of a dataset of single files. If there are too many, Omitted is their
	// number instead.
	Directories []directory `json:"directories,omitempty"`
	Omitted     int         `json:"directories_omitted,omitempty"`
	Damaged     int         `json:"damaged_shards"`
	// Reasons counts all damages; Damage lists the first shards.
	Reasons map[string]uint64 `json:"damages_by_reason,omitempty"`
	Damage  []describedDamage `json:"damage,omitempty"`
}

type describedDamage struct {
	Shard   string `json:"shard"`
	Reason  string `json:"reason"`            // of the first damage
	Damages uint64 `json:"damages,omitempty"` // if there are several
}

type describedArray struct {
	Name    string `json:"name"`
	Pattern string `json:"pattern"`
}

// describedRows is set if streams contain rows made from the records.
type describedRows struct {
	As     string `json:"as"`
	Bytes  int64  `json:"row_bytes"`
	Descr  string `json:"descr"`
	Remark string `json:"remark,omitempty"`
}

type describedFormat struct {
	Name        string           `json:"name"`
	Kind        string           `json:"kind,omitempty"`
	RecordBytes int64            `json:"record_bytes,omitempty"`
	StrideBytes int64            `json:"stride_bytes,omitempty"`
	HeaderBytes int64            `json:"header_bytes,omitempty"`
	Lc0Check    bool             `json:"lc0_check,omitempty"`
	Arrays      []describedArray `json:"arrays,omitempty"`
}

type describedSplit struct {
	Part string `json:"part"`
	Seed uint64 `json:"seed"`
	By   string `json:"by"`
}

type describedSample struct {
	Of   uint64 `json:"of"`
	Seed uint64 `json:"seed"`
}

type describedOrder struct {
	Seed         uint64           `json:"seed"`
	Shuffle      string           `json:"shuffle"`
	Size         uint64           `json:"size"`
	Lanes        uint64           `json:"lanes"`
	Groups       uint64           `json:"groups"`
	Batch        uint64           `json:"batch"`
	ChunkBytes   uint64           `json:"chunk_bytes"`
	ChunkRecords uint64           `json:"chunk_records"`
	Split        *describedSplit  `json:"split,omitempty"`
	Sample       *describedSample `json:"sample,omitempty"`
	Length       uint64           `json:"length,omitempty"`
}

// describedSource is a source of a mixture.
type describedSource struct {
	Name        string  `json:"name"`
	Weight      string  `json:"weight"`
	Dataset     string  `json:"dataset"`
	Fingerprint string  `json:"fingerprint"`
	Records     uint64  `json:"records"` // after the split
	RecordBytes int64   `json:"bytes"`   // of these records
	Passes      float64 `json:"passes_an_epoch"`
}

type describedDeal struct {
	Workers uint64 `json:"workers"`
	Batch   uint64 `json:"batch"`
	Deal    string `json:"deal"`
	Tail    string `json:"tail"`
}

type describedWhole struct {
	Records     uint64 `json:"records"`
	RecordBytes int64  `json:"bytes"`
}

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

// Bounds of the directories that dataset.json lists.
const (
	maxDirectories     = 1 << 16
	maxDirectoriesPath = 16 << 20 // total bytes of their paths
)

// directory is a shard of a dataset of single files, in dataset.json.
type directory struct {
	Path string `json:"path"` // relative to the root, "." for the root itself
	// Hex is the bytes of a path that is not valid UTF-8, which JSON can't hold.
	Hex     string `json:"path_hex,omitempty"`
	Records uint64 `json:"records"` // before a split
}

// directories lists the shards of a dataset whose shards are directories, in dataset order. Readers
// that can't list the dataset itself make labels from them. For other datasets the list is empty.
// If there are too many to list, omitted is their number.
func (g *generation) directories() (list []directory, omitted int) {
	c := g.catalog
	if _, ok := c.Unpacker().(format.Foldered); !ok {
		return nil, 0
	}
	return listDirectories(c.Shards(), func(i int) (string, uint64) {
		s := c.Shard(i)
		return s.Object.Path, s.Records
	})
}

func listDirectories(n int, at func(i int) (path string, records uint64)) (list []directory, omitted int) {
	if n > maxDirectories {
		return nil, n
	}
	list = make([]directory, n)
	bytes := 0
	for i := range list {
		path, records := at(i)
		list[i] = directory{Path: path, Records: records}
		if !utf8.ValidString(path) {
			list[i].Hex = hex.EncodeToString([]byte(path))
		}
		if bytes += len(path); bytes > maxDirectoriesPath {
			return nil, n
		}
	}
	return list, 0
}
