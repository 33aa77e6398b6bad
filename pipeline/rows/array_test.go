package rows

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// array returns the header's dictionary and the data of the rows.
func array(t *testing.T, s Schema, columns ...[]any) (string, string) {
	p, err := NewNPY(resolved(t, s, ""), nil, 0)
	require.NoError(t, err)
	b := table(s, columns...)
	var data []byte
	for r := range b.Rows {
		before := len(data)
		data, err = p.Append(data, b, r, 0)
		require.NoError(t, err)
		size, err := p.Size(b, r, 0)
		require.NoError(t, err)
		require.Equal(t, int64(len(data)-before), size)
	}
	rows, err := p.Rows()
	require.NoError(t, err)
	require.Equal(t, len(data), b.Rows*int(rows.RowBytes()))
	head := rows.Prologue(uint64(b.Rows))
	return strings.TrimSpace(string(head[10:])), string(data)
}

func TestArraysOfOneColumn(t *testing.T) {
	integer := func(bits int, unsigned bool) *Type { return &Type{Kind: Int, Bits: bits, Unsigned: unsigned} }
	header := func(descr, shape string) string {
		return fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, shape)
	}
	for _, c := range []struct {
		name   string
		typ    *Type
		values []any
		descr  string
		shape  string
		data   string
	}{
		{"bool", tBool, []any{true, false}, "|b1", "2,", "\x01\x00"},
		{"int8", integer(8, false), ints(-1), "|i1", "1,", "\xff"},
		{"int16", integer(16, false), ints(-2), "<i2", "1,", "\xfe\xff"},
		{"int32", tInt32, ints(-2), "<i4", "1,", "\xfe\xff\xff\xff"},
		{"int64", tInt64, ints(1), "<i8", "1,", "\x01\x00\x00\x00\x00\x00\x00\x00"},
		{"uint8", integer(8, true), []any{uint64(255)}, "|u1", "1,", "\xff"},
		{"uint16", integer(16, true), []any{uint64(65535)}, "<u2", "1,", "\xff\xff"},
		{"uint32", tUint32, []any{uint64(1)}, "<u4", "1,", "\x01\x00\x00\x00"},
		{"uint64", tUint64, []any{uint64(math.MaxUint64)}, "<u8", "1,", "\xff\xff\xff\xff\xff\xff\xff\xff"},
		{"float16", tHalf, []any{1.0}, "<f2", "1,", "\x00\x3c"},
		{"float32", tFloat, []any{1.0}, "<f4", "1,", "\x00\x00\x80\x3f"},
		{"float64", tDouble, []any{1.0}, "<f8", "1,", "\x00\x00\x00\x00\x00\x00\xf0\x3f"},
		{"binary of one size", &Type{Kind: Binary, Size: 3}, []any{"abc", "def"}, "|V3", "2,", "abcdef"},
		{"a list is an axis", listOf(integer(8, false)), []any{ints(1, 2, 3), ints(4, 5, 6)}, "|i1", "2, 3", "\x01\x02\x03\x04\x05\x06"},
		{"lists of lists", listOf(listOf(integer(8, false))), []any{[]any{ints(1), ints(2)}}, "|i1", "1, 2, 1", "\x01\x02"},
		{"an array has its axes", arrayOf(tInt32), []any{ndarray{Dims{1, 2}, ints(1, 2)}}, "<i4", "1, 1, 2", "\x01\x00\x00\x00\x02\x00\x00\x00"},
	} {
		t.Run(c.name, func(t *testing.T) {
			head, data := array(t, Schema{{"x", c.typ}}, c.values)
			require.Equal(t, header(c.descr, c.shape), head)
			require.Equal(t, c.data, data)
		})
	}
}

func TestArraysOfSeveralColumns(t *testing.T) {
	head, data := array(t, Schema{{"a b", tInt64}, {"é", listOf(tInt64)}}, ints(1), []any{ints(1, 2, 3, 4, 5, 6, 7, 8)})
	require.Equal(t, "{'descr': [('a b', '<i8'), ('', '|V56'), ('\xe9', '<i8', (8,))], 'fortran_order': False, 'shape': (1,), }", head)
	require.Equal(t, "\x01"+strings.Repeat("\x00", 63), data[:64])
	require.Len(t, data, 128)
	_, err := NewNPY(resolved(t, Schema{{"it's", tBool}, {"b", tBool}}, ""), nil, 0)
	require.EqualError(t, err, `"it's" can't be the name of a field of an array: give the column another name with --columns NAME=PATH`)
	_, err = NewNPY(resolved(t, Schema{{"中", tBool}, {"b", tBool}}, ""), nil, 0)
	require.ErrorContains(t, err, "whose names are Latin-1: rename them")
}

