package zarr

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Packing describes how the elements of an array are converted to float32:
//
//	float32(float32(x)·Scale) + Offset
//
// where each step is rounded to float32. NaN and the elements of Missing become the NaN whose bits
// are 0x7fc00000.
type Packing struct {
	// Type is the type that elements are taken as: the array's type or, if the attribute _Unsigned
	// asks for it, integers of the same size with or without a sign.
	Type          Dtype
	Scale, Offset float32
	// Missing are the elements that mean a missing value, little-endian, sorted by their bytes and
	// without duplicates. If 0.0 is one of them, it is listed with both signs.
	Missing [][]byte

	stored class // of the array's type
}

// maxMissing bounds the elements that mean a missing value.
const maxMissing = 16

// packingAttributes are the attributes that a packing applies. The others still hold for the
// converted numbers.
var packingAttributes = []string{"scale_factor", "add_offset", "_FillValue", "missing_value", "_Unsigned"}

// PackingOf returns the packing that an array's attributes define, by the CF conventions and as
// xarray applies them: scale_factor, add_offset, _FillValue, missing_value, and _Unsigned. scale
// and offset, if not nil, replace the first two.
func PackingOf(a *Array, scale, offset *float64) (*Packing, error) {
	p := &Packing{Type: a.Type, stored: a.Type.class}
	attributes := map[string]value{}
	if a.Attributes != nil {
		v, err := open(a.Attributes)
		if err != nil {
			return nil, fmt.Errorf("its attributes: %w", err)
		}
		members, err := v.objectOf(maxAttributes)
		if err != nil {
			return nil, fmt.Errorf("its attributes: %w", err)
		}
		for _, m := range members {
			attributes[m.name] = m.value
		}
	}
	if err := p.sign(attributes["_Unsigned"]); err != nil {
		return nil, err
	}
	if !p.Type.IsNumber() {
		return nil, fmt.Errorf("its elements are of type %s, and --as float32 is for whole numbers, floating point and bool: leave it out, or read arrays of these", a.Type.Descr)
	}
	var errs [3]error
	p.Scale, errs[0] = packingNumber("scale", "scale_factor", scale, attributes, 1)
	p.Offset, errs[1] = packingNumber("offset", "add_offset", offset, attributes, 0)
	errs[2] = p.missing(a, attributes)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	return p, nil
}

// IsNumber reports whether elements are one real number, or a boolean.
func (d Dtype) IsNumber() bool {
	switch d.class {
	case aBool, anInt, aUint, aFloat, aBrainFloat:
		return true
	}
	return false
}

// sign applies the attribute _Unsigned, which reinterprets integers as unsigned or signed.
func (p *Packing) sign(v value) error {
	if v == nil {
		return nil
	}
	was := p.Type
	switch {
	case was.class != anInt && was.class != aUint:
	case v.isTrue() || v.isAny("true", "True"):
		p.Type = plain(aUint, 'u', was.ItemBytes)
	case v.isFalse() || v.isAny("false", "False"):
		p.Type = plain(anInt, 'i', was.ItemBytes)
	default:
		return fmt.Errorf(`its attribute _Unsigned must be "true" or "false", is %s: leave out --as, or correct it`, v.shown())
	}
	p.Type.Units = was.Units
	return nil
}

// packingNumber returns the number of a flag, or of an attribute, or the neutral one.
func packingNumber(flag, name string, given *float64, attributes map[string]value, neutral float32) (float32, error) {
	var x float64
	from, at := "", attributes[name]
	switch {
	case given != nil:
		x, from = *given, fmt.Sprintf("--%s %v", flag, *given)
	case at != nil:
		from = fmt.Sprintf("its attribute %s (%s)", name, at.shown())
		var err error
		if x, err = at.oneNumber(); err != nil {
			return 0, fmt.Errorf("%s must be a number: give it as --%s", from, flag)
		}
	default:
		return neutral, nil
	}
	y := float32(x)
	if math.IsNaN(float64(y)) || math.IsInf(float64(y), 0) {
		return 0, fmt.Errorf("%s must be a finite float32: give another one as --%s", from, flag)
	}
	if y == 0 && flag == "scale" {
		return 0, fmt.Errorf("%s must not be 0 as a float32, or all elements would be the same: give another one as --%s", from, flag)
	}
	return y, nil
}

// oneNumber returns a number, or the only number of a list, which NetCDF's attributes often are.
func (v value) oneNumber() (float64, error) {
	if v[0] == '[' {
		list, err := v.list(1)
		if err != nil || len(list) != 1 {
			return 0, errors.New("is a list")
		}
		v = list[0]
	}
	if v.kind() != "a number" {
		return 0, fmt.Errorf("is %s", v.kind())
	}
	return strconv.ParseFloat(string(v), 64)
}

