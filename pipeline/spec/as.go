package spec

import (
	"fmt"
	"slices"
	"strings"
)

// As is the form in which a stream has each record: its bytes, or tensors made from them. It
// affects neither the selection nor the order of records. The zero value is the bytes.
type As string

// Tensors of lc0's frames, in the layout of lczero-training. They differ in the element type of the
// planes.
const (
	AsTensorsU1 As = "tensors:u1" // uint8
	AsTensorsF2 As = "tensors:f2" // float16
	AsTensorsF4 As = "tensors:f4" // float32
)

// AsFloat32 converts the elements of Zarr arrays to float32 (Zarr.As). Unlike the others it changes
// the records themselves, not only their form in streams.
const AsFloat32 As = "float32"

var asTensors = []As{AsTensorsU1, AsTensorsF2, AsTensorsF4}

// Element returns the type of the planes' elements, "u1", "f2" or "f4"; "" if there is none.
func (a As) Element() string {
	_, element, _ := strings.Cut(string(a), ":")
	return element
}

// ParseAs parses "tensors", which means tensors:u1, or tensors with a type after a colon, or
// float32.
func ParseAs(text string) (As, error) {
	a := As(text)
	if text == "tensors" {
		a = AsTensorsU1
	}
	return a, a.check()
}

func (a As) check() error {
	switch {
	case a == "" || a == AsFloat32 || slices.Contains(asTensors, a):
		return nil
	case strings.HasPrefix(string(a), "tensors:"):
		return fmt.Errorf("--as %s: the elements of planes are of type u1, f2 or f4, as in tensors:f2", a)
	}
	return fmt.Errorf("--as %q: streams can be of tensors, tensors:u1, tensors:f2 or tensors:f4 (format lc0), or of float32 (format zarr); without --as they are of the records' bytes", string(a))
}

func (f Format) validateAs(p *problems) {
	if err := f.As.check(); err != nil {
		p.addf("%w", err)
	}
	if f.As == AsFloat32 {
		p.addf("--as %s needs --format zarr, not %q", f.As, f.Name)
		return
	}
	if f.As != "" && f.Name != "lc0" && f.Name != "auto" {
		p.addf("--as %s needs --format lc0, not %q", f.As, f.Name)
	}
	if f.As != "" && len(f.Arrays) > 0 {
		p.addf("--as %s is for games of lc0, and --array for arrays: leave one of them out", f.As)
	}
}
