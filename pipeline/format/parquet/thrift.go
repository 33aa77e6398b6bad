package parquet

import (
	"encoding/binary"
	"math"
)

// Types of Thrift's compact protocol.
const (
	thriftStop   = 0
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
	thriftUUID   = 13
)

// maxThriftDepth bounds the nesting of values that are skipped.
const maxThriftDepth = 32

const errThriftShort = reason("it ends early")

// thrift reads values of Thrift's compact protocol from bytes. It allocates nothing: strings are
// parts of the input. After an error all reads return zero, and err stays.
type thrift struct {
	b   []byte
	pos int
	err error
}

func (t *thrift) fail(format string, args ...any) {
	if t.err == nil {
		t.err = damaged(format, args...)
	}
}

func (t *thrift) short() {
	if t.err == nil {
		t.err = errThriftShort
	}
}

func (t *thrift) byte() byte {
	if t.err != nil || t.pos >= len(t.b) {
		t.short()
		return 0
	}
	t.pos++
	return t.b[t.pos-1]
}

func (t *thrift) uvarint() uint64 {
	if t.err != nil {
		return 0
	}
	v, n := binary.Uvarint(t.b[t.pos:])
	switch {
	case n == 0:
		t.short()
		return 0
	case n < 0:
		t.fail("a number has more than 64 bits")
		return 0
	}
	t.pos += n
	return v
}

func (t *thrift) int() int64 {
	v := t.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// int32 returns an int that must have at most 32 bits.
func (t *thrift) int32() int32 {
	v := t.int()
	if v != int64(int32(v)) {
		t.fail("the number %d has more than 32 bits", v)
		return 0
	}
	return int32(v)
}

func (t *thrift) bytes() []byte {
	n := t.uvarint()
	if t.err != nil {
		return nil
	}
	if n > uint64(len(t.b)-t.pos) {
		t.short()
		return nil
	}
	from := t.pos
	t.pos += int(n)
	return t.b[from:t.pos:t.pos]
}

func (t *thrift) advance(n int) {
	if t.err == nil && n > len(t.b)-t.pos {
		t.short()
	}
	if t.err == nil {
		t.pos += n
	}
}

// fields calls field for each field of a struct. field reports whether it has read the value; else
// the value is skipped.
func (t *thrift) fields(field func(id int16, kind byte) bool) { t.fieldsAt(0, field) }

func (t *thrift) fieldsAt(depth int, field func(id int16, kind byte) bool) {
	var id int16
	for t.err == nil {
		head := t.byte()
		kind := head & 15
		if t.err != nil || kind == thriftStop {
			return
		}
		if delta := int16(head >> 4); delta != 0 {
			if id > math.MaxInt16-delta {
				t.fail("a field has the number %d", int(id)+int(delta))
				return
			}
			id += delta
		} else {
			v := t.int()
			if v != int64(int16(v)) {
				t.fail("a field has the number %d", v)
			}
			id = int16(v)
		}
		if t.err == nil && (field == nil || !field(id, kind)) {
			t.skip(kind, depth+1)
		}
	}
}

// is fails if a field has another type than Parquet's definition says.
func (t *thrift) is(kind, want byte) bool {
	if kind != want {
		t.fail("a field has the type %d, not %d", kind, want)
	}
	return kind == want
}

// i32 reads the int of a field.
func (t *thrift) i32(kind byte) int32 {
	if !t.is(kind, thriftI32) {
		return 0
	}
	return t.int32()
}

// i64 reads the int of a field.
func (t *thrift) i64(kind byte) int64 {
	if !t.is(kind, thriftI64) {
		return 0
	}
	return t.int()
}

func (t *thrift) binary(kind byte) []byte {
	if !t.is(kind, thriftBinary) {
		return nil
	}
	return t.bytes()
}

// bool returns the value of a field, which its type has.
func (t *thrift) bool(kind byte) bool {
	if kind != thriftTrue && kind != thriftFalse {
		t.fail("a field has the type %d, not bool", kind)
	}
	return kind == thriftTrue
}

// list reads the head of a list whose elements have the type want, and returns their number. Each
// element takes at least one byte, so the number is at most that of the bytes that are left.
func (t *thrift) list(kind, want byte) int {
	if !t.is(kind, thriftList) {
		return 0
	}
	n, elem := t.listHead()
	if n > 0 && elem != want {
		t.fail("a list has elements of type %d, not %d", elem, want)
		return 0
	}
	return n
}

func (t *thrift) listHead() (int, byte) {
	head := t.byte()
	n := uint64(head >> 4)
	if n == 15 {
		n = t.uvarint()
	}
	if t.err == nil && n > uint64(len(t.b)-t.pos) {
		t.short()
	}
	if t.err != nil {
		return 0, 0
	}
	return int(n), head & 15
}

// skip passes over the value of a field.
func (t *thrift) skip(kind byte, depth int) {
	if depth > maxThriftDepth {
		t.fail("it is nested more than %d levels deep", maxThriftDepth)
	}
	if t.err != nil {
		return
	}
	switch kind {
	case thriftTrue, thriftFalse:
	case thriftByte:
		t.advance(1)
	case thriftI16, thriftI32, thriftI64:
		t.uvarint()
	case thriftDouble:
		t.advance(8)
	case thriftUUID:
		t.advance(16)
	case thriftBinary:
		t.bytes()
	case thriftList, thriftSet:
		n, elem := t.listHead()
		for range n {
			t.skipElement(elem, depth)
			if t.err != nil {
				return
			}
		}
	case thriftMap:
		n := t.uvarint()
		if n == 0 || t.err != nil {
			return
		}
		kinds := t.byte()
		if n > uint64(len(t.b)-t.pos) {
			t.short()
		}
		for range n {
			t.skipElement(kinds>>4, depth)
			t.skipElement(kinds&15, depth)
			if t.err != nil {
				return
			}
		}
	case thriftStruct:
		t.fieldsAt(depth, nil)
	default:
		t.fail("a field has the unknown type %d", kind)
	}
}

// skipElement skips an element of a list or map, in which bools take a byte.
func (t *thrift) skipElement(kind byte, depth int) {
	if kind == thriftTrue || kind == thriftFalse {
		t.advance(1)
		return
	}
	t.skip(kind, depth+1)
}
