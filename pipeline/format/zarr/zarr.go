// Package zarr is the format of crops of Zarr arrays. Package storage/crops presents a cube of
// arrays as a shard that consists of its crops:
//
//	shard   │ kind, blanks, newline │ crop 0 │ crop 1 │ …
//
// The kind is one line of JSON, padded with blanks so that the crops begin at a multiple of 64
// bytes. It contains everything on which the records depend except the arrays' contents, and
// represents the dataset in its fingerprint (pipeline/order/STREAMS.md: "lsiofs/1 dataset zarr
// <kind>"):
//
//	member   meaning
//	a, b     begin and end of the region, for each dimension of the first array
//	arrays   [name, path, dtype, crop, step, places, fill] for each array
//	as       [dtype, fill, scale, offset, missing] for each array, only with --as float32
//	chunk    chunk edges of the first array
//	dims     its dimensions' names, "" for none
//	edge     "drop" or "cover"
//	jitter   true or false
//	kept     sha256 of the bitmap of the records that --missing and --on-corrupt keep, or ""
//	list     sha256 of the file of --crops, or ""
//	missing  "fill" or "skip"
//	s        strides
//	stack    true or false
//	wrap     true or false for each dimension
//
// Members are in this order, without blanks between them. A dtype is written as in an npy header,
// with its quotes. places is a list of what --select names for each dimension, or null; a region of
// a dimension that the first array lacks is the list of its places, unless it begins at 0. fill is
// the fill value's bytes, little-endian, in hex. path is below the cube, "" for the cube itself.
//
// With --as float32, an element x of an array becomes float32(float32(x)*scale) + offset, each step
// rounded to float32, or NaN (with the bits 0x7fc00000) if x is NaN or one of missing. Then arrays
// have the dtype '<f4' and the fill "", and as has the original properties of the elements: the
// array's dtype, its fill value, and so on. scale, offset and missing are bytes, little-endian, in
// hex. Missing elements are in the order of their bytes, each once; a floating-point zero is listed
// with both signs.
//
// The kind of a dataset of several cubes has -1 for ends that differ between them. If as differs,
// it is one text in place of the list: the sha256, in hex, of the different lists, in the order of
// the cubes that have them first, each followed by a newline.
package zarr

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/npy"
	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// Name is the format's name.
const Name = "zarr"

// Format is the format.Format of crops. OfKind's result makes streams.
type Format struct{}

var (
	_ format.Mixer  = Format{}
	_ format.Differ = Format{}
	_ format.Opaque = Format{}
)

// Name returns "zarr".
func (Format) Name() string { return Name }

// AnyBytes implements format.Opaque.
func (Format) AnyBytes() {}

// StreamExtension returns ".npy".
func (Format) StreamExtension(string) string { return ".npy" }

// Sniff returns false: a shard is a directory.
func (Format) Sniff([]byte) bool { return false }

// HeadBytes implements format.Headed.
func (Format) HeadBytes() int { return 4 << 10 }

// Index implements format.Format.
func (f Format) Index(ctx context.Context, src format.Source, emit func(format.Extent) error) error {
	_, err := f.IndexKind(ctx, src, emit)
	return err
}

// IndexKind implements format.Uniform. It reads only the header.
func (Format) IndexKind(ctx context.Context, src format.Source, emit func(format.Extent) error) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	kind, err := readHeader(src)
	if err != nil {
		return "", err
	}
	rows, err := rowsOf(kind)
	if err != nil {
		return "", format.Corrupt(-1, 0, "the header is not one of crops: %v", err)
	}
	for n := int64(0); ; n++ {
		if n%4096 == 0 && ctx.Err() != nil {
			return "", ctx.Err()
		}
		at := src.OffsetBytes()
		err := src.Discard(rows.RowBytes())
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF) && src.OffsetBytes() == at:
			return kind, nil
		case errors.Is(err, io.ErrUnexpectedEOF):
			return kind, format.Corrupt(n, at, "the last crop has %d of its %d bytes", src.OffsetBytes()-at, rows.RowBytes())
		case err != nil:
			return kind, err
		}
		if err := emit(format.Extent{OffsetBytes: at, SizeBytes: rows.RowBytes()}); err != nil {
			return kind, err
		}
	}
}

// readHeader consumes the header at the beginning of a shard and returns the kind.
func readHeader(src format.Source) (kind string, err error) {
	for want := 1 << 10; ; want *= 2 {
		head, err := src.Window(min(want, zarr.MaxHeaderBytes))
		if kind, n, ok := zarr.CutHeader(head); ok {
			return kind, src.Discard(int64(n))
		}
		switch {
		case err != nil && err != io.EOF:
			return "", err
		case err == io.EOF || len(head) >= zarr.MaxHeaderBytes:
			return "", format.Corrupt(-1, 0, "it does not begin with a header of crops")
		}
	}
}

// rowsOf returns how crops of a kind are written to a stream.
func rowsOf(kind string) (npy.Rows, error) {
	fields, stack, err := zarr.FieldsOf(kind)
	if err != nil {
		return npy.Rows{}, err
	}
	var list []zarr.Field
	for _, f := range fields {
		one, err := npy.NewRows(f.Descr, nil)
		if err != nil {
			return npy.Rows{}, err
		}
		list = append(list, zarr.Field{Name: f.Name, Type: zarr.Dtype{Descr: f.Descr, ItemBytes: int(one.RowBytes())}, Crop: f.Crop})
	}
	row, err := zarr.RowOf(list, stack)
	if err != nil {
		return npy.Rows{}, err
	}
	return npy.NewRows(row.Descr, row.Shape)
}

// SameKind implements format.Uniform.
func (Format) SameKind(a, b string) bool { return zarr.SameKind(a, b) }

// MixedKind implements format.Mixer.
func (Format) MixedKind(kinds []string) string { return zarr.MixedKind(kinds) }

// Differences implements format.Differ.
func (Format) Differences(is, was string) string { return zarr.Differences(is, was) }

// OfKind implements format.Uniform. It returns a Crops.
func (Format) OfKind(kind string) (format.Format, error) {
	rows, err := rowsOf(kind)
	if err != nil {
		return nil, fmt.Errorf("it is not a kind of format zarr: %w", err)
	}
	return Crops{rows: rows}, nil
}

// Crops is the format of crops of one kind.
type Crops struct {
	Format
	rows npy.Rows
}

var _ format.Framer = Crops{}

// Prologue implements format.Framer: it returns npy's header.
func (c Crops) Prologue(n uint64) []byte { return c.rows.Prologue(n) }

// Epilogue implements format.Framer; it is empty.
func (Crops) Epilogue(uint64) []byte { return nil }

// RecordBytes returns the size of a crop.
func (c Crops) RecordBytes() int64 { return c.rows.RowBytes() }
