package rows

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// unbuilt returns a value as the tests write it.
func unbuilt(v Value) any {
	if v.Null() {
		return nil
	}
	switch v.Type.Kind {
	case Bool:
		return v.Bool()
	case Int:
		if v.Type.Unsigned {
			return v.Uint()
		}
		return v.Int()
	case Float:
		return v.Float()
	case Date, Time:
		return v.Int()
	case List:
		list := []any{}
		for i := range v.Len() {
			list = append(list, unbuilt(v.Elem(0, i)))
		}
		return list
	case Map:
		entries := [][2]any{}
		for i := range v.Len() {
			entries = append(entries, [2]any{unbuilt(v.Elem(0, i)), unbuilt(v.Elem(1, i))})
		}
		return entries
	case Struct:
		fields := []any{}
		for i := range v.Type.Fields {
			fields = append(fields, unbuilt(v.Field(i)))
		}
		return fields
	case String, Binary, UUID, Number, JSON:
		return string(v.Bytes())
	}
	return v.Type.Kind // decimals, timestamps, arrays: compared as text elsewhere
}

// simplified returns a value with what unbuilt does not return replaced by its kind.
func simplified(t *Type, x any) any {
	switch t.Kind {
	case Decimal, Timestamp, NDArray:
		if x != nil {
			return t.Kind
		}
	case List, Struct:
		if x == nil {
			return nil
		}
		list := []any{}
		for i, e := range x.([]any) {
			f := 0
			if t.Kind == Struct {
				f = i
			}
			list = append(list, simplified(t.Fields[f].Type, e))
		}
		return list
	case Map:
		if x == nil {
			return nil
		}
		entries := [][2]any{}
		for _, e := range x.([][2]any) {
			entries = append(entries, [2]any{simplified(t.Fields[0].Type, e[0]), simplified(t.Fields[1].Type, e[1])})
		}
		return entries
	}
	return x
}

// Views return what was stored, in whatever form.
func TestValuesAreThoseStored(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, values, b := drawTable(t, true)
		for i := range s {
			for r := range b.Rows {
				require.Equal(t, fmt.Sprint(simplified(s[i].Type, values[i][r])), fmt.Sprint(unbuilt(b.Value(s[i].Type, i, r))))
			}
		}
	})
}

func TestCheckFindsContradictions(t *testing.T) {
	bytes := make([]byte, 8)
	for _, c := range []struct {
		typ  *Type
		v    Vector
		want string
	}{
		{tInt64, Vector{Width: 8, Bytes: bytes}, ""},
		{tInt64, Vector{Width: 8, Bytes: bytes[:7]}, "value 0 of 7 bytes"},
		{tInt64, Vector{Width: 3, Bytes: bytes}, "width 3 of int64"},
		{tFloat, Vector{Width: 8, Bytes: bytes}, "width 8 of float32"},
		{tInt64, Vector{Width: 8, Bytes: bytes, Index: []int32{}}, "slot 0 of 0"},
		{tInt64, Vector{Width: 8, Bytes: bytes, Index: []int32{1}}, "value 1 of 8 bytes"},
		{tInt64, Vector{Index: []int32{-1}}, ""},
		{tInt64, Vector{Index: []int32{-2}}, "index -2"},
		{tBool, Vector{Bytes: bytes}, ""},
		{tBool, Vector{}, "bit 0 of 0 bytes"},
		{tString, Vector{Bytes: bytes, Spans: []Span{{7, 1}}}, ""},
		{tString, Vector{Bytes: bytes, Spans: []Span{{7, 2}}}, "span {7 2} of 8 bytes"},
		{tString, Vector{Bytes: bytes}, "value 0 of 0 spans"},
		{tUUID, Vector{Bytes: bytes, Spans: []Span{{0, 8}}}, "width 0 of uuid"},
		{listOf(tBool), Vector{Offsets: []int32{0, 9}, Children: []Vector{{Bytes: bytes[:1]}}}, "element 8: bit 8 of 1 bytes"},
		{listOf(tBool), Vector{Offsets: []int32{1, 0}, Children: []Vector{{}}}, "offsets 1 and 0"},
		{listOf(tBool), Vector{Offsets: []int32{0}, Children: []Vector{{}}}, "value 0 of 1 offsets, 1 children"},
		{structOf(Field{"a", tBool}), Vector{Children: []Vector{{}}}, "field a: bit 0 of 0 bytes"},
		{structOf(Field{"a", tBool}), Vector{}, "0 children for 1 fields"},
		{arrayOf(tInt32), Vector{Bytes: bytes, Spans: []Span{{0, 8}}, Dims: []Dims{{2}}}, ""},
		{arrayOf(tInt32), Vector{Bytes: bytes, Spans: []Span{{0, 8}}, Dims: []Dims{{3}}}, "the shape of an array is not that of its bytes"},
	} {
		err := (&Batch{1, []Slots{{&c.v, 0}}}).Check([]Column{{Name: "x", Type: c.typ}})
		if c.want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, "column x, row 0: "+c.want)
		}
	}
}
