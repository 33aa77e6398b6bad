package zarr

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// CutField is an array that crops are cut from.
type CutField struct {
	// Name is that of the field in a record of several, and Path the array's below its hierarchy,
	// "" for the hierarchy itself.
	Name, Path string
	Array      *Array
}

// Cut says what the records of a cube are: which crops there are, how they are numbered, and
// how each is laid out. It does not change, and is safe for concurrent use.
type Cut struct {
	asked   spec.Zarr
	dims    []string
	fields  []cutField
	row     Row
	axes    []Axis   // of the first field
	origins *Origins // nil where there is a list
	list    *List    // nil where there is none
	order   []int64  // of a list: its rows, by ordinal
	kept    []uint64 // nil: all
	kind    string
	short   error
}

// cutField is how crops lie in one of the arrays.
type cutField struct {
	CutField
	axes   []Axis
	places [][]int64 // Crop.Places
	of     []int     // the dimension of the first field, for each of the array's; -1: the array's own
	// packing is nil where elements stay what they are.
	packing *Packing
	copier  *Copier
}

// NewCut is that of a cube with these fields, which are in the order of z.Fields. list is z.List
// as ParseList has read it, with the rows of this cube; nil where there is none. An error has
// all that is wrong, in the words of the flags.
func NewCut(z spec.Zarr, list *List, fields []CutField) (*Cut, error) {
	if len(fields) == 0 {
		return nil, fmt.Errorf("no array is named: choose one with --array")
	}
	c := &Cut{asked: z, list: list, dims: slices.Clone(fields[0].Array.Dims)}
	r := newResolver(z, list, fields)
	for i, f := range fields {
		c.fields = append(c.fields, r.field(i, f))
	}
	if list != nil { // whose rows are then outside of the region
		r.problems = append(r.problems, r.short...)
	}
	if err := r.errs(); err != nil {
		return nil, err
	}
	c.short = errors.Join(r.short...)
	c.axes = c.fields[0].axes
	if err := c.convert(); err != nil {
		return nil, err
	}
	if err := c.layOut(); err != nil {
		return nil, err
	}
	var err error
	if list != nil {
		err = c.takeList()
	} else {
		c.origins, err = NewOrigins(c.axes, z.Cover)
	}
	if err != nil {
		return nil, err
	}
	if c.kind, err = c.canonical(); err != nil {
		return nil, err
	}
	return c, nil
}

// convert finds out how elements become others.
func (c *Cut) convert() error {
	if c.asked.As != spec.AsFloat32 {
		return nil
	}
	var errs []error
	for _, n := range slices.Concat(c.asked.Scale, c.asked.Offset) {
		if n.Field != "" && !slices.ContainsFunc(c.fields, func(f cutField) bool { return f.Name == n.Field }) {
			errs = append(errs, fmt.Errorf("--scale or --offset names %s, which is not an array that is read (--array)", n.Field))
		}
	}
	for i := range c.fields {
		f := &c.fields[i]
		var err error
		f.packing, err = PackingOf(f.Array, spec.NumberOf(c.asked.Scale, f.Name), spec.NumberOf(c.asked.Offset, f.Name))
		if err != nil {
			errs = append(errs, fmt.Errorf("array %s: %w", f.at(), err))
		}
	}
	return errors.Join(errs...)
}

// layOut makes the row, and what copies into it.
func (c *Cut) layOut() error {
	var list []Field
	for i := range c.fields {
		f := &c.fields[i]
		count, step := f.counts(), f.steps()
		f.copier = NewCopier(f.Array, f.packing, count, step)
		list = append(list, Field{f.Name, f.elementType(), count})
	}
	var err error
	c.row, err = RowOf(list, c.asked.Stack)
	return err
}

