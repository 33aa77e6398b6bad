package rows

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"strconv"
	"unicode/utf8"
)

// node is a type as the writers walk over it.
type node struct {
	*Type
	name  string // of the field; "" for elements, keys and values
	key   []byte // of a field: `{"NAME":` or `,"NAME":`
	kids  []node
	image bool // a struct of exactly the fields bytes and path
	path  int  // of an image: the position of the field path; that of bytes is 1-path
	part  string
	// binary means that it contains binary values outside of maps.
	binary bool
}

// newNode returns the node of a type. part is its component of the suffixes of tar members.
func newNode(t *Type, name string, first bool) node {
	n := node{Type: t, name: name, part: sanitized(name), binary: t.hasBinary()}
	sep := byte(',')
	if first {
		sep = '{'
	}
	n.key, _ = appendString([]byte{sep}, []byte(name))
	n.key = append(n.key, ':')
	for i, f := range t.Fields {
		fieldName := f.Name
		if t.Kind != Struct {
			fieldName = ""
		}
		n.kids = append(n.kids, newNode(f.Type, fieldName, i == 0))
	}
	n.image, n.path = isImage(t)
	return n
}

// bytesType returns the type of an image's bytes.
func (n *node) bytesType() *Type { return n.Fields[1-n.path].Type }

// writer appends the JSON text of values. Its methods return dst as it was if they fail.
type writer struct {
	limit int // of the length of dst
	// members means that binary values are members of a tar sample: they are presented as their
	// suffix, which continues suffix. It is unset inside of maps.
	members bool
	suffix  []byte
}

// row appends a struct of the given columns.
func (w *writer) row(dst []byte, columns []node, at []int, b *Batch, r int) ([]byte, error) {
	if len(columns) == 0 {
		return append(dst, "{}"...), nil
	}
	start := len(dst)
	for i := range columns {
		c := &columns[i]
		s := b.Columns[at[i]]
		dst = append(dst, c.key...)
		var err error
		if dst, err = w.field(dst, c, s.Vector, s.First+r); err != nil {
			return dst[:start], err
		}
	}
	return append(dst, '}'), nil
}

// field appends the value of a field or column.
func (w *writer) field(dst []byte, n *node, v *Vector, slot int) ([]byte, error) {
	if !w.members {
		dst, err := w.value(dst, n, v, slot)
		if err != nil {
			return dst, within(err, n.name)
		}
		return dst, nil
	}
	outer := len(w.suffix)
	w.suffix = append(append(w.suffix, '.'), n.part...)
	dst, err := w.value(dst, n, v, slot)
	w.suffix = w.suffix[:outer]
	if err != nil {
		return dst, within(err, n.name)
	}
	return dst, nil
}

// value appends J of a value.
func (w *writer) value(dst []byte, n *node, v *Vector, slot int) ([]byte, error) {
	i := v.at(slot)
	if i < 0 {
		return append(dst, "null"...), nil
	}
	switch n.Kind {
	case Int:
		return appendInt(dst, n.Type, v, i), nil
	case Float:
		return appendFloat(dst, v.uint(i), n.Bits), nil
	case String:
		s := v.bytes(i)
		if len(dst)+len(s) > w.limit {
			return dst, errTooLong()
		}
		dst, ok := appendString(dst, s)
		if !ok {
			return dst, notUTF8(s)
		}
		return dst, nil
	case Struct:
		return w.fields(dst, n, v, i)
	case List:
		return w.list(dst, n, v, i)
	case Map:
		return w.entries(dst, n, v, i)
	case Binary:
		if w.members {
			dst = append(dst, '"')
			dst = append(dst, w.suffix[1:]...) // without the point
			return append(appendKind(dst, n.Type, v.bytes(i), nil), '"'), nil
		}
		s := v.bytes(i)
		if len(dst)+base64.StdEncoding.EncodedLen(len(s)) > w.limit {
			return dst, errTooLong()
		}
		dst = base64.StdEncoding.AppendEncode(append(dst, '"'), s)
		return append(dst, '"'), nil
	case Bool:
		return strconv.AppendBool(dst, v.bool(i)), nil
	case Timestamp:
		if v.Width == 12 {
			return appendInt96(dst, v.bytes(i), n.UTC), nil
		}
		return appendTimestamp(dst, v.int(i), n.Unit, n.UTC), nil
	case Date:
		return appendDate(dst, v.int(i)), nil
	case Time:
		return appendTime(dst, v.int(i), n.Unit), nil
	case Decimal:
		return appendDecimal(dst, v.bytes(i), v.BigEndian, n.Scale)
	case UUID:
		return appendUUID(dst, v.bytes(i))
	case Number, JSON:
		return w.text(dst, n.Kind, v.bytes(i))
	default:
		return w.array(dst, n, v, i)
	}
}