// missing collects the elements that mean a missing value. In version 2, xarray writes _FillValue
// to fill_value; the dimensions' names show that the array was written by xarray, or by a program
// that does the same.
func (p *Packing) missing(a *Array, attributes map[string]value) error {
	if attributes["_FillValue"] == nil && a.FillIsMissing {
		p.addMissing(a.Fill)
	}
	for _, name := range []string{"_FillValue", "missing_value"} {
		v := attributes[name]
		if v == nil {
			continue
		}
		list := []value{v}
		if v[0] == '[' {
			var err error
			if list, err = v.list(maxMissing); err != nil {
				return fmt.Errorf("its attribute %s %w: leave out --as", name, err)
			}
		}
		for _, one := range list {
			element, ok := p.element(one)
			if !ok {
				return fmt.Errorf("its attribute %s (%s) is not a number: leave out --as, or correct it", name, one.shown())
			}
			p.addMissing(element)
		}
	}
	slices.SortFunc(p.Missing, bytes.Compare)
	p.Missing = slices.CompactFunc(p.Missing, bytes.Equal)
	return nil
}

// addMissing adds an element; nil adds none. NaN is always missing.
func (p *Packing) addMissing(element []byte) {
	c := p.Type.class
	if element == nil || c == aBool {
		return
	}
	if c == aFloat || c == aBrainFloat {
		f, _ := formatOf(c, p.Type.ItemBytes)
		var wide [8]byte
		copy(wide[:], element)
		sign := uint64(1) << (f.bits() - 1)
		switch bits := binary.LittleEndian.Uint64(wide[:]) &^ sign; {
		case bits > f.infinity():
			return
		case bits == 0:
			for _, zero := range []uint64{0, sign} {
				p.Missing = append(p.Missing, binary.LittleEndian.AppendUint64(nil, zero)[:len(element)])
			}
			return
		}
	}
	p.Missing = append(p.Missing, slices.Clone(element))
}

// element returns a value as an element, or nil if no element can equal it. ok is false if the
// value is not a number. In version 3, xarray writes floats as the base64 of a float64.
func (p *Packing) element(v value) (element []byte, ok bool) {
	isFloat := p.Type.class == aFloat || p.Type.class == aBrainFloat
	if v[0] == '"' {
		text, _ := v.text()
		b, err := base64.StdEncoding.DecodeString(text)
		switch {
		case text == "NaN", text == "Infinity", text == "-Infinity":
			if !isFloat {
				return nil, true
			}
		case isFloat && err == nil && len(b) == 8:
			v = floatValue(math.Float64frombits(binary.LittleEndian.Uint64(b)))
		default:
			return nil, false
		}
	} else if v.kind() != "a number" {
		return nil, false
	}
	bits, err := numberBits(v, p.Type.class, p.Type.ItemBytes)
	if err != nil && p.stored != p.Type.class {
		bits, err = numberBits(v, p.stored, p.Type.ItemBytes)
	}
	if err != nil {
		return nil, true
	}
	return binary.LittleEndian.AppendUint64(nil, bits)[:p.Type.ItemBytes], true
}

// floatValue returns a number as JSON, or its name as a string.
func floatValue(x float64) value {
	switch {
	case math.IsNaN(x):
		return value(`"NaN"`)
	case math.IsInf(x, 1):
		return value(`"Infinity"`)
	case math.IsInf(x, -1):
		return value(`"-Infinity"`)
	}
	return value(strconv.FormatFloat(x, 'g', -1, 64))
}

// Others returns those of an array's attributes that p does not apply; nil if attributes is nil.
func (p *Packing) Others(attributes []byte) []byte {
	if attributes == nil {
		return nil
	}
	v, err := open(attributes)
	if err != nil {
		return nil
	}
	members, err := v.objectOf(maxAttributes)
	if err != nil {
		return nil
	}
	out := []byte("{")
	for _, m := range members {
		if slices.Contains(packingAttributes, m.name) {
			continue
		}
		if len(out) > 1 {
			out = append(out, ", "...)
		}
		name, _ := plainJSON(m.name) // encoding a string can't fail
		out = append(append(append(out, name...), ": "...), m.value...)
	}
	return append(out, '}')
}

// Convert converts an element of the array, little-endian, to an element of crops.
func (p *Packing) Convert(element []byte) []byte {
	little := *p
	little.Type = p.Type.withOrder(false)
	out := make([]byte, floatBytes)
	newConversion(&little).run(out, element, 1, floatBytes, p.Type.ItemBytes)
	return out
}
