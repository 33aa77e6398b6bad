package npy

import (
	"context"
	"errors"
	"fmt"
	"io"

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
