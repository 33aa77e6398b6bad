package rows

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Cursor is a pass over the selected rows of a shard, or of a part of it. It is not safe for
// concurrent use.
type Cursor interface {
	// Next returns the next rows, at least one, and io.EOF after the last. The batch, and all memory
	// that it refers to, is valid until the next call. Errors are sticky.
	Next() (*Batch, error)
}

// Batch is consecutive rows.
type Batch struct {
	Rows    int
	Columns []Slots // one for each Column, in the order of Resolve
}

// Slots are consecutive slots of a vector. Row r of a batch is slot First+r.
type Slots struct {
	*Vector
	First int
}

// Value returns the value of row r of the i-th column, whose type is t.
func (b *Batch) Value(t *Type, i, r int) Value {
	return newValue(t, b.Columns[i].Vector, b.Columns[i].First+r)
}

// Vector is values of one type, which the package comment explains. How a value is stored depends
// on the kind of the type:
//
//	Bool                    a bit of Bytes, the lowest bit of a byte first; or, with Width 1, a byte
//	Int, Date, Time         Width 1, 2, 4 or 8: two's complement or unsigned, which may be wider than
//	                        the type
//	Float                   Width 2, 4 or 8: IEEE 754; the width is that of the type
//	Timestamp               Width 8; or 12: nanoseconds of the day in 8, Julian day in 4 (INT96)
//	Decimal                 Width, or Spans: the unscaled value in two's complement, of any size
//	String, Number, JSON    Width, or Spans
//	Binary, UUID            Width, or Spans
//	NDArray                 Spans, the elements in C order, as the array's type is wide; Dims
//	List, Map               Offsets; Children: the elements, or the keys and the values
//	Struct                  Children: the fields
//
// Numbers are little-endian, but decimals are big-endian if BigEndian is set.
type Vector struct {
	Index     []int32 // of a slot: its value, -1 for null; nil: slot i has value i
	Bytes     []byte
	Width     int // bytes of a value; 0 if values have Spans
	Spans     []Span
	BigEndian bool
	Offsets   []int32 // value i has the slots Offsets[i]…Offsets[i+1] of the children
	Children  []Vector
	Dims      []Dims // of each value
}

// Span is a part of Vector.Bytes.
type Span struct{ At, Len uint32 }

// Dims is the shape of an NDArray; empty for a single number.
type Dims []int32

// at returns the value of a slot, -1 if it is null.
func (v *Vector) at(slot int) int {
	if v.Index == nil {
		return slot
	}
	return int(v.Index[slot])
}

// bytes returns the bytes of a value.
func (v *Vector) bytes(value int) []byte {
	if v.Width > 0 {
		at := value * v.Width
		return v.Bytes[at : at+v.Width : at+v.Width]
	}
	if len(v.Spans) == 0 {
		return nil // values of no bytes
	}
	s := v.Spans[value]
	end := uint64(s.At) + uint64(s.Len)
	return v.Bytes[s.At:end:end]
}

func (v *Vector) bool(value int) bool {
	if v.Width == 1 {
		return v.Bytes[value] != 0
	}
	return v.Bytes[value>>3]>>(value&7)&1 != 0
}

// int returns a signed value, whatever its width.
func (v *Vector) int(value int) int64 {
	switch v.Width {
	case 8:
		return int64(binary.LittleEndian.Uint64(v.Bytes[8*value:]))
	case 4:
		return int64(int32(binary.LittleEndian.Uint32(v.Bytes[4*value:])))
	case 2:
		return int64(int16(binary.LittleEndian.Uint16(v.Bytes[2*value:])))
	}
	return int64(int8(v.Bytes[value]))
}

// uint returns an unsigned value, whatever its width.
func (v *Vector) uint(value int) uint64 {
	switch v.Width {
	case 8:
		return binary.LittleEndian.Uint64(v.Bytes[8*value:])
	case 4:
		return uint64(binary.LittleEndian.Uint32(v.Bytes[4*value:]))
	case 2:
		return uint64(binary.LittleEndian.Uint16(v.Bytes[2*value:]))
	}
	return uint64(v.Bytes[value])
}

// Value is a view of one value. It is valid as long as its batch.
type Value struct {
	Type   *Type
	vector *Vector
	value  int // -1: null
}

func newValue(t *Type, v *Vector, slot int) Value { return Value{t, v, v.at(slot)} }

// Null reports whether the value is null. The other methods need a value that is not.
func (v Value) Null() bool { return v.value < 0 }

// Bool returns a Bool.
func (v Value) Bool() bool { return v.vector.bool(v.value) }

// Int returns an Int that is signed, a Date, a Time, or a Timestamp of 8 bytes.
func (v Value) Int() int64 { return v.vector.int(v.value) }

// Uint returns an Int that is unsigned.
func (v Value) Uint() uint64 { return v.vector.uint(v.value) }

// Float returns a Float.
func (v Value) Float() float64 {
	switch bits := v.vector.uint(v.value); v.Type.Bits {
	case 64:
		return math.Float64frombits(bits)
	case 32:
		return float64(math.Float32frombits(uint32(bits)))
	default:
		return float16(uint16(bits))
	}
}

// Bytes returns the stored bytes of a value that has no children.
func (v Value) Bytes() []byte { return v.vector.bytes(v.value) }

