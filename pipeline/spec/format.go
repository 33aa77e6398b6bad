package spec

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Zarr selects the crops of Zarr arrays that are the records. It has the flags as given: dimension
// names are resolved when the arrays are opened. The zero value means no crops.
type Zarr struct {
	// Fields are the arrays from which crops are cut together, by path below each hierarchy; the
	// name "" stands for the path's last component. If empty, it is the one array that has all
	// dimensions of Crop.
	Fields []Array
	// Crop is the number of elements of a crop; Stride is the distance between the origins of
	// adjacent crops (default: the length of a crop), and Step the distance between a crop's
	// elements (default: 1). A dimension that Crop does not name is taken whole, or as in Select.
	// Crop or Select must be given.
	Crop, Stride, Step []DimValue
	Select             []Selection
	Wrap               []string // dimensions along which crops wrap around
	Cover              bool     // the last crops are aligned to the end of the region
	Jitter             bool     // origins move within their strides, differently in each epoch
	Stack              bool     // fields become one array with an additional dimension
	// As is AsFloat32, or "" for elements as stored. Scale and Offset override the CF attributes
	// for an array's scale and offset.
	As            As
	Scale, Offset []FieldNumber
	// List is a file of origins; "" for all origins of the grid.
	List    string
	Missing Missing
}

// DimValue is a number for a dimension; Dim is "" if numbers are by position.
type DimValue struct {
	Dim   string
	Value int64
}

// FieldNumber is a number for a field; Field is "" if it is for all.
type FieldNumber struct {
	Field string
	Value float64
}

// NumberOf returns a list's number for a field, or nil.
func NumberOf(list []FieldNumber, field string) *float64 {
	for i, n := range list {
		if n.Field == "" || n.Field == field {
			return &list[i].Value
		}
	}
	return nil
}

// ParseFieldNumbers parses a number for all fields, "0.01", or numbers of fields by name,
// "sat=0.01,hrv=0.02".
func ParseFieldNumbers(text string) ([]FieldNumber, error) {
	var list []FieldNumber
	for part := range strings.SplitSeq(text, ",") {
		name, number, named := strings.Cut(part, "=")
		if !named {
			name, number = "", part
		}
		x, err := strconv.ParseFloat(number, 64)
		if err != nil || named && name == "" {
			return nil, fmt.Errorf("%q is not a number: write 0.01 for all arrays, or sat=0.01,hrv=0.02", part)
		}
		if len(list) > 0 && (!named || list[0].Field == "") {
			return nil, fmt.Errorf("%q has more than one number without a name: write one for all arrays, or name them all", text)
		}
		if slices.ContainsFunc(list, func(n FieldNumber) bool { return n.Field == name }) {
			return nil, fmt.Errorf("%q names %s twice", text, name)
		}
		list = append(list, FieldNumber{name, x})
	}
	return list, nil
}

// Selection is a region of a dimension, [Begin, End), with End -1 for no upper bound; or single
// Places, for a dimension that crops take whole.
type Selection struct {
	Dim        string
	Begin, End int64
	Places     []int64
}

// Missing is the treatment of crops that need a chunk which is not stored.
type Missing string

const (
	MissingFill Missing = "fill" // the chunk consists of the fill value; the default
	MissingSkip Missing = "skip" // the crop is skipped
)

// Or returns m, or the default if it is not set.
func (m Missing) Or() Missing {
	if m == "" {
		return MissingFill
	}
	return m
}

// maxDims bounds lists of dimensions.
const maxDims = 32

// Asked reports whether any setting was given.
func (z Zarr) Asked() bool {
	return len(z.Fields)+len(z.Crop)+len(z.Stride)+len(z.Step)+len(z.Select)+len(z.Wrap) > 0 ||
		z.Cover || z.Jitter || z.Stack || z.List != "" || z.Missing != "" || z.As != "" || len(z.Scale)+len(z.Offset) > 0
}

