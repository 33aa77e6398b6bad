package zarr

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// CutField is an array that crops are cut from.
type CutField struct {
	// Name is the field's name in a record of several fields, and Path the array's path below its
	// hierarchy, "" for the hierarchy itself.
	Name, Path string
	Array      *Array
}

// Cut describes the records of a cube: which crops there are, how they are numbered, and how each
// is laid out. It is immutable, and safe for concurrent use.
type Cut struct {
	asked   spec.Zarr
	dims    []string
	fields  []cutField
	row     Row
	axes    []Axis   // of the first field
	origins *Origins // nil if there is a list
	list    *List    // nil if there is none
	order   []int64  // rows of the list, by ordinal
	kept    []uint64 // nil: all
	kind    string
	short   error
}

// cutField describes the crops of one of the arrays.
type cutField struct {
	CutField
	axes   []Axis
	places [][]int64 // Crop.Places
	of     []int     // for each of the array's dimensions, that of the first field; -1: the array's own
	// packing is nil if elements are not converted.
	packing *Packing
	copier  *Copier
}

// NewCut returns the cut of a cube with these fields, in the order of z.Fields. list holds this
// cube's rows of the file z.List; nil if there is none. The error lists everything that is wrong,
// in terms of flags.
func NewCut(z spec.Zarr, list *List, fields []CutField) (*Cut, error) {
	if len(fields) == 0 {
		return nil, fmt.Errorf("no array is named: choose one with --array")
	}
	c := &Cut{asked: z, list: list, dims: slices.Clone(fields[0].Array.Dims)}
	r := newResolver(z, list, fields)
	for i, f := range fields {
		c.fields = append(c.fields, r.field(i, f))
	}
	if list != nil { // the rows are outside the region then
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

// convert determines how elements are converted.
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

// layOut makes the row, and the copiers into it.
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

// checkList checks that the rows of the list give the origins in all fields.
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

// Kind returns one line of text that is equal for cubes whose crops may be mixed in a stream and
// that have the same extent. It is the canonical JSON of everything that the records depend on,
// except the arrays' contents (pipeline/format/CROPS.md, Fingerprint).
func (c *Cut) Kind() string { return c.kind }

// headerAlign: the size of a header is a multiple of it.
const headerAlign = 64

// Header returns the bytes before the records of the cube: its kind, spaces, and a newline, padded
// to a multiple of 64 bytes.
func (c *Cut) Header() []byte { return HeaderOf(c.kind) }

// HeaderOf returns the header of a cube of a kind.
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

// CutHeader parses the header of n bytes that b begins with. ok is false if b does not begin with a
// complete header.
func CutHeader(b []byte) (kind string, n int, ok bool) {
	end := bytes.IndexByte(b, '\n')
	if end < 0 || (end+1)%headerAlign != 0 {
		return "", 0, false
	}
	kind = strings.TrimRight(string(b[:end]), " ")
	return kind, end + 1, len(HeaderOf(kind)) == end+1
}

// Short returns why there is no record: the region is shorter than a crop; nil if there are some.
func (c *Cut) Short() error { return c.short }

// Total returns the number of records.
func (c *Cut) Total() uint64 {
	if c.list != nil {
		return uint64(len(c.order))
	}
	return c.origins.Total()
}

// Row returns the layout of a record.
func (c *Cut) Row() Row { return c.row }

// Dims returns the names of the first field's dimensions; nil if they have none.
func (c *Cut) Dims() []string { return c.dims }

// Axes returns the axes of the first field.
func (c *Cut) Axes() []Axis { return c.axes }

// Counts returns the number of positions along each dimension of the first field; nil if there is a
// list.
func (c *Cut) Counts() []int64 {
	if c.origins == nil {
		return nil
	}
	return c.origins.Counts()
}

// Jitters reports whether the origins differ between epochs.
func (c *Cut) Jitters() bool { return c.asked.Jitter }

// Fields returns the number of fields.
func (c *Cut) Fields() int { return len(c.fields) }

// Field returns one of the fields.
func (c *Cut) Field(i int) CutField { return c.fields[i].CutField }

// Packing returns how the elements of a field are converted; nil if they are not.
func (c *Cut) Packing(field int) *Packing { return c.fields[field].packing }

// Type returns the type of a field's elements in records.
func (c *Cut) Type(field int) Dtype { return c.fields[field].elementType() }

// Fill returns the element of records that absent chunks of a field consist of.
func (c *Cut) Fill(field int) []byte {
	f := &c.fields[field]
	if f.packing != nil {
		return f.packing.Convert(f.Array.Fill)
	}
	return f.Array.Fill
}

func (f *cutField) elementType() Dtype {
	if f.packing != nil {
		return plain(aFloat, 'f', 4)
	}
	return f.Array.Type
}

// Copier returns the copier for crops of a field.
func (c *Cut) Copier(field int) *Copier { return c.fields[field].copier }

// Spot is the place of a record's crops. It can be reused.
type Spot struct {
	// Row is the index of the origin's position in C order or, for a list, of the row in its file.
	Row int64
	// Origin is the origin in the first field, after jitter.
	Origin []int64

	index int64 // for a list: the index among the cube's rows
}

// NewSpot returns a Spot for Locate.
func (c *Cut) NewSpot() *Spot { return &Spot{Origin: make([]int64, len(c.axes))} }

// Locate finds the record of an ordinal below Total. j moves it; nil leaves it in place. It does
// not allocate.
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

// NewCrop returns a crop of a field for Place.
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

// Place moves a crop, which NewCrop returned for that field, to s. It does not allocate.
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

// counts and steps return those of a field's crops.
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

// Keep returns the cut without some crops, which are left out of all orders: those whose bit in
// kept is 0. kept has a bit for each ordinal, lowest first. Ordinals and the place of each crop
// stay the same. The result owns kept; nil keeps all crops.
func (c *Cut) Keep(kept []uint64) (*Cut, error) {
	n := *c
	n.kept = kept
	var err error
	n.kind, err = n.canonical()
	return &n, err
}

// Kept has a bit for each ordinal, lowest first, that is set if the crop is in the orders; nil: all
// are. It must not be modified.
func (c *Cut) Kept() []uint64 { return c.kept }

// keptSum returns the SHA-256 of the bits, ⌈Total/8⌉ bytes; "" if all are kept.
func (c *Cut) keptSum() string {
	if c.kept == nil {
		return ""
	}
	h := sha256.New()
	var b [8]byte
	for left := (c.Total() + 7) / 8; left > 0; {
		binary.LittleEndian.PutUint64(b[:], c.kept[((c.Total()+7)/8-left)/8])
		n := min(left, 8)
		h.Write(b[:n])
		left -= n
	}
	return hex.EncodeToString(h.Sum(nil))
}

// mixedKept is keptSum of several cubes: the SHA-256 of a line with the sum of each cube, or "" if
// no cube leaves anything out.
func mixedKept(kinds []kindText) string {
	var lines strings.Builder
	any := false
	for _, k := range kinds {
		lines.WriteString(k.Kept + "\n")
		any = any || k.Kept != ""
	}
	if !any {
		return ""
	}
	sum := sha256.Sum256([]byte(lines.String()))
	return hex.EncodeToString(sum[:])
}

// NewReach returns a crop of a field for Reach.
func (c *Cut) NewReach(field int) *Crop {
	crop := c.NewCrop(field)
	if c.Jitters() {
		places := make([][]int64, len(c.fields[field].axes)) // a slice of its own, because the places differ by record
		copy(places, crop.Places)
		crop.Places = places
	}
	return crop
}

// Reach sets crop, which NewReach returned, to all elements of a field that a record may use in any
// epoch: the elements of the crop or, if origins move, of all crops that jitter can make of it. s
// is the record's place without jitter.
func (c *Cut) Reach(field int, crop *Crop, s *Spot) {
	c.Place(field, crop, s)
	if !c.Jitters() {
		return
	}
	f := &c.fields[field]
	for d, of := range f.of {
		a := &f.axes[d]
		if of < 0 || f.places != nil && f.places[d] != nil {
			continue
		}
		room := c.axes[of].room(s.Origin[of])
		crop.Places[d] = crop.Places[d][:0]
		switch {
		case a.Step <= room:
			crop.Places[d], crop.Step[d], crop.Count[d] = nil, 1, (a.Crop-1)*a.Step+room
		case room == 1:
			crop.Places[d], crop.Step[d], crop.Count[d] = nil, a.Step, a.Crop
		default: // runs with gaps between them
			for j := range a.Crop {
				for m := range room {
					crop.Places[d] = append(crop.Places[d], crop.Origin[d]+j*a.Step+m)
				}
			}
			crop.Step[d], crop.Count[d] = 1, a.Crop*room
		}
	}
}
