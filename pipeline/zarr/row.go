package zarr

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

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
