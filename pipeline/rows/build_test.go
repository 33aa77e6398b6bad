package rows

import (
	"encoding/binary"
	"math"
	"math/big"
	"slices"
)

// Values of tests, by kind: nil for null; bool; int64 (Int, Date, Time, Timestamp); uint64; float64,
// which is stored in the type's width; string (String, Number, JSON, Binary, UUID); *big.Int
// (Decimal); int96; []any (List, Struct); [][2]any (Map); ndarray.
type int96 struct{ nanos, julian int64 }

type ndarray struct {
	dims  Dims
	items []any
}

// layout draws how values are stored: n returns a number below most.
type layout func(most int) int

func plain(int) int { return 0 }

// build returns a vector whose slots from first on are the values.
func build(t *Type, values []any, draw layout) Vector {
	var v Vector
	var stored []any
	switch draw(3) {
	case 0: // a slot for every value; nulls only in an index, if there are any
		stored = slices.Clone(values)
		if slices.Contains(values, nil) || draw(2) > 0 {
			for i, x := range values {
				v.Index = append(v.Index, int32(i))
				if x == nil {
					v.Index[i] = -1
				}
			}
		}
	case 1: // nulls take no space
		for _, x := range values {
			if x == nil {
				v.Index = append(v.Index, -1)
				continue
			}
			v.Index = append(v.Index, int32(len(stored)))
			stored = append(stored, x)
		}
	case 2: // a dictionary in another order
		for i := range values {
			if x := values[len(values)-1-i]; x != nil {
				stored = append(stored, x)
			}
		}
		at := len(stored)
		for _, x := range values {
			if x == nil {
				v.Index = append(v.Index, -1)
			} else {
				at--
				v.Index = append(v.Index, int32(at))
			}
		}
	}
	v.store(t, stored, draw)
	return v
}

// store writes values to the vector; the contents of null ones are arbitrary.
func (v *Vector) store(t *Type, values []any, draw layout) {
	switch t.Kind {
	case Struct:
		for f := range t.Fields {
			column := make([]any, len(values))
			for i, x := range values {
				if x != nil {
					column[i] = x.([]any)[f]
				} else if !t.Fields[f].Type.Nullable {
					column[i] = zeroOf(t.Fields[f].Type)
				}
			}
			v.Children = append(v.Children, build(t.Fields[f].Type, column, draw))
		}
	case List, Map:
		columns := make([][]any, len(t.Fields))
		v.Offsets = []int32{0}
		for _, x := range values {
			switch x := x.(type) {
			case []any:
				columns[0] = append(columns[0], x...)
			case [][2]any:
				for _, e := range x {
					columns[0], columns[1] = append(columns[0], e[0]), append(columns[1], e[1])
				}
			}
			v.Offsets = append(v.Offsets, int32(len(columns[0])))
		}
		for i := range columns {
			v.Children = append(v.Children, build(t.Fields[i].Type, columns[i], draw))
		}
	case String, Number, JSON, Binary, UUID:
		v.spans(t, values, draw)
	case Decimal:
		v.decimals(values, draw)
	case NDArray:
		for _, x := range values {
			var a ndarray
			if x != nil {
				a = x.(ndarray)
			} else {
				a = ndarray{Dims{0}, nil}
			}
			var inner Vector
			inner.numbers(t.Fields[0].Type, a.items, t.Fields[0].Type.bytes())
			v.Spans = append(v.Spans, Span{uint32(len(v.Bytes)), uint32(len(inner.Bytes))})
			v.Bytes, v.Dims = append(v.Bytes, inner.Bytes...), append(v.Dims, a.dims)
		}
	case Bool:
		if draw(2) == 0 {
			v.Bytes = make([]byte, (len(values)+7)/8)
			for i, x := range values {
				if x == true {
					v.Bytes[i/8] |= 1 << (i % 8)
				}
			}
			return
		}
		v.numbers(t, values, 1)
	case Int:
		v.numbers(t, values, max(t.Bits/8, []int{1, 4, 8}[draw(3)]))
	case Date, Time:
		width := 8
		for _, x := range values {
			if n, _ := x.(int64); n != int64(int32(n)) {
				draw = plain
			}
		}
		if draw(2) > 0 {
			width = 4
		}
		v.numbers(t, values, width)
	case Timestamp:
		width := 8
		for _, x := range values {
			if _, is := x.(int96); is {
				width = 12
			}
		}
		v.numbers(t, values, width)
	case Float:
		v.numbers(t, values, t.Bits/8)
	}
}

func zeroOf(t *Type) any {
	switch t.Kind {
	case List:
		return []any{}
	case Map:
		return [][2]any{}
	case Struct:
		x := make([]any, len(t.Fields))
		for i, f := range t.Fields {
			if !f.Type.Nullable {
				x[i] = zeroOf(f.Type)
			}
		}
		return x
	case String, Number, JSON:
		return "0"
	case Binary, UUID:
		return string(make([]byte, max(t.Size, 16)))
	case Decimal:
		return new(big.Int)
	case Bool:
		return false
	case Float:
		return 0.0
	case NDArray:
		return ndarray{Dims{0}, nil}
	}
	switch {
	case t.Unsigned:
		return uint64(0)
	case t.Kind == Timestamp && t.Size == 12:
		return int96{}
	}
	return int64(0)
}