func appendInt(dst []byte, t *Type, v *Vector, value int) []byte {
	if t.Unsigned {
		return strconv.AppendUint(dst, v.uint(value), 10)
	}
	return strconv.AppendInt(dst, v.int(value), 10)
}

func (w *writer) fields(dst []byte, n *node, v *Vector, value int) ([]byte, error) {
	if len(n.kids) == 0 {
		return append(dst, "{}"...), nil
	}
	if n.image && w.members {
		return w.image(dst, n, v, value)
	}
	start := len(dst)
	for i := range n.kids {
		var err error
		dst = append(dst, n.kids[i].key...)
		if dst, err = w.field(dst, &n.kids[i], &v.Children[i], value); err != nil {
			return dst[:start], err
		}
	}
	return append(dst, '}'), nil
}

func (w *writer) list(dst []byte, n *node, v *Vector, value int) ([]byte, error) {
	start, outer := len(dst), len(w.suffix)
	from, to := int(v.Offsets[value]), int(v.Offsets[value+1])
	kid, elements := &n.kids[0], &v.Children[0]
	dst = append(dst, '[')
	if kid.Kind == Int && elements.Index == nil && to-from <= (w.limit-len(dst))/21 {
		for e := from; e < to; e++ { // the same as below, for tokens
			dst = append(appendInt(dst, kid.Type, elements, e), ',')
		}
		if to > from {
			dst = dst[:len(dst)-1]
		}
		return append(dst, ']'), nil
	}
	for e := from; e < to; e++ {
		if e > from {
			dst = append(dst, ',')
		}
		if w.members {
			w.suffix = strconv.AppendInt(append(w.suffix[:outer], '.'), int64(e-from), 10)
		}
		var err error
		if dst, err = w.value(dst, kid, elements, e); err == nil && len(dst) > w.limit {
			err = errTooLong()
		}
		if err != nil {
			w.suffix = w.suffix[:outer]
			return dst[:start], within(err, strconv.Itoa(e-from))
		}
	}
	w.suffix = w.suffix[:outer]
	return append(dst, ']'), nil
}

func (w *writer) entries(dst []byte, n *node, v *Vector, value int) ([]byte, error) {
	start, members := len(dst), w.members
	w.members = false
	defer func() { w.members = members }()
	from, to := int(v.Offsets[value]), int(v.Offsets[value+1])
	dst = append(dst, '[')
	for e := from; e < to; e++ {
		if e > from {
			dst = append(dst, ',')
		}
		var err error
		dst = append(dst, '[')
		if dst, err = w.value(dst, &n.kids[0], &v.Children[0], e); err == nil {
			dst, err = w.value(append(dst, ','), &n.kids[1], &v.Children[1], e)
		}
		if err == nil && len(dst) > w.limit {
			err = errTooLong()
		}
		if err != nil {
			return dst[:start], within(err, strconv.Itoa(e-from))
		}
		dst = append(dst, ']')
	}
	return append(dst, ']'), nil
}

// image appends a struct of bytes and path, whose bytes are a member of the sample.
func (w *writer) image(dst []byte, n *node, v *Vector, value int) ([]byte, error) {
	start := len(dst)
	for i := range n.kids {
		kid := &n.kids[i]
		dst = append(dst, kid.key...)
		if i == n.path {
			var err error
			if dst, err = w.value(dst, kid, &v.Children[i], value); err != nil {
				return dst[:start], within(err, kid.name)
			}
			continue
		}
		bytes, path := imageOf(n, v, value)
		if bytes == nil {
			dst = append(dst, "null"...)
			continue
		}
		dst = append(append(dst, '"'), w.suffix[1:]...)
		dst = append(appendKind(dst, kid.Type, bytes, path), '"')
	}
	return append(dst, '}'), nil
}

