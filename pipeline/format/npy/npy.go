// Package npy finds the rows of NumPy arrays.
//
//	\x93NUMPY │ u8 major │ u8 minor │ header length: u16le in 1.0, u32le in 2.0 and 3.0
//	header: {'descr': '<f4', 'fortran_order': False, 'shape': (1000, 3, 224), } spaces \n
//	data: 1000 rows of 3·224·4 bytes, with nothing after them
//
// A record is a row: one slice along the first axis of an array in C order. The kind of a shard is
// its dtype, as written in the header, and the shape of its rows: "'<f4' (3, 224)".
//
// The specification is numpy.lib.format as of NumPy 1.24,
// https://numpy.org/doc/1.24/reference/generated/numpy.lib.format.html.
//
// The header is a Python literal. Only what NumPy writes and that page permits is accepted: a
// dictionary of exactly these keys, strings, True and False, tuples, lists, decimal numbers (below
// version 3.0 with an L, as Python 2 wrote them), and blanks anywhere. The newline at the end and
// the alignment of the data are not required; NumPy doesn't require them either. A header may have
// 1 MiB.
//
// Sizes follow from the type strings of NumPy's array interface. NumPy writes only those
// (dtype.str, and lists of fields of it), never names such as "float32". Streams have headers of
// version 1.0, in Latin-1 and below 64 KiB. An array that needs another header is refused.
package npy

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

// Format is the format.Format of npy. OfKind returns the Rows that makes streams.
type Format struct{}

var _ format.Uniform = Format{}

// Name returns "npy".
func (Format) Name() string { return "npy" }

// StreamExtension returns ".npy".
func (Format) StreamExtension(string) string { return ".npy" }

// Sniff returns false: arrays are recognized by their extension (pipeline/format/SHARDS.md).
func (Format) Sniff([]byte) bool { return false }

// HeadBytes implements format.Headed: numpy pads headers to a multiple of 64 bytes, and only those
// of long structured dtypes have more than some hundred.
func (Format) HeadBytes() int { return 4 << 10 }

// Index implements format.Format. It reads the header, and checks that nothing follows the data.
func (f Format) Index(ctx context.Context, src format.Source, emit func(format.Extent) error) error {
	_, err := f.IndexKind(ctx, src, emit)
	return err
}

// IndexKind implements format.Uniform.
func (Format) IndexKind(ctx context.Context, src format.Source, emit func(format.Extent) error) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	h, err := readHeader(src)
	if err != nil {
		return "", err
	}
	rows, err := h.rows()
	if err != nil {
		return "", &format.RefusedError{Reason: err.Error()}
	}
	return rows.kind, rows.index(ctx, src, h.shape[0], emit)
}

// index emits n rows.
func (r Rows) index(ctx context.Context, src format.Source, n int64, emit func(format.Extent) error) error {
	at := src.OffsetBytes()
	for row := int64(0); row < n; row++ {
		if row%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		err := src.Discard(r.rowBytes)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return format.Corrupt(row, at, "the file ends in row %d of %d: %d of its %d bytes are there", row, n, src.OffsetBytes()-at, r.rowBytes)
		}
		if err != nil {
			return err
		}
		if err := emit(format.Extent{OffsetBytes: at, SizeBytes: r.rowBytes}); err != nil {
			return err
		}
		at += r.rowBytes
	}
	switch rest, err := src.Window(1); {
	case len(rest) > 0:
		return format.Corrupt(-1, at, "bytes follow the last of %d rows", n)
	case err == io.EOF:
		return nil
	default:
		return err
	}
}

// SameKind implements format.Uniform: two writers may write the same dtype differently.
func (f Format) SameKind(a, b string) bool {
	x, errX := rowsOfKind(a)
	y, errY := rowsOfKind(b)
	return errX == nil && errY == nil && x.tail == y.tail && x.canonical == y.canonical
}

// OfKind implements format.Uniform. It returns a Rows.
func (Format) OfKind(kind string) (format.Format, error) {
	r, err := rowsOfKind(kind)
	if err != nil {
		return nil, fmt.Errorf("it is not a kind of format npy: %w", err)
	}
	return r, nil
}

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

// Kind returns the kind of shards that hold such rows. OfKind returns the same Rows for it.
func (r Rows) Kind() string { return r.kind }
