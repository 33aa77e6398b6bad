package zarr

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// dimOptions is what flags set for one dimension. 0 and nil mean that a flag was not given.
type dimOptions struct {
	crop, stride, step int64
	begin, end         int64 // end -1: all
	places             []int64
	wrap, selected     bool
	told               bool // an error was reported that it can't be applied
}

// resolver determines which dimensions flags apply to.
type resolver struct {
	z        spec.Zarr
	first    *CutField
	listed   int                    // number of fields for which the list has origins
	options  []dimOptions           // of the first field's dimensions
	others   map[string]*dimOptions // of dimensions that only other fields have
	problems []error
	short    []error // why there are no crops
}

func newResolver(z spec.Zarr, list *List, fields []CutField) *resolver {
	first := &fields[0]
	r := &resolver{z: z, first: first, options: make([]dimOptions, len(first.Array.Shape)), others: map[string]*dimOptions{}}
	for i := range r.options {
		r.options[i].end = -1
	}
	if list != nil {
		r.listed = len(list.Fields)
	}
	for _, f := range fields[1:] {
		for _, name := range f.Array.Dims {
			if name != "" && !slices.Contains(first.Array.Dims, name) {
				r.others[name] = &dimOptions{end: -1}
			}
		}
	}
	r.numbers("--crop", z.Crop, func(o *dimOptions, n int64) { o.crop = n })
	r.numbers("--stride", z.Stride, func(o *dimOptions, n int64) { o.stride = n })
	r.numbers("--step", z.Step, func(o *dimOptions, n int64) { o.step = n })
	for _, s := range z.Select {
		if o := r.option("--select", s.Dim); o != nil {
			o.begin, o.end, o.places, o.selected = s.Begin, s.End, s.Places, true
		}
	}
	for _, name := range z.Wrap {
		if o := r.option("--wrap", name); o != nil {
			o.wrap = true
		}
	}
	return r
}

func (r *resolver) addf(format string, args ...any) {
	r.problems = append(r.problems, fmt.Errorf(format, args...))
}

func (r *resolver) errs() error { return errors.Join(r.problems...) }

// numbers sets a number for each dimension.
func (r *resolver) numbers(flag string, list []spec.DimValue, set func(*dimOptions, int64)) {
	if len(list) > 0 && list[0].Dim == "" {
		if len(list) != len(r.options) {
			r.addf("%s has %d numbers, and array %s has %d dimensions (%s): give one for each, or name them", flag, len(list), r.first.at(), len(r.options), r.first.shape())
			return
		}
		for i, v := range list {
			set(&r.options[i], v.Value)
		}
		return
	}
	for _, v := range list {
		if o := r.option(flag, v.Dim); o != nil {
			set(o, v.Value)
		}
	}
}

// option returns the options of a dimension, given by name or, if it has none, by its index from 0.
// If there is no such dimension, it adds a problem and returns nil.
func (r *resolver) option(flag, name string) *dimOptions {
	dims := r.first.Array.Dims
	if i := r.first.Array.Dimension(name); i >= 0 {
		if len(dims) > 0 && slices.Contains(dims[i+1:], name) {
			r.addf("%s %s: two dimensions of array %s have this name: give numbers by position", flag, name, r.first.at())
		}
		return &r.options[i]
	}
	if o := r.others[name]; o != nil {
		return o
	}
	switch {
	case len(dims) == 0 && (flag == "--select" || flag == "--wrap"):
		r.addf("%s %s: the dimensions of array %s have no names (%s): give the dimension's number, from 0 to %d", flag, name, r.first.at(), r.first.shape(), len(r.options)-1)
	case len(dims) == 0:
		r.addf("%s %s: the dimensions of array %s have no names (%s): give numbers by position, as %s 24,128,128", flag, name, r.first.at(), r.first.shape(), flag)
	default:
		r.addf("%s %s: no dimension has this name: there are %s", flag, name, r.first.shape())
	}
	return nil
}

// at returns the array's name for messages.
func (f *CutField) at() string {
	if f.Path == "" {
		return "."
	}
	return f.Path
}

// shape returns the array's dimensions for messages.
func (f *CutField) shape() string { return ShapeText(f.Array.Shape, f.Array.Dims) }

// field determines how crops are placed in field i.
func (r *resolver) field(i int, f CutField) cutField {
	c := cutField{CutField: f}
	dims := len(f.Array.Shape)
	if first := r.first; i > 0 && dims > 0 && (f.Array.Dims == nil) != (first.Array.Dims == nil) {
		r.addf("only one of the arrays %s (%s) and %s (%s) has names for its dimensions, so lsiofs can't tell which of them are the same: name them in both arrays, or in neither", first.at(), first.shape(), f.at(), f.shape())
	}
	for d := range dims {
		of, o := r.optionsOf(i, &f, d)
		c.of = append(c.of, of)
		if o == nil {
			o = &dimOptions{end: -1}
		}
		if of < 0 && i >= r.listed {
			r.whole(&f, d, o)
		}
		own := i == 0 || of < 0 || f.Array.Shape[d] != r.first.Array.Shape[of]
		c.axes = append(c.axes, r.axis(own, i == 0, &f, d, *o))
		if o.places != nil {
			if c.places == nil {
				c.places = make([][]int64, dims)
			}
			c.places[d] = o.places
		}
	}
	return c
}