// Len returns the number of elements of a List or entries of a Map.
func (v Value) Len() int {
	return int(v.vector.Offsets[v.value+1] - v.vector.Offsets[v.value])
}

// Elem returns the i-th element of a List; part 0 and 1 are the key and the value of the i-th entry
// of a Map.
func (v Value) Elem(part, i int) Value {
	return newValue(v.Type.Fields[part].Type, &v.vector.Children[part], int(v.vector.Offsets[v.value])+i)
}

// Field returns the i-th field of a Struct.
func (v Value) Field(i int) Value {
	return newValue(v.Type.Fields[i].Type, &v.vector.Children[i], v.value)
}

// Check returns the first contradiction in a batch of these columns: an index, offset or span
// outside of its array, or values that are stored in a form which their type does not have. It
// looks at every slot, and is for tests of decoders.
func (b *Batch) Check(columns []Column) error {
	if b.Rows < 1 || len(b.Columns) != len(columns) {
		return fmt.Errorf("%d rows, %d vectors for %d columns", b.Rows, len(b.Columns), len(columns))
	}
	for i, s := range b.Columns {
		if s.First < 0 {
			return fmt.Errorf("column %s: the first slot is %d", columns[i].Name, s.First)
		}
		for r := range b.Rows {
			if err := s.check(columns[i].Type, s.First+r); err != nil {
				return fmt.Errorf("column %s, row %d: %w", columns[i].Name, r, err)
			}
		}
	}
	return nil
}

func (v *Vector) check(t *Type, slot int) error {
	value := slot
	if v.Index != nil {
		if slot >= len(v.Index) {
			return fmt.Errorf("slot %d of %d", slot, len(v.Index))
		}
		if value = int(v.Index[slot]); value < 0 {
			if value == -1 {
				return nil
			}
			return fmt.Errorf("index %d", value)
		}
	}
	switch t.Kind {
	case List, Map:
		if value+1 >= len(v.Offsets) || len(v.Children) != len(t.Fields) {
			return fmt.Errorf("value %d of %d offsets, %d children", value, len(v.Offsets), len(v.Children))
		}
		from, to := v.Offsets[value], v.Offsets[value+1]
		if from < 0 || to < from {
			return fmt.Errorf("offsets %d and %d", from, to)
		}
		for i := range v.Children {
			for e := from; e < to; e++ {
				if err := v.Children[i].check(t.Fields[i].Type, int(e)); err != nil {
					return fmt.Errorf("element %d: %w", e-from, err)
				}
			}
		}
		return nil
	case Struct:
		if len(v.Children) != len(t.Fields) {
			return fmt.Errorf("%d children for %d fields", len(v.Children), len(t.Fields))
		}
		for i := range v.Children {
			if err := v.Children[i].check(t.Fields[i].Type, value); err != nil {
				return fmt.Errorf("field %s: %w", t.Fields[i].Name, err)
			}
		}
		return nil
	}
	return v.checkBytes(t, value)
}

func (v *Vector) checkBytes(t *Type, value int) error {
	ok := true
	switch t.Kind {
	case Bool:
		if v.Width == 0 {
			if value>>3 >= len(v.Bytes) {
				return fmt.Errorf("bit %d of %d bytes", value, len(v.Bytes))
			}
			return nil
		}
		ok = v.Width == 1
	case Int:
		ok = v.Width == 8 || v.Width == 4 || v.Width < 4 && v.Width == t.Bits/8
	case Date, Time:
		ok = v.Width == 4 || v.Width == 8
	case Timestamp:
		ok = v.Width == 8 || v.Width == 12 && t.Unit == Nanos
	case Float:
		ok = v.Width == t.Bits/8
	case UUID:
		ok = v.Width == 16 || v.Width == 0 && value < len(v.Spans) && v.Spans[value].Len == 16
	case NDArray:
		ok = v.Width == 0 && value < len(v.Dims)
	case Binary:
		ok = v.Width == t.Size || v.Width == 0 || t.Size == 0
	}
	switch {
	case !ok || v.Width < 0:
		return fmt.Errorf("width %d of %s", v.Width, t)
	case v.Width > 0 && (value+1)*v.Width > len(v.Bytes):
		return fmt.Errorf("value %d of %d bytes", value, len(v.Bytes))
	case v.Width == 0 && value >= len(v.Spans):
		return fmt.Errorf("value %d of %d spans", value, len(v.Spans))
	case v.Width == 0 && uint64(v.Spans[value].At)+uint64(v.Spans[value].Len) > uint64(len(v.Bytes)):
		return fmt.Errorf("span %v of %d bytes", v.Spans[value], len(v.Bytes))
	case t.Kind == NDArray:
		return v.checkDims(t, value)
	}
	return nil
}

var errDims = errors.New("the shape of an array is not that of its bytes")

func (v *Vector) checkDims(t *Type, value int) error {
	elements := uint64(1)
	for _, n := range v.Dims[value] {
		if n < 0 || n > 0 && elements > math.MaxUint32/uint64(n) {
			return errDims
		}
		elements *= uint64(n)
	}
	if elements*uint64(t.Fields[0].Type.bytes()) != uint64(v.Spans[value].Len) || len(v.Dims[value]) > MaxDepth {
		return errDims
	}
	return nil
}

// bytes returns the size of a Bool, Int or Float.
func (t *Type) bytes() int {
	if t.Kind == Bool {
		return 1
	}
	return t.Bits / 8
}