func TestRowsThatAreNotArrays(t *testing.T) {
	for _, typ := range []*Type{tString, tBinary, tUUID, tDate, tMicros, mapOf(tString, tBool), structOf(), listOf(tString), {Kind: Decimal, Precision: 9}} {
		_, err := NewNPY(resolved(t, Schema{{"x", typ}}, ""), nil, 0)
		var refusal *RefusedError
		require.ErrorAs(t, err, &refusal)
		require.ErrorContains(t, err, "column x: its type is "+typ.String()+", and rows of an array hold bools")
	}
	nested := nullable(listOf(nullable(listOf(nullable(tInt32)))))
	for _, c := range []struct {
		name   string
		values []any
		want   string
	}{
		{"a null", []any{[]any{ints(1)}, nil}, "column x: it is null"},
		{"a null list", []any{[]any{ints(1)}, []any{nil}}, "column x: it is null"},
		{"a null element", []any{[]any{ints(1)}, []any{[]any{nil}}}, "column x: it is null"},
		{"another length", []any{[]any{ints(1)}, []any{ints(1), ints(2)}}, "column x: a list has 2 elements, and 1 in the rows before"},
		{"another length inside", []any{[]any{ints(1)}, []any{ints(1, 2)}}, "column x: a list has 2 elements, and 1 in the rows before"},
		{"another length in one row", []any{[]any{ints(1)}, []any{ints()}}, "column x: a list has 0 elements, and 1 in the rows before"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Schema{{"x", nested}}
			b := table(s, c.values)
			p, err := NewNPY(resolved(t, s, ""), nil, 0)
			require.NoError(t, err)
			first, err := p.Append([]byte("before"), b, 0, 0)
			require.NoError(t, err)
			got, err := p.Append(first, b, 1, 1)
			var refusal *RefusedError
			require.ErrorAs(t, err, &refusal)
			require.ErrorContains(t, err, c.want)
			require.Equal(t, first, got)
			_, err = p.Append(nil, b, 0, 2)
			require.NoError(t, err)
			again, err := NewNPY(resolved(t, s, ""), p.Lengths(), 0)
			require.NoError(t, err)
			_, err = again.Append(nil, b, 1, 0)
			require.ErrorAs(t, err, &refusal)
		})
	}
	p, err := NewNPY(resolved(t, Schema{{"x", listOf(tInt32)}}, ""), nil, 0)
	require.NoError(t, err)
	b := table(Schema{{"x", listOf(tInt32)}}, []any{ints(), ints(1)})
	_, err = p.Append(nil, b, 0, 0)
	require.EqualError(t, err, "column x: its rows have 0 bytes")
	require.Nil(t, p.Lengths(), "a row that failed does not determine the lengths")
	_, err = p.Append(nil, b, 1, 0)
	require.NoError(t, err)
	require.Equal(t, [][]int64{{1}}, p.Lengths())
}

// A file may store ints in more bytes than their type has; a number that does not fit is damage.
func TestNumbersBeyondTheirType(t *testing.T) {
	v := Vector{Width: 4, Bytes: binary.LittleEndian.AppendUint32(nil, 70000)}
	for _, typ := range []*Type{{Kind: Int, Bits: 16}, {Kind: Int, Bits: 16, Unsigned: true}, {Kind: Int, Bits: 8}} {
		p, err := NewNPY([]Column{{Name: "x", Type: typ}}, nil, 0)
		require.NoError(t, err)
		_, err = p.Append(nil, &Batch{1, []Slots{{&v, 0}}}, 0, 0)
		var damage *DamageError
		require.ErrorAs(t, err, &damage)
		require.EqualError(t, err, "column x: the number 70000 does not fit its type "+typ.String())
	}
}

func TestParsePack(t *testing.T) {
	p, err := ParsePack("4096+1")
	require.NoError(t, err)
	require.Equal(t, Pack{Length: 4096, Labels: true}, p)
	for _, text := range []string{"", "0", "-1", "+1", "4+2", "4 ", "+4", "1073741825", "x"} {
		_, err := ParsePack(text)
		require.ErrorContains(t, err, "--pack "+text+": it must be a number of tokens", text)
	}
}