func (v *Vector) spans(t *Type, values []any, draw layout) {
	size := t.Size
	if t.Kind == UUID {
		size = 16
	}
	if size > 0 && draw(2) == 0 {
		v.Width = size
		for _, x := range values {
			s, _ := x.(string)
			v.Bytes = append(v.Bytes, (s + string(make([]byte, size)))[:size]...)
		}
		return
	}
	for _, x := range values {
		s, _ := x.(string)
		v.Bytes = append(v.Bytes, "gap!"[:draw(5)]...)
		v.Spans = append(v.Spans, Span{uint32(len(v.Bytes)), uint32(len(s))})
		v.Bytes = append(v.Bytes, s...)
	}
}

func (v *Vector) decimals(values []any, draw layout) {
	v.BigEndian = draw(2) > 0
	width := 1
	var all [][]byte
	for _, x := range values {
		n, _ := x.(*big.Int)
		if n == nil {
			n = new(big.Int)
		}
		b := twos(n)
		width = max(width, len(b))
		all = append(all, b)
	}
	v.Width = []int{width, (width + 7) / 8 * 8, 0}[draw(3)]
	for _, b := range all {
		size := v.Width
		if size == 0 {
			size = len(b) + draw(3)
			v.Spans = append(v.Spans, Span{uint32(len(v.Bytes)), uint32(size)})
		}
		full := make([]byte, size)
		for i := range full {
			full[i] = byte(int8(b[0]) >> 7)
		}
		copy(full[size-len(b):], b)
		if !v.BigEndian {
			slices.Reverse(full)
		}
		v.Bytes = append(v.Bytes, full...)
	}
}

// twos returns the two's complement of n, big-endian, in the fewest bytes.
func twos(n *big.Int) []byte {
	if n.Sign() >= 0 {
		return append(make([]byte, 1), n.Bytes()...)
	}
	size := n.BitLen()/8 + 1
	return new(big.Int).Add(n, new(big.Int).Lsh(big.NewInt(1), uint(8*size))).FillBytes(make([]byte, size))
}

func (v *Vector) numbers(t *Type, values []any, width int) {
	v.Width = width
	for _, x := range values {
		var b []byte
		switch x := x.(type) {
		case nil:
			b = make([]byte, width)
			for i := range b {
				b[i] = 0xa5
			}
		case bool:
			b = []byte{0}
			if x {
				b[0] = 1
			}
		case int64:
			b = binary.LittleEndian.AppendUint64(nil, uint64(x))
		case uint64:
			b = binary.LittleEndian.AppendUint64(nil, x)
		case int96:
			b = binary.LittleEndian.AppendUint64(nil, uint64(x.nanos))
			b = binary.LittleEndian.AppendUint32(b, uint32(x.julian))
		case float64:
			switch t.Bits {
			case 64:
				b = binary.LittleEndian.AppendUint64(nil, math.Float64bits(x))
			case 32:
				b = binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(x)))
			default:
				b = binary.LittleEndian.AppendUint16(nil, half(x))
			}
		}
		v.Bytes = append(v.Bytes, b[:width]...)
	}
}

// half returns the bits of a float of 16 bits that has the value x.
func half(x float64) uint16 {
	for raw := range 1 << 16 {
		if y := float16(uint16(raw)); y == x && math.Signbit(y) == math.Signbit(x) || x != x && y != y {
			return uint16(raw)
		}
	}
	panic("it is not a float of 16 bits")
}

// table returns the schema of columns "NAME: TYPE", and a batch of their values, by column.
func table(s Schema, values ...[]any) *Batch { return tableAs(s, plain, values...) }

func tableAs(s Schema, draw layout, values ...[]any) *Batch {
	b := &Batch{Rows: len(values[0])}
	for i, f := range s {
		first := draw(3)
		padded := make([]any, first, first+len(values[i]))
		for j := range padded {
			padded[j] = values[i][0]
		}
		v := build(f.Type, append(padded, values[i]...), draw)
		b.Columns = append(b.Columns, Slots{&v, first})
	}
	return b
}

// Types of tests.
var (
	tBool   = &Type{Kind: Bool}
	tInt32  = &Type{Kind: Int, Bits: 32}
	tInt64  = &Type{Kind: Int, Bits: 64}
	tUint64 = &Type{Kind: Int, Bits: 64, Unsigned: true}
	tUint32 = &Type{Kind: Int, Bits: 32, Unsigned: true}
	tFloat  = &Type{Kind: Float, Bits: 32}
	tDouble = &Type{Kind: Float, Bits: 64}
	tHalf   = &Type{Kind: Float, Bits: 16}
	tString = &Type{Kind: String}
	tBinary = &Type{Kind: Binary}
	tUUID   = &Type{Kind: UUID}
	tDate   = &Type{Kind: Date}
	tMicros = &Type{Kind: Timestamp, Unit: Micros, UTC: true}
)

func listOf(t *Type) *Type      { return &Type{Kind: List, Fields: []Field{{"", t}}} }
func mapOf(k, v *Type) *Type    { return &Type{Kind: Map, Fields: []Field{{"", k}, {"", v}}} }
func structOf(f ...Field) *Type { return &Type{Kind: Struct, Fields: f} }
func arrayOf(t *Type) *Type     { return &Type{Kind: NDArray, Fields: []Field{{"", t}}} }

func ints(numbers ...int64) []any {
	list := make([]any, len(numbers))
	for i, n := range numbers {
		list[i] = n
	}
	return list
}

func nullable(t *Type) *Type {
	copied := *t
	copied.Nullable = true
	return &copied
}