// takeList orders the rows of the list.
func (c *Cut) takeList() error {
	if err := c.checkList(); err != nil {
		return err
	}
	var wrong []string
	for i := range c.list.rows() {
		for k := range c.list.Fields {
			f := &c.fields[k]
			if err := CheckRow(f.axes, c.list.origin(k, i)); err != nil && len(wrong) < 10 {
				wrong = append(wrong, fmt.Sprintf("row %d: %s: %v", c.list.Numbers[i], f.Name, err))
			}
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("--crops: %s", strings.Join(wrong, "; "))
	}
	var err error
	c.order, err = ListOrder(c.axes, c.list.Fields[0])
	return err
}

// checkList says whether the rows of the list tell the origins in all fields.
func (c *Cut) checkList() error {
	if c.asked.Jitter && len(c.list.Fields) > 1 {
		return fmt.Errorf("--crops: the list has an origin in each array, and --jitter would move that in the first one alone: leave out --jitter, or list origins in the first array")
	}
	first := &c.fields[0]
	for i := len(c.list.Fields); i < len(c.fields); i++ {
		f := &c.fields[i]
		for d, of := range f.of {
			if of >= 0 && f.axes[d].Length != first.axes[of].Length {
				return fmt.Errorf("--crops: arrays %s (%s) and %s (%s) are on different grids, so the list must be a structured array with an origin in each of them", first.at(), first.shape(), f.at(), f.shape())
			}
		}
	}
	return nil
}

// Kind is one line of text, equal for cubes whose crops may be mixed in a stream and which have
// the same extent: the canonical JSON of all that the records depend on but the arrays' contents
// (ZARR.md, Fingerprint).
func (c *Cut) Kind() string { return c.kind }

// headerAlign is what the size of a header is a multiple of.
const headerAlign = 64

// Header is what lies before the records of the cube: its kind, blanks, and a newline, in a
// multiple of 64 bytes.
func (c *Cut) Header() []byte { return HeaderOf(c.kind) }

// HeaderOf is the header of a cube of a kind.
func HeaderOf(kind string) []byte {
	n := (len(kind) + 1 + headerAlign - 1) / headerAlign * headerAlign
	b := append(make([]byte, 0, n), kind...)
	for len(b) < n-1 {
		b = append(b, ' ')
	}
	return append(b, '\n')
}

// MaxHeaderBytes bounds a header.
const MaxHeaderBytes = MaxKindBytes + headerAlign

// CutHeader takes a header apart: b begins with one, which has n bytes. ok is false if it does not,
// or not with all of it.
func CutHeader(b []byte) (kind string, n int, ok bool) {
	end := bytes.IndexByte(b, '\n')
	if end < 0 || (end+1)%headerAlign != 0 {
		return "", 0, false
	}
	kind = strings.TrimRight(string(b[:end]), " ")
	return kind, end + 1, len(HeaderOf(kind)) == end+1
}

// Short says why there is no record: the region is shorter than a crop; nil if there are some.
func (c *Cut) Short() error { return c.short }

// Total is the number of records.
func (c *Cut) Total() uint64 {
	if c.list != nil {
		return uint64(len(c.order))
	}
	return c.origins.Total()
}

// Row is how a record is laid out.
func (c *Cut) Row() Row { return c.row }

// Dims are the names of the first field's dimensions; nil where they have none.
func (c *Cut) Dims() []string { return c.dims }

// Axes are those of the first field.
func (c *Cut) Axes() []Axis { return c.axes }

// Counts is the number of positions along each dimension of the first field; nil where there
// is a list.
func (c *Cut) Counts() []int64 {
	if c.origins == nil {
		return nil
	}
	return c.origins.Counts()
}

// Jitters says that the origins are others in each epoch.
func (c *Cut) Jitters() bool { return c.asked.Jitter }

// Fields is the number of fields, and Field one of them.
func (c *Cut) Fields() int { return len(c.fields) }

// Field is one of the arrays.
func (c *Cut) Field(i int) CutField { return c.fields[i].CutField }

// Packing is how the elements of a field are converted; nil where they stay what they are.
func (c *Cut) Packing(field int) *Packing { return c.fields[field].packing }

// Type is the type of a field's elements in records, and Fill what absent bricks consist of there.
func (c *Cut) Type(field int) Dtype { return c.fields[field].elementType() }

// Fill is that element.
func (c *Cut) Fill(field int) []byte {
	f := &c.fields[field]
	if f.packing != nil {
		return f.packing.Convert(f.Array.Fill)
	}
	return f.Array.Fill
}

func (f *cutField) elementType() Dtype {
	if f.packing != nil {
		return named["float32"]
	}
	return f.Array.Type
}

// Copier copies crops of a field.
func (c *Cut) Copier(field int) *Copier { return c.fields[field].copier }

// Spot is where the crops of a record lie. It is used again and again.
type Spot struct {
	// Row is the number of the origin's position in C order; of a list, the row there.
	Row int64
	// Origin is the first field's, with jitter.
	Origin []int64

	index int64 // of a list: among the cube's rows
}

// NewSpot makes one for Locate.
func (c *Cut) NewSpot() *Spot { return &Spot{Origin: make([]int64, len(c.axes))} }

// Locate finds the record of an ordinal, which is below Total. j moves it; nil leaves it where
// it is. It allocates nothing.
func (c *Cut) Locate(s *Spot, ordinal uint64, j *Jitter) {
	if c.list != nil {
		s.index = c.order[ordinal]
		s.Row = c.list.Numbers[s.index]
		copy(s.Origin, c.list.origin(0, s.index))
	} else {
		c.origins.Position(s.Origin, ordinal)
		s.Row = c.origins.Row(s.Origin)
		c.origins.Origin(s.Origin, s.Origin)
	}
	if j != nil {
		j.Move(s.Origin, c.axes, ordinal)
	}
}

// NewCrop makes a crop of a field for Place.
func (c *Cut) NewCrop(field int) *Crop {
	f := &c.fields[field]
	crop := &Crop{Origin: make([]int64, len(f.axes)), Count: f.counts(), Step: f.steps(), Places: f.places}
	for d, a := range f.axes {
		if a.Wrap {
			if crop.Wrap == nil {
				crop.Wrap = make([]bool, len(f.axes))
			}
			crop.Wrap[d] = true
		}
	}
	return crop
}

// Place puts a crop of a field, which NewCrop has made for it, where s is. It allocates nothing.
func (c *Cut) Place(field int, crop *Crop, s *Spot) {
	f := &c.fields[field]
	if c.list != nil && field < len(c.list.Fields) && field > 0 {
		copy(crop.Origin, c.list.origin(field, s.index))
		return
	}
	for d, of := range f.of {
		if of < 0 {
			crop.Origin[d] = f.axes[d].Begin
		} else {
			crop.Origin[d] = s.Origin[of]
		}
	}
}

// counts and steps are those of crops of a field.
func (f *cutField) counts() []int64 {
	list := make([]int64, len(f.axes))
	for d, a := range f.axes {
		list[d] = a.Crop
		if f.places != nil && f.places[d] != nil {
			list[d] = int64(len(f.places[d]))
		}
	}
	return list
}

func (f *cutField) steps() []int64 {
	list := make([]int64, len(f.axes))
	for d, a := range f.axes {
		list[d] = a.Step
	}
	return list
}
