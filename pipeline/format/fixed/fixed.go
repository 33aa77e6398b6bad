// Package fixed cuts shards into records of one size.
//
//	header H bytes │ record 0: N bytes from H │ record 1: N bytes from H+S │ …
//
// S may be less than N (records overlap), equal, or more (bytes between them are left out).
package fixed

import (
	"context"
	"errors"
	"io"
	"path"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Format is the format.Format of fixed, with its parameters.
type Format struct {
	record, stride, header int64
	dropRemainder          bool
}

var (
	_ format.Format    = Format{}
	_ format.Headed    = Format{}
	_ format.Emptyable = Format{}
	_ format.Opaque    = Format{}
)

// New returns a Format with the parameters of a spec. The error describes what is wrong with them.
func New(f spec.Format) (Format, error) {
	if f.Remainder == "" {
		f.Remainder = spec.RemainderCorrupt
	}
	s := spec.Default()
	s.Dataset, s.Format = "any", f
	if err := s.Validate(); err != nil {
		return Format{}, err
	}
	g := Format{record: f.RecordBytes, stride: f.StrideBytes, header: f.HeaderBytes}
	if g.stride == 0 {
		g.stride = g.record
	}
	// If records overlap or have gaps, the bytes left at the end have no meaning.
	g.dropRemainder = g.stride != g.record || f.Remainder == spec.RemainderDrop
	return g, nil
}

// Name returns "fixed".
func (Format) Name() string { return "fixed" }

// StreamExtension returns the shard's own extension, or ".bin".
func (Format) StreamExtension(shard string) string {
	if ext := path.Ext(shard); len(ext) > 1 {
		return ext
	}
	return ".bin"
}

// AnyBytes implements format.Opaque.
func (Format) AnyBytes() {}

// EmptyShards implements format.Emptyable.
func (Format) EmptyShards() {}

// Sniff returns false: the format can't be recognized by its bytes.
func (Format) Sniff([]byte) bool { return false }

// HeadBytes implements format.Headed. Index reads none of them.
func (Format) HeadBytes() int { return 4 << 10 }

// Index implements format.Format. It reads no bytes. Each step skips from the end of one record to
// the end of the next, which is one stride, so that no sum can overflow.
func (f Format) Index(ctx context.Context, src format.Source, emit func(format.Extent) error) error {
	end := src.OffsetBytes()
	step := func(n int64) (bool, error) {
		err := src.Discard(n)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return false, nil
		}
		return err == nil, err
	}
	ok, err := step(f.header)
	if err != nil {
		return err
	}
	if !ok {
		return f.remainder(0, end, src.OffsetBytes()-end, "header")
	}
	end = src.OffsetBytes()
	for record, n := int64(0), f.record; ; record, n = record+1, f.stride {
		if record%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		ok, err := step(n)
		if err != nil {
			return err
		}
		if !ok {
			return f.remainder(record, end, src.OffsetBytes()-end, "record")
		}
		end = src.OffsetBytes()
		if err := emit(format.Extent{OffsetBytes: end - f.record, SizeBytes: f.record}); err != nil {
			return err
		}
	}
}

// remainder judges the n bytes from at to the end, which are not a whole record.
func (f Format) remainder(record, at, n int64, of string) error {
	if n == 0 || f.dropRemainder {
		return nil
	}
	want := f.record
	if of == "header" {
		want = f.header
	}
	return format.Corrupt(record, at, "the last %d bytes are not a whole %s of %d bytes; --remainder drop leaves them out", n, of, want)
}