// text appends the text of a Number or JSON.
func (w *writer) text(dst []byte, kind Kind, s []byte) ([]byte, error) {
	if len(dst)+len(s) > w.limit {
		return dst, errTooLong()
	}
	if kind == Number {
		if isNumber(s) {
			return append(dst, s...), nil
		}
		dst, ok := appendString(dst, s)
		if !ok {
			return dst, notUTF8(s)
		}
		return dst, nil
	}
	for i, c := range s {
		if c < ' ' {
			return dst, damaged("the JSON text has the byte %#02x at %d", c, i)
		}
	}
	if !utf8.Valid(s) {
		return dst, notUTF8(s)
	}
	if !json.Valid(s) {
		return dst, damaged("the text is not JSON")
	}
	return append(dst, s...), nil
}

// isNumber reports whether s is a number of JSON's grammar.
func isNumber(s []byte) bool {
	digits := func() int {
		n := 0
		for n < len(s) && s[n] >= '0' && s[n] <= '9' {
			n++
		}
		s = s[n:]
		return n
	}
	skip := func(set string) bool {
		for i := 0; len(s) > 0 && i < len(set); i++ {
			if s[0] == set[i] {
				s = s[1:]
				return true
			}
		}
		return false
	}
	skip("-")
	if !skip("0") && digits() == 0 {
		return false
	}
	if skip(".") && digits() == 0 {
		return false
	}
	if skip("eE") {
		skip("+-")
		if digits() == 0 {
			return false
		}
	}
	return len(s) == 0
}

// array appends an NDArray: lists, nested as its shape.
func (w *writer) array(dst []byte, n *node, v *Vector, value int) ([]byte, error) {
	elements := Vector{Bytes: v.bytes(value), Width: n.kids[0].bytes()}
	start, next := len(dst), 0
	dst, err := w.axis(dst, &n.kids[0], &elements, v.Dims[value], &next)
	if err != nil {
		dst = dst[:start]
	}
	return dst, err
}

func (w *writer) axis(dst []byte, n *node, elements *Vector, dims Dims, next *int) ([]byte, error) {
	if len(dims) == 0 {
		*next++
		return w.value(dst, n, elements, *next-1)
	}
	dst = append(dst, '[')
	for i := range dims[0] {
		if i > 0 {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = w.axis(dst, n, elements, dims[1:], next); err != nil {
			return dst, err
		}
		if len(dst) > w.limit {
			return dst, errTooLong()
		}
	}
	return append(dst, ']'), nil
}

func appendUUID(dst, s []byte) ([]byte, error) {
	if len(s) != 16 {
		return dst, damaged("a UUID has %d bytes", len(s))
	}
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	for i, c := range s {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, digits[c>>4], digits[c&15])
	}
	return append(dst, '"'), nil
}

// appendString appends a string in quotes, and reports whether it is UTF-8. If it is not, dst is
// returned as it was.
func appendString(dst, s []byte) ([]byte, bool) {
	if !utf8.Valid(s) {
		return dst, false
	}
	dst = append(dst, '"')
	from := 0
	for at := 0; ; at++ {
		if at = special(s, at); at == len(s) {
			break
		}
		dst = append(dst, s[from:at]...)
		from = at + 1
		switch c := s[at]; c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		default:
			const digits = "0123456789abcdef"
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
	}
	return append(append(dst, s[from:]...), '"'), true
}

// special returns the offset of the first byte from at on that is escaped, len(s) if there is none.
// It looks at eight bytes at a time: x-ones has the high bit of its lowest zero byte set, and
// of no byte before that.
func special(s []byte, at int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; at+8 <= len(s); at += 8 {
		x := binary.LittleEndian.Uint64(s[at:])
		quote, slash := x^ones*'"', x^ones*'\\'
		found := ((quote-ones)&^quote | (slash-ones)&^slash | (x-ones*' ')&^x) & highs
		if found != 0 {
			return at + bits.TrailingZeros64(found)/8
		}
	}
	for ; at < len(s); at++ {
		if c := s[at]; c < ' ' || c == '"' || c == '\\' {
			return at
		}
	}
	return at
}

// notUTF8 returns the error for a string that is not UTF-8.
func notUTF8(s []byte) error {
	for at := 0; at < len(s); {
		r, n := utf8.DecodeRune(s[at:])
		if r == utf8.RuneError && n == 1 {
			return damaged("the string is not UTF-8: byte %#02x at %d of %d", s[at], at, len(s))
		}
		at += n
	}
	return damaged("the string is not UTF-8")
}

func errTooLong() error { return refused("", "the record is longer than --max-record") }