// ParseDims parses numbers of dimensions by name, "time=24,y=128", or by position, "24,128".
func ParseDims(text string) ([]DimValue, error) {
	var list []DimValue
	for part := range strings.SplitSeq(text, ",") {
		name, number, named := strings.Cut(part, "=")
		if !named {
			name, number = "", part
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if begin, _, is := strings.Cut(number, ":"); is && named && name != "" && begin != "" {
			return nil, fmt.Errorf("%q is a region, but a length is needed: write %s=24; --select %s chooses the region that crops are taken from", part, name, part)
		}
		if err != nil || n < 1 || named && name == "" {
			return nil, fmt.Errorf("%q is not a number of a dimension: write time=24,y=128, or 24,128 for dimensions without names", part)
		}
		if len(list) > 0 && named != (list[0].Dim != "") {
			return nil, fmt.Errorf("%q has numbers with and without names: name all dimensions, or none", text)
		}
		if named && slices.ContainsFunc(list, func(v DimValue) bool { return v.Dim == name }) {
			return nil, fmt.Errorf("%q names %s twice", text, name)
		}
		list = append(list, DimValue{name, n})
	}
	if len(list) > maxDims {
		return nil, fmt.Errorf("%d dimensions are given: at most %d are supported", len(list), maxDims)
	}
	return list, nil
}

// ParseSelections parses one or more selections: "time=0:70000,channel=3,5,7".
func ParseSelections(text string) ([]Selection, error) {
	var list []Selection
	for rest := text; rest != ""; {
		one := rest
		// The next selection begins after the last comma before its "=".
		if _, behind, named := strings.Cut(rest, "="); named {
			if next := strings.IndexByte(behind, '='); next >= 0 {
				if comma := strings.LastIndexByte(behind[:next], ','); comma >= 0 {
					one = rest[:len(rest)-len(behind)+comma]
				}
			}
		}
		rest = strings.TrimPrefix(rest[len(one):], ",")
		s, err := ParseSelection(one)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	if list == nil {
		_, err := ParseSelection("")
		return nil, err
	}
	return list, nil
}

// ParseSelection parses a region of a dimension, "time=0:70000", "time=70000:", or places in one,
// "channel=3,5,7".
func ParseSelection(text string) (Selection, error) {
	name, what, named := strings.Cut(text, "=")
	wrong := fmt.Errorf("%q selects nothing: write time=0:70000 for a region, or channel=3,5,7 for single places", text)
	if !named || name == "" || what == "" {
		return Selection{}, wrong
	}
	s := Selection{Dim: name, End: -1}
	if from, to, is := strings.Cut(what, ":"); is {
		var errs [2]error
		if from != "" {
			s.Begin, errs[0] = strconv.ParseInt(from, 10, 64)
		}
		if to != "" {
			s.End, errs[1] = strconv.ParseInt(to, 10, 64)
		}
		switch {
		case errors.Join(errs[:]...) != nil || s.Begin < 0 || to != "" && s.End < 0:
			return Selection{}, wrong
		case to != "" && s.End <= s.Begin:
			return Selection{}, fmt.Errorf("%q selects nothing: the region ends before it begins", text)
		}
		return s, nil
	}
	for part := range strings.SplitSeq(what, ",") {
		n, err := strconv.ParseInt(part, 10, 64)
		if err != nil || n < 0 {
			return Selection{}, wrong
		}
		s.Places = append(s.Places, n)
	}
	if len(s.Places) > maxPlaces {
		return Selection{}, fmt.Errorf("--select %s has %d places: at most %d are supported; select a region, or store these places as an array of their own", name, len(s.Places), maxPlaces)
	}
	return s, nil
}

const maxPlaces = 4096

// ParseFields parses the paths of arrays, each with or without a name: "t=2m_temperature,wind".
func ParseFields(text string) ([]Array, error) {
	var list []Array
	for part := range strings.SplitSeq(text, ",") {
		name, path, named := strings.Cut(part, "=")
		if !named {
			name, path = "", part
		}
		if path == "" || named && name == "" {
			return nil, fmt.Errorf("%q is not an array: write its path, or name=path", part)
		}
		list = append(list, Array{name, path})
	}
	return list, nil
}

// NameOf returns the name of a field: the given one, or its path's last component.
func NameOf(field Array) string {
	if field.Name != "" {
		return field.Name
	}
	path := strings.TrimRight(field.Pattern, "/")
	return path[strings.LastIndexByte(path, '/')+1:]
}

func (f Format) validateZarr(p *problems) {
	z := f.Zarr
	if f.Name != "zarr" {
		if z.Asked() {
			p.addf("--crop, --stride and the other flags of crops need --format zarr, not %q", f.Name)
		}
		return
	}
	if len(z.Fields) > maxArrays {
		p.addf("--array names %d arrays: at most %d are read together", len(z.Fields), maxArrays)
	}
	names := map[string]bool{}
	for _, x := range z.Fields {
		name := NameOf(x)
		if names[name] {
			p.addf("--array: two arrays are named %s: give them different names, such as --array a=%s", name, x.Pattern)
		}
		names[name] = true
	}
	dims := map[string]bool{}
	for _, s := range z.Select {
		if dims[s.Dim] {
			p.addf("--select names %s twice", s.Dim)
		}
		dims[s.Dim] = true
	}
	if z.Missing != "" {
		oneOf(p, "--missing", z.Missing, MissingFill, MissingSkip)
	}
	if z.Jitter && z.List != "" && len(z.Stride) == 0 {
		p.addf("--jitter with --crops needs --stride, which bounds how far origins may move")
	}
	if z.As != "" && z.As != AsFloat32 {
		p.addf("--as %s needs --format lc0, not %q: crops can be of float32", z.As, f.Name)
	}
	if z.As == "" && len(z.Scale)+len(z.Offset) > 0 {
		p.addf("--scale and --offset need --as float32: add that, or leave them out")
	}
	z.validateNumbers(p, "--scale", z.Scale)
	z.validateNumbers(p, "--offset", z.Offset)
	if z.Stack && len(z.Fields) == 1 {
		p.addf("--stack needs several arrays, but --array names one: name more, or leave --stack out")
	}
}

// validateNumbers validates Scale or Offset.
func (z Zarr) validateNumbers(p *problems, flag string, list []FieldNumber) {
	for _, n := range list {
		switch x := float32(n.Value); {
		case math.IsNaN(float64(x)) || math.IsInf(float64(x), 0):
			p.addf("%s (%v) must be a number that fits float32", flag, n.Value)
		case x == 0 && flag == "--scale":
			p.addf("--scale (%v) must not be 0 as a float32: all elements would be the same", n.Value)
		}
		named := func(x Array) bool { return NameOf(x) == n.Field }
		if n.Field != "" && len(z.Fields) > 0 && !slices.ContainsFunc(z.Fields, named) {
			p.addf("%s names %s: --array does not name that array", flag, n.Field)
		}
	}
}

// ZarrOrder returns an order with settings that suit crops: runs of 64 crops that are close to each
// other are shuffled in blocks of 4096, so that a chunk is decoded once for many crops.
func ZarrOrder(o Order) Order {
	o.Shuffle, o.SizeRecords, o.ChunkRecords, o.ChunkBytes = ShuffleBlock, 4096, 64, 1<<40
	return o
}

// Array is one of several arrays whose rows are read together as records. Pattern selects its
// files, relative to the dataset's directory.
type Array struct{ Name, Pattern string }

// maxArrays bounds Format.Arrays.
const maxArrays = 64

// nameOfArray matches the allowed names of fields of structured arrays: Python identifiers, so that
// no quoting is needed anywhere.
var nameOfArray = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

func (f Format) validateArrays(p *problems) {
	if len(f.Arrays) == 0 {
		return
	}
	if f.Name != "npy" && f.Name != "auto" {
		p.addf("--array needs --format npy, not %q", f.Name)
	}
	if n := len(f.Arrays); n < 2 || n > maxArrays {
		p.addf("--array must be given once for each of 2 to %d arrays, not %d: a single array needs no --array", maxArrays, n)
	}
	seen := map[string]bool{}
	for _, a := range f.Arrays {
		if !nameOfArray.MatchString(a.Name) {
			p.addf("--array: the name %q must be letters, digits and _, up to 64 of them, and not begin with a digit", a.Name)
		}
		if seen[a.Name] {
			p.addf("--array %s is given twice", a.Name)
		}
		seen[a.Name] = true
		if a.Pattern == "" || strings.HasPrefix(a.Pattern, "/") {
			p.addf("--array %s: the pattern %q must be relative to the dataset's directory", a.Name, a.Pattern)
		}
	}
}

// ArrayNames returns the names of the arrays, joined by commas.
func (f Format) ArrayNames() string {
	names := make([]string, len(f.Arrays))
	for i, a := range f.Arrays {
		names[i] = a.Name
	}
	return strings.Join(names, ",")
}

// As is the form in which a stream has each record: its bytes, or tensors made from them. It
// affects neither the selection nor the order of records. The zero value is the bytes.
type As string

// Tensors of lc0's frames, in the layout of lczero-training. They differ in the element type of the
// planes.
const (
	AsTensorsU1 As = "tensors:u1" // uint8
	AsTensorsF2 As = "tensors:f2" // float16
	AsTensorsF4 As = "tensors:f4" // float32
)

// AsFloat32 converts the elements of Zarr arrays to float32 (Zarr.As). Unlike the others it changes
// the records themselves, not only their form in streams.
const AsFloat32 As = "float32"

// How rows of tables are presented.
const (
	AsJSONL As = "jsonl"
	AsTar   As = "tar"
	AsNPY   As = "npy"
)

var asRows = []As{AsJSONL, AsTar, AsNPY}

var asTensors = []As{AsTensorsU1, AsTensorsF2, AsTensorsF4}

// Element returns the type of the planes' elements, "u1", "f2" or "f4"; "" if there is none.
func (a As) Element() string {
	_, element, _ := strings.Cut(string(a), ":")
	return element
}

// ParseAs parses "tensors", which means tensors:u1, or tensors with a type after a colon, or
// float32.
func ParseAs(text string) (As, error) {
	a := As(text)
	if text == "tensors" {
		a = AsTensorsU1
	}
	return a, a.check()
}

// Format returns the name of the format that has streams of this form; "" for none.
func (a As) Format() string {
	switch {
	case slices.Contains(asRows, a):
		return "parquet"
	case slices.Contains(asTensors, a):
		return "lc0"
	case a == AsFloat32:
		return "zarr"
	}
	return ""
}

func (a As) check() error {
	switch {
	case a == "" || a == AsFloat32 || slices.Contains(asTensors, a) || slices.Contains(asRows, a):
		return nil
	case strings.HasPrefix(string(a), "tensors:"):
		return fmt.Errorf("--as %s: the elements of planes are of type u1, f2 or f4, as in tensors:f2", a)
	}
	return fmt.Errorf("--as %q: streams can be of tensors, tensors:u1, tensors:f2 or tensors:f4 (format lc0), of float32 (format zarr), or of jsonl, tar or npy (format parquet); without --as they are of the records' bytes", string(a))
}

// RowsError returns an error if Rows has what shards of the format can't have.
func (f Format) RowsError() error {
	switch r := f.Rows; {
	case f.Name == "parquet":
		return nil
	case f.Name != "tokens" && r != (Rows{}):
		return errors.New("--columns, --pack, --eos, --dtype and --cut need --format parquet; --pack and --dtype are also for --format tokens")
	case r.EOS != "":
		return errors.New("--eos is for tables: let the tokenizer write the token that ends documents")
	case r.Columns != "" || r.Groups:
		return errors.New("--columns and --cut are for tables: files of tokens have no columns")
	}
	return nil
}

func (f Format) validateAs(p *problems) {
	if err := f.As.check(); err != nil {
		p.addf("%w", err)
	}
	if f.As == AsFloat32 {
		p.addf("--as %s needs --format zarr, not %q", f.As, f.Name)
		return
	}
	if needs := f.As.Format(); f.As != "" && f.Name != needs && f.Name != "auto" {
		p.addf("--as %s needs --format %s, not %q", f.As, needs, f.Name)
	}
	if err := f.RowsError(); err != nil && f.Name != "auto" {
		p.addf("--format %s: %w", f.Name, err)
	}
	if f.As != "" && len(f.Arrays) > 0 {
		p.addf("--as %s and --array can't be combined: leave one of them out", f.As)
	}
}