// whole refuses flags that would move crops along dimension d of a field if the first array lacks
// that dimension: origins are those of the first array, so nothing determines where along it a crop
// is.
func (r *resolver) whole(f *CutField, d int, o *dimOptions) {
	if o == nil || o.told {
		return
	}
	end := f.Array.Shape[d]
	if o.end >= 0 {
		end = min(end, o.end)
	}
	var flags []string
	if all := (end-o.begin-1)/max(o.step, 1) + 1; o.crop > 0 && o.crop < all {
		flags = append(flags, "--crop")
	}
	if o.stride > 0 {
		flags = append(flags, "--stride")
	}
	if o.wrap {
		flags = append(flags, "--wrap")
	}
	if flags == nil {
		return
	}
	o.told = true
	name := f.Array.Dims[d]
	r.addf("%s %s: array %s has this dimension, and the first array, %s (%s), does not: crops have all of it, or what --select takes of it, as in --select %s=%d:%d; for crops along it name %s first in --array",
		strings.Join(flags, ", "), name, f.at(), r.first.at(), r.first.shape(), name, o.begin, o.begin+max(o.crop, 1), f.at())
}

// optionsOf returns the options of a dimension of field i, and which dimension of the first field
// it is, or -1.
func (r *resolver) optionsOf(i int, f *CutField, d int) (of int, o *dimOptions) {
	if i == 0 {
		return d, &r.options[d]
	}
	name := ""
	if f.Array.Dims != nil {
		name = f.Array.Dims[d]
	}
	first := r.first.Array
	of = slices.Index(first.Dims, name)
	if name == "" {
		of = -1
		if first.Dims == nil && f.Array.Dims == nil && len(first.Shape) == len(f.Array.Shape) {
			of = d
		}
	}
	if of < 0 {
		return -1, r.others[name]
	}
	if f.Array.Shape[d] != first.Shape[of] && r.z.List == "" {
		r.addf("arrays %s (%s) and %s (%s) have a dimension of the same name with different lengths: crops of them need a list of origins (--crops)", r.first.at(), r.first.shape(), f.at(), f.shape())
	}
	return of, &r.options[of]
}

// axis resolves a dimension of an array. tell means that its problems are to be reported, because
// no other field has the same ones. first means that it is a dimension of the first field, where a
// region that is too short just has no crops.
func (r *resolver) axis(tell, first bool, f *CutField, d int, o dimOptions) Axis {
	a := Axis{
		Name: fmt.Sprint("dimension ", d), Length: f.Array.Shape[d], Edge: f.Array.Chunk[d],
		Begin: o.begin, End: o.end, Crop: o.crop, Step: max(o.step, 1), Stride: o.stride, Wrap: o.wrap,
	}
	if f.Array.Dims != nil && f.Array.Dims[d] != "" {
		a.Name = f.Array.Dims[d]
	}
	if o.end < 0 {
		a.Begin, a.End = min(a.Begin, a.Length), a.Length
	}
	if o.places != nil {
		return r.placed(tell, f, a, o)
	}
	if a.Crop == 0 {
		a.Crop = max((a.End-a.Begin-1)/a.Step+1, 1)
	}
	if a.Stride == 0 && a.Crop < MaxEdge && a.Step < MaxEdge/a.Crop {
		a.Stride = a.Extent()
	}
	if err := a.check(); err != nil {
		if tell {
			r.addf("array %s: %w", f.at(), err)
		}
		return a
	}
	if tell && a.positions(false) == 0 {
		err := fmt.Errorf("array %s: the region of %s begins at %d, and there are %d elements: begin before that", f.at(), a.Name, o.begin, a.Length)
		if o.begin < a.Length || o.begin == 0 {
			err = fmt.Errorf("array %s: a crop of %s takes %d elements, and %d:%d has %d: ask for shorter crops", f.at(), a.Name, a.Extent(), a.Begin, a.End, a.End-a.Begin)
		}
		if first {
			r.short = append(r.short, err)
		} else {
			r.problems = append(r.problems, err)
		}
	}
	return a
}

// placed resolves a dimension with selected single places: there is one position, at the first of
// them.
func (r *resolver) placed(tell bool, f *CutField, a Axis, o dimOptions) Axis {
	if tell {
		if o.crop != 0 || o.stride != 0 || o.step != 0 || o.wrap {
			r.addf("--select %s names single places, which are in every crop: leave %s out of --crop, --stride, --step and --wrap; or select a region, as --select %s=%d:%d", a.Name, a.Name, a.Name, o.places[0], o.places[len(o.places)-1]+1)
		}
		for _, n := range o.places {
			if n >= a.Length {
				r.addf("--select %s: there is no place %d: array %s has places from 0 to %d", a.Name, n, f.at(), a.Length-1)
			}
		}
	}
	a.Begin, a.End, a.Crop, a.Step, a.Stride, a.Wrap = o.places[0], o.places[0]+1, 1, 1, 1, false
	return a
}
