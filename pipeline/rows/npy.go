package rows

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/format/npy"
)

// alignBytes is the alignment to which the fields of structured rows are padded.
const alignBytes = 64

// NPY presents a row as a row of an .npy array: that of a single column, or a structured one with a
// field for each of several columns, each padded with zeros to a multiple of 64 bytes.
//
// The lengths of lists are those of the first row, and all other rows must have the same. Lengths
// returns them, and NewNPY accepts those of another shard.
type NPY struct {
	columns  []npyColumn
	learned  bool
	maxBytes int64
	scratch  []byte
}

var _ Presenter = (*NPY)(nil)

// npyColumn is a column of numbers.
type npyColumn struct {
	name  string
	*Type         // of the column
	elem  *Type   // of its numbers
	descr string  // "'<i4'"
	width int     // bytes of a number
	lens  []int64 // of its axes, -1 if not known
	array bool    // the axes are those of an NDArray
}

// NewNPY returns a presenter of rows of at most maxBytes; 0 means no limit. lengths are those that
// Lengths returned for a dataset, or nil. Columns that are not numbers or lists of numbers are a
// *RefusedError.
func NewNPY(columns []Column, lengths [][]int64, maxBytes int64) (*NPY, error) {
	p := &NPY{maxBytes: maxBytes, learned: true}
	for i, c := range columns {
		col, err := newNPYColumn(c)
		if err != nil {
			return nil, err
		}
		switch {
		case lengths == nil:
			p.learned = p.learned && len(col.lens) == 0 && !col.array
		case i >= len(lengths) || len(lengths) != len(columns) || !col.array && len(lengths[i]) != len(col.lens):
			return nil, refused(c.Name, "its lists have other lengths in the index: index the dataset again")
		default:
			col.lens = append([]int64(nil), lengths[i]...)
		}
		p.columns = append(p.columns, col)
	}
	if p.learned {
		if _, err := p.Rows(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func newNPYColumn(c Column) (npyColumn, error) {
	col := npyColumn{name: c.Name, Type: c.Type, elem: c.Type}
	for col.elem.Kind == List {
		col.lens = append(col.lens, -1)
		col.elem = col.elem.Fields[0].Type
	}
	if col.elem.Kind == NDArray && len(col.lens) == 0 {
		col.array, col.elem = true, col.elem.Fields[0].Type
	}
	col.width = col.elem.bytes()
	switch e := col.elem; {
	case e.Kind == Bool:
		col.descr = "'|b1'"
	case e.Kind == Int:
		col.descr = "'" + dtypeOf(e.Bits, e.Unsigned) + "'"
	case e.Kind == Float:
		col.descr = fmt.Sprintf("'<f%d'", e.Bits/8)
	case e.Kind == Binary && e.Size > 0:
		col.width = e.Size
		col.descr = fmt.Sprintf("'|V%d'", e.Size)
	default:
		return col, refused(c.Name, "its type is %s, and rows of an array hold bools, ints, floats, binary of one size, and lists of these: use --as jsonl or --as tar, or leave it out with --columns", c.Type)
	}
	return col, nil
}

// dtypeOf returns NumPy's type string of an int.
func dtypeOf(bits int, unsigned bool) string {
	kind, order := byte('i'), byte('<')
	if unsigned {
		kind = 'u'
	}
	if bits == 8 {
		order = '|'
	}
	return fmt.Sprintf("%c%c%d", order, kind, bits/8)
}

// Lengths returns the lengths of the lists of each column, nil before the first row if there are
// lists.
func (p *NPY) Lengths() [][]int64 {
	if !p.learned {
		return nil
	}
	lengths := make([][]int64, len(p.columns))
	for i, c := range p.columns {
		lengths[i] = append([]int64{}, c.lens...)
	}
	return lengths
}

// Rows returns the format of the streams, which has their prologue. The lengths must be known.
func (p *NPY) Rows() (npy.Rows, error) {
	names, kinds := make([]string, len(p.columns)), make([]string, len(p.columns))
	for i, c := range p.columns {
		names[i], kinds[i] = c.name, c.descr+" "+shapeText(c.lens)
	}
	if len(p.columns) == 1 {
		rows, err := npy.NewRows(p.columns[0].descr, p.columns[0].lens)
		if err == nil && rows.RowBytes() == 0 {
			err = refused(names[0], "its rows have 0 bytes")
		}
		return rows, err
	}
	for _, name := range names {
		if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == '\'' || r == '\\' || r == 0x7f }) {
			return npy.Rows{}, refused("", "%q can't be the name of a field of an array: give the column another name with --columns NAME=PATH", name)
		}
	}
	rows, err := npy.Framing{}.Join(names, kinds)
	if err != nil {
		err = refused("", "the columns can't be rows of an array: %v", err)
	}
	return rows, err
}

// shapeText returns a shape as Python writes it: "()", "(3,)", "(3, 4)".
func shapeText(lens []int64) string {
	var b strings.Builder
	b.WriteByte('(')
	for i, n := range lens {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, n)
	}
	if len(lens) == 1 {
		b.WriteByte(',')
	}
	b.WriteByte(')')
	return b.String()
}

