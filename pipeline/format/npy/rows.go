package npy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// Rows is the format of arrays of one dtype and one row shape.
type Rows struct {
	Format
	kind      string
	descr     string // as written in the first shard
	canonical string // the same for equal dtypes
	tail      string // what follows n in a shape: ",", ", 3", ", 3, 224"
	rowBytes  int64
}

var (
	_ format.Format = Rows{}
	_ format.Framer = Rows{}
)

const (
	alignBytes = 64 // of the data, as in NumPy
	leadBytes  = fixedBytes + 2
)

// rows returns the Rows of a header. Errors describe what is not supported.
func (h header) rows() (Rows, error) {
	switch {
	case h.fortran:
		return Rows{}, errors.New("the array is in Fortran order, so that its rows are not contiguous: save numpy.ascontiguousarray of it")
	case len(h.shape) == 0:
		return Rows{}, errors.New("the array has no dimensions, so it has no rows: save it with one or more")
	}
	r, err := newRows(h.descr, h.shape[1:])
	if err != nil {
		return Rows{}, err
	}
	if r.rowBytes == 0 && h.shape[0] > 0 {
		return Rows{}, errors.New("its rows have 0 bytes, so there is nothing to shuffle: save rows that hold data")
	}
	return r, nil
}

func newRows(descr literal, shape []int64) (Rows, error) {
	d, err := parseDtype(descr)
	switch {
	case errors.Is(err, errObject):
		return Rows{}, err
	case err != nil:
		text := descr.text
		if most := 84; len(text) > most {
			text = strings.ToValidUTF8(text[:most], "") + "…"
		}
		return Rows{}, fmt.Errorf("%s %w", text, err)
	}
	r := Rows{descr: descr.text, canonical: d.canonical}
	if r.rowBytes, err = product(d.itemBytes, shape); err != nil {
		return Rows{}, fmt.Errorf("a row %w", err)
	}
	var b strings.Builder
	b.WriteString(descr.text + " ")
	writeShape(&b, shape)
	r.kind = b.String()
	for _, n := range shape {
		r.tail += ", " + strconv.FormatInt(n, 10)
	}
	if len(shape) == 0 {
		r.tail = ","
	}
	for _, c := range descr.text {
		if c > math.MaxUint8 {
			return Rows{}, fmt.Errorf("the fields' names have %q, and streams are npy version 1.0, whose names are Latin-1: rename them", c)
		}
	}
	if n := len(r.text(math.MaxUint64)) + alignBytes; n > math.MaxUint16 {
		return Rows{}, fmt.Errorf("the dtype takes %d bytes, and streams are npy version 1.0, whose header has less than 64 KiB: use fewer or shorter names", len(r.descr))
	}
	return r, nil
}

// rowsOfKind parses a kind made by newRows.
func rowsOfKind(kind string) (Rows, error) {
	p := parser{text: kind, longs: true}
	descr, err := p.value()
	if err != nil {
		return Rows{}, err
	}
	shape, err := p.value()
	if err != nil {
		return Rows{}, err
	}
	if err := p.end(); err != nil {
		return Rows{}, err
	}
	if shape.class != aTuple {
		return Rows{}, errUnknown
	}
	n, err := numbers(shape.items)
	if err != nil {
		return Rows{}, err
	}
	return newRows(descr, n)
}

// text returns the dictionary of n rows, in Latin-1.
func (r Rows) text(n uint64) []byte {
	b := []byte("{'descr': ")
	for _, c := range r.descr {
		b = append(b, byte(c))
	}
	b = append(b, ", 'fortran_order': False, 'shape': ("...)
	b = strconv.AppendUint(b, n, 10)
	return append(b, r.tail+"), }"...)
}

// Prologue implements format.Framer: it returns a header of version 1.0 for n rows. The data after
// it begins at a multiple of 64. Its size depends on the number of digits of n.
func (r Rows) Prologue(n uint64) []byte {
	text := r.text(n)
	whole := (leadBytes + len(text) + 1 + alignBytes - 1) / alignBytes * alignBytes
	b := make([]byte, 0, whole)
	b = append(b, magic+"\x01\x00"...)
	b = binary.LittleEndian.AppendUint16(b, uint16(whole-leadBytes))
	b = append(b, text...)
	for len(b) < whole-1 {
		b = append(b, ' ')
	}
	return append(b, '\n')
}

// Epilogue returns nil: arrays have none.
func (Rows) Epilogue(uint64) []byte { return nil }

// NewRows returns the format of arrays of a dtype, as written in a header, and a row shape.
func NewRows(descr string, shape []int64) (Rows, error) {
	p := parser{text: descr, longs: true}
	d, err := p.value()
	if err != nil {
		return Rows{}, err
	}
	if err := p.end(); err != nil {
		return Rows{}, err
	}
	return newRows(d, shape)
}

// RowBytes returns the size of a row.
func (r Rows) RowBytes() int64 { return r.rowBytes }
