package zarr

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Crop is a box of elements of an array, Step apart along each dimension. If Wrap is set, elements
// past the end continue at the beginning.
type Crop struct {
	Origin, Count, Step []int64
	// Wrap is nil if no dimension wraps.
	Wrap []bool
	// Places are the elements along a dimension, instead of Origin and Step (which is 1). It is nil
	// if there is no such dimension, and has nil for the other dimensions.
	Places [][]int64
}

// Part is the part of a crop that is in one chunk.
type Part struct {
	// Chunk is the chunk's place in the array's grid of chunks.
	Chunk []int64
	// From is the first element in the chunk, At the first in the crop, and Count how many there
	// are, along each dimension. In the chunk they are Step apart.
	From, At, Count []int64
}

// Parts calls f for each chunk that has elements of the crop, once for each wrapped piece, in C
// order of the crop. The parts are disjoint, and together they are the crop. A part is only valid
// during the call. If f fails, Parts returns its error at once.
//
// shape and edges are those of the array and its chunks, and the crop must be in the array, as
// those of Origins are.
func (c *Crop) Parts(shape, edges []int64, f func(*Part) error) error {
	p := newPart(len(shape))
	return c.partsFrom(0, shape, edges, p, f)
}

func newPart(dims int) *Part {
	all := make([]int64, 4*dims)
	return &Part{all[:dims], all[dims : 2*dims], all[2*dims : 3*dims], all[3*dims:]}
}

// partsFrom visits the chunks along dimension d and the following ones.
func (c *Crop) partsFrom(d int, shape, edges []int64, p *Part, f func(*Part) error) error {
	if d == len(shape) {
		return f(p)
	}
	for j := int64(0); j < c.Count[d]; j += p.Count[d] {
		element, most := c.Origin[d]+j*c.Step[d], c.Count[d]-j
		if c.Places != nil && c.Places[d] != nil {
			element, most = c.Places[d][j], consecutive(c.Places[d][j:])
		}
		if c.Wrap != nil && c.Wrap[d] {
			element %= shape[d]
		}
		chunk := element / edges[d]
		end := min((chunk+1)*edges[d], shape[d])
		p.Chunk[d], p.From[d], p.At[d] = chunk, element-chunk*edges[d], j
		p.Count[d] = min(most, (end-element+c.Step[d]-1)/c.Step[d])
		if err := c.partsFrom(d+1, shape, edges, p, f); err != nil {
			return err
		}
	}
	return nil
}

// consecutive returns how many of the first places follow each other directly.
func consecutive(places []int64) int64 {
	n := 1
	for n < len(places) && places[n] == places[n-1]+1 {
		n++
	}
	return int64(n)
}

// Field is one of the arrays that crops are cut from.
type Field struct {
	// Name is the field's name in a record of several fields.
	Name string
	// Type is the type of the elements in records, and Crop the shape of a crop.
	Type Dtype
	Crop []int64
}

// Row is the layout of a record: a row of the npy file that a stream is.
//
//	crop of field 0 │ zeros to a multiple of 64 │ crop of field 1 │ zeros … │ …
//
// A record of one field, or of stacked fields, has no padding.
type Row struct {
	// Descr is the dtype of rows in the syntax of npy headers, and Shape the shape of one.
	Descr string
	Shape []int64
	// Bytes is the size of a record.
	Bytes int64
	// Offsets is where each field begins in a record, Sizes how many bytes its crop has.
	Offsets, Sizes []int64
}

// fieldAlign is the alignment of each of several fields: a cache line, so that NumPy and torch can
// use a field in place.
const fieldAlign = 64

// RowOf returns the layout of records of these fields, at least one. Stacked fields have the same
// dtype and shape, and become one array with one more dimension.
func RowOf(fields []Field, stack bool) (Row, error) {
	if len(fields) == 0 {
		return Row{}, errors.New("a record needs at least one field")
	}
	r := Row{Descr: fields[0].Type.Descr, Shape: slices.Clone(fields[0].Crop)}
	named := len(fields) > 1 && !stack
	names := map[string]bool{}
	var texts []string
	for _, f := range fields {
		size, ok := productUpTo(MaxChunkBytes, append(slices.Clone(f.Crop), int64(f.Type.ItemBytes))...)
		if !ok {
			return Row{}, fmt.Errorf("field %s: its crops have more than %d bytes: ask for smaller ones", f.Name, int64(MaxChunkBytes))
		}
		if stack && (f.Type.Descr != r.Descr || !slices.Equal(f.Crop, fields[0].Crop)) {
			next := "leave out --stack"
			if slices.Equal(f.Crop, fields[0].Crop) {
				next = "--as float32 makes one type of numbers of all types; or " + next
			}
			return Row{}, fmt.Errorf("field %s has crops of %s %s, and field %s has %s %s: only equal ones can be stacked: %s", f.Name, f.Type.Descr, shapeText(f.Crop), fields[0].Name, r.Descr, shapeText(fields[0].Crop), next)
		}
		if named && (names[f.Name] || !quotable(f.Name)) {
			return Row{}, fmt.Errorf("field %q: its name must be printable ASCII, and differ from the other names: name it with --array name=path", f.Name)
		}
		names[f.Name] = true
		r.Offsets, r.Sizes = append(r.Offsets, r.Bytes), append(r.Sizes, int64(size))
		r.Bytes += int64(size)
		texts = append(texts, fieldText(f))
		if padding := (fieldAlign - r.Bytes%fieldAlign) % fieldAlign; named && padding > 0 {
			texts = append(texts, fmt.Sprintf("('', '|V%d')", padding))
			r.Bytes += padding
		}
	}
	if stack {
		r.Shape = append([]int64{int64(len(fields))}, r.Shape...)
	}
	if named {
		r.Descr, r.Shape = "["+strings.Join(texts, ", ")+"]", nil
	}
	return r, nil
}

// fieldText formats a field in the syntax of npy headers.
func fieldText(f Field) string {
	if len(f.Crop) == 0 {
		return fmt.Sprintf("('%s', %s)", f.Name, f.Type.Descr)
	}
	return fmt.Sprintf("('%s', %s, %s)", f.Name, f.Type.Descr, shapeText(f.Crop))
}
