package lc0

import (
	"fmt"

	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/npy"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// Rows is the format of games whose streams are arrays of tensors, one row per frame. Frames of
// different versions have the same kind of row, so they may be mixed, even within a tar.
type Rows struct {
	Format
	Tensors
	array format.Framer // of rows
}

var (
	_ format.Mixer     = Rows{}
	_ format.OwnCodecs = Rows{}
	_ format.Unitary   = Rows{}
	_ format.Framer    = Rows{}
	_ format.Presenter = Rows{}
)

// NewRows returns a Rows for the element type in f, which checks frames if f asks for it.
func NewRows(f spec.Format) (Rows, error) {
	t, err := NewTensors(Element(f.As.Element()))
	if err != nil {
		return Rows{}, err
	}
	array, err := npy.Format{}.OfKind(t.Descr() + " ()")
	if err != nil {
		return Rows{}, fmt.Errorf("an array of tensors: %w", err)
	}
	return Rows{Format: Format{check: f.Lc0Check, mixed: true}, Tensors: t, array: array.(npy.Rows)}, nil
}

// StreamExtension returns ".npy".
func (Rows) StreamExtension(string) string { return ".npy" }

// Prologue returns the header of an array of n rows.
func (r Rows) Prologue(n uint64) []byte { return r.array.Prologue(n) }

// Epilogue returns nil: arrays have none.
func (Rows) Epilogue(uint64) []byte { return nil }

// RowType implements format.Presenter.
func (r Rows) RowType() (descr, remark string) {
	remark = "plane 109 is the count of half-moves since a capture or a pawn's move, divided by 99 (input formats 1 to 3) or by 100"
	if r.element == U1 {
		remark = "plane 109 is the count of half-moves since a capture or a pawn's move, undivided: divide it by 99 (input formats 1 to 3) or by 100"
	}
	return r.Descr(), remark
}

// SameKind reports whether both are versions of frames.
func (Rows) SameKind(a, b string) bool {
	_, ok := versionsOf(a)
	_, also := versionsOf(b)
	return ok && also
}

// MixedKind names all versions.
func (Rows) MixedKind(kinds []string) string {
	var all versions
	for _, kind := range kinds {
		v, _ := versionsOf(kind)
		all |= v
	}
	return all.kind()
}

// OfKind returns r, for any versions.
func (r Rows) OfKind(kind string) (format.Format, error) {
	if _, ok := versionsOf(kind); !ok {
		return nil, fmt.Errorf("%q are no versions of frames", kind)
	}
	return r, nil
}