func TestColumnsThatAreNotPacked(t *testing.T) {
	for _, c := range []struct {
		s    Schema
		p    Pack
		want string
	}{
		{Schema{{"a", listOf(tInt32)}, {"b", tBool}}, Pack{Length: 1}, "--pack needs one column of lists of ints, and 2 are selected: name it with --columns"},
		{Schema{{"a", tInt32}}, Pack{Length: 1}, "column a: --pack needs lists of ints, and its type is int32"},
		{Schema{{"a", listOf(tFloat)}}, Pack{Length: 1}, "column a: --pack needs lists of ints, and its type is list<float32>"},
		{Schema{{"a", listOf(tInt32)}}, Pack{Length: 1, Dtype: "u1"}, "--dtype u1: it must be u2, u4, i4 or i8"},
		{Schema{{"a", listOf(tInt32)}}, Pack{Length: 1, Dtype: "u2", HasEOS: true, EOS: 65536}, "--eos 65536 does not fit the tokens' dtype <u2"},
		{Schema{{"a", listOf(tUint32)}}, Pack{Length: 1, HasEOS: true, EOS: -1}, "--eos -1 does not fit the tokens' dtype <u4"},
	} {
		_, err := NewPacker(c.p, resolved(t, c.s, ""))
		require.EqualError(t, err, c.want)
	}
}

// A token that does not fit leaves out its list and nothing else; a null token is refused.
func TestTokensThatDoNotFit(t *testing.T) {
	s := Schema{{"a", listOf(nullable(tInt64))}}
	b := table(s, []any{ints(1), ints(2, 65536), ints(-1), []any{nil}, ints(65535)})
	k, err := NewPacker(Pack{Length: 1, Dtype: "u2", HasEOS: true, EOS: 9}, resolved(t, s, ""))
	require.NoError(t, err)
	var data []byte
	var texts []string
	for r := range b.Rows {
		before := len(data)
		if data, err = k.Append(data, b, r); err != nil {
			var damage *DamageError
			require.Equal(t, r != 3, errors.As(err, &damage))
			texts = append(texts, err.Error())
			require.Len(t, data, before)
		}
	}
	require.Equal(t, []string{"column a.1: the token 65536 does not fit <u2", "column a.0: the token -1 does not fit <u2", "column a.0: a token is null, which --pack does not accept"}, texts)
	require.Equal(t, "\x01\x00\x09\x00\xff\xff\x09\x00", string(data))
	require.Equal(t, int64(4), k.Count())
}

// Windows are those of a slow twin that makes one list of all tokens and cuts it.
func TestWindowsAreThoseOfTheTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Pack{Length: rapid.Int64Range(1, 7).Draw(t, "length"), Labels: rapid.Bool().Draw(t, "labels"), HasEOS: rapid.Bool().Draw(t, "eos"), EOS: 3}
		p.Dtype = rapid.SampledFrom([]string{"", "u2", "u4", "i4", "i8"}).Draw(t, "dtype")
		elem := &Type{Kind: Int, Bits: rapid.SampledFrom([]int{8, 16, 32, 64}).Draw(t, "bits"), Unsigned: rapid.Bool().Draw(t, "unsigned")}
		s := Schema{{"a", nullable(listOf(elem))}}
		var lists, tokens []any
		for range rapid.IntRange(1, 10).Draw(t, "lists") {
			list := drawValue(t, s[0].Type, false)
			lists = append(lists, list)
			if list != nil && len(list.([]any)) > 0 {
				tokens = append(tokens, list.([]any)...)
				if p.HasEOS {
					tokens = append(tokens, int64(p.EOS))
				}
			}
		}
		k, err := NewPacker(p, []Column{{Name: "a", Type: s[0].Type}})
		require.NoError(t, err)
		b := tableAs(s, func(most int) int { return rapid.IntRange(0, most-1).Draw(t, "layout") }, lists)
		var data []byte
		for r := range b.Rows {
			if data, err = k.Append(data, b, r); err != nil {
				var damage *DamageError
				require.ErrorAs(t, err, &damage)
				t.Skip("a token does not fit")
			}
		}
		require.Equal(t, int64(len(tokens)), k.Count())
		size := int(k.TokenBytes())
		record := int64(0)
		covered := int64(0)
		for at := int64(0); at+p.Tokens() <= int64(len(tokens)); at += p.Length {
			offset, bytes := p.Extent(record, k.TokenBytes())
			got := data[offset : offset+bytes]
			for i, want := range tokens[at : at+p.Tokens()] {
				var raw [8]byte
				copy(raw[:], got[i*size:(i+1)*size])
				n := binary.LittleEndian.Uint64(raw[:])
				mask := uint64(math.MaxUint64) >> (64 - 8*size)
				switch want := want.(type) {
				case int64:
					require.Equal(t, uint64(want)&mask, n)
				case uint64:
					require.Equal(t, want&mask, n)
				}
			}
			require.Equal(t, record, p.FirstFrom(at))
			require.Equal(t, record+1, p.FirstFrom(at+1))
			covered = at + p.Tokens()
			record++
		}
		require.Equal(t, record, p.Records(k.Count()))
		require.Equal(t, int64(len(tokens))-covered, p.Rest(k.Count()))
	})
}