// Extension implements Presenter.
func (p *NPY) Extension() string { return ".npy" }

// Size implements Presenter.
func (p *NPY) Size(b *Batch, r int, ordinal int64) (int64, error) {
	var err error
	p.scratch, err = p.Append(p.scratch[:0], b, r, ordinal)
	return int64(len(p.scratch)), err
}

// Append implements Presenter.
func (p *NPY) Append(dst []byte, b *Batch, r int, _ int64) ([]byte, error) {
	start, limit := len(dst), limitOf(dst, p.maxBytes)
	for i := range p.columns {
		c := &p.columns[i]
		at := len(dst)
		var err error
		if dst, err = c.append(dst, b.Columns[i].Vector, b.Columns[i].First+r, limit); err != nil {
			p.forget()
			return dst[:start], within(err, c.name)
		}
		if len(p.columns) > 1 {
			var zeros [alignBytes]byte
			dst = append(dst, zeros[:-(len(dst)-at)&(alignBytes-1)]...)
		}
	}
	if len(dst) > limit {
		p.forget()
		return dst[:start], errTooLong()
	}
	if !p.learned {
		return p.learn(dst, start)
	}
	return dst, nil
}

// learn makes the lengths of the first row those of all.
func (p *NPY) learn(dst []byte, start int) ([]byte, error) {
	for _, c := range p.columns {
		for i, n := range c.lens {
			c.lens[i] = max(n, 0) // lists inside of an empty one
		}
	}
	if _, err := p.Rows(); err != nil {
		p.forget()
		return dst[:start], err
	}
	p.learned = true
	return dst, nil
}

// forget makes the lengths unknown again after a first row that failed.
func (p *NPY) forget() {
	if p.learned {
		return
	}
	for i := range p.columns {
		c := &p.columns[i]
		if c.array {
			c.lens = nil
		}
		for j := range c.lens {
			c.lens[j] = -1
		}
	}
}

func (c *npyColumn) append(dst []byte, v *Vector, slot, limit int) ([]byte, error) {
	if c.array {
		return c.appendArray(dst, v, slot, limit)
	}
	return c.appendAxis(dst, v, slot, slot+1, 0, limit)
}

// appendAxis appends the slots from … to-1 of lists on the given axis, or of numbers after the last
// axis.
func (c *npyColumn) appendAxis(dst []byte, v *Vector, from, to, axis, limit int) ([]byte, error) {
	if axis == len(c.lens) {
		return c.appendNumbers(dst, v, from, to, limit)
	}
	for slot := from; slot < to; slot++ {
		i := v.at(slot)
		if i < 0 {
			return dst, errNull()
		}
		first, end := int(v.Offsets[i]), int(v.Offsets[i+1])
		if err := c.axis(axis, int64(end-first)); err != nil {
			return dst, err
		}
		var err error
		if dst, err = c.appendAxis(dst, &v.Children[0], first, end, axis+1, limit); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// axis compares the length of a list with those before it.
func (c *npyColumn) axis(axis int, n int64) error {
	switch {
	case c.lens[axis] < 0:
		c.lens[axis] = n
	case c.lens[axis] != n:
		return refused("", "a list has %d elements, and %d in the rows before: rows of an array have one shape; use --as jsonl, or --as tar", n, c.lens[axis])
	}
	return nil
}

func errNull() error {
	return refused("", "it is null, which rows of an array can't hold: use --as jsonl, or --as tar")
}

func (c *npyColumn) appendArray(dst []byte, v *Vector, slot, limit int) ([]byte, error) {
	i := v.at(slot)
	if i < 0 {
		return dst, errNull()
	}
	dims := v.Dims[i]
	if c.lens == nil {
		c.lens = make([]int64, len(dims))
		for axis, n := range dims {
			c.lens[axis] = int64(n)
		}
	}
	if len(dims) != len(c.lens) {
		return dst, refused("", "an array has %d axes, and %d in the rows before: rows of an array have one shape; use --as jsonl, or --as tar", len(dims), len(c.lens))
	}
	for axis, n := range dims {
		if err := c.axis(axis, int64(n)); err != nil {
			return dst, err
		}
	}
	if s := v.bytes(i); len(dst)+len(s) <= limit {
		return append(dst, s...), nil
	}
	return dst, errTooLong()
}

// appendNumbers appends numbers in their declared width.
func (c *npyColumn) appendNumbers(dst []byte, v *Vector, from, to, limit int) ([]byte, error) {
	if to-from > (limit-len(dst))/c.width {
		return dst, errTooLong()
	}
	if v.Index == nil && v.Width == c.width && c.elem.Kind != Bool {
		return append(dst, v.Bytes[from*c.width:to*c.width]...), nil
	}
	for slot := from; slot < to; slot++ {
		i := v.at(slot)
		if i < 0 {
			return dst, errNull()
		}
		switch {
		case c.elem.Kind == Bool:
			one := byte(0)
			if v.bool(i) {
				one = 1
			}
			dst = append(dst, one)
		case v.Width == c.width:
			dst = append(dst, v.Bytes[i*c.width:(i+1)*c.width]...)
		case c.elem.Kind == Binary:
			s := v.bytes(i)
			if len(s) != c.width {
				return dst, damaged("a value has %d bytes instead of %d", len(s), c.width)
			}
			dst = append(dst, s...)
		default:
			var ok bool
			if dst, ok = appendAs(dst, v, i, c.elem, c.elem.Bits, c.elem.Unsigned); !ok {
				return dst, damaged("the number %s does not fit its type %s", appendInt(nil, c.elem, v, i), c.elem)
			}
		}
	}
	return dst, nil
}

// appendAs appends an int as one of another width and sign, and reports whether it fits.
func appendAs(dst []byte, v *Vector, value int, t *Type, bits int, unsigned bool) ([]byte, bool) {
	if t.Unsigned {
		n := v.uint(value)
		if !unsigned {
			bits--
		}
		return appendLittle(dst, n, (bits+1)/8), n>>(bits-1)>>1 == 0
	}
	n := v.int(value)
	return appendLittle(dst, uint64(n), bits/8), fits(n, bits, unsigned)
}

// fits reports whether an int of some bits can be n.
func fits(n int64, bits int, unsigned bool) bool {
	if unsigned {
		return n >= 0 && uint64(n)>>(bits-1)>>1 == 0
	}
	return n>>(bits-1) == 0 || n>>(bits-1) == -1
}

// appendLittle appends the lowest bytes of n.
func appendLittle(dst []byte, n uint64, width int) []byte {
	switch width {
	case 1:
		return append(dst, byte(n))
	case 2:
		return binary.LittleEndian.AppendUint16(dst, uint16(n))
	case 4:
		return binary.LittleEndian.AppendUint32(dst, uint32(n))
	}
	return binary.LittleEndian.AppendUint64(dst, n)
}
