package npy

import (
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/lsiofs/lsiofs/pipeline/format"
)

const (
	magic      = "\x93NUMPY"
	fixedBytes = len(magic) + 2 // with the version
	// maxHeaderBytes bounds a header, including its lead: the largest Window of a Source.
	maxHeaderBytes = format.MaxWindowBytes
)

// header is the content of an npy header.
type header struct {
	descr   literal
	fortran bool
	shape   []int64
}

// readHeader consumes the header. A malformed header is corrupt; a file that is not npy, or of an
// unknown version, is refused.
func readHeader(src format.Source) (header, error) {
	head, err := window(src, fixedBytes)
	if err != nil {
		return header{}, err
	}
	if n := min(len(head), len(magic)); string(head[:n]) != magic[:n] {
		return header{}, &format.RefusedError{Reason: "the file has no npy header: arrays without one, such as OLMo's tokens, are read with --format fixed --record-bytes N"}
	}
	if len(head) < fixedBytes {
		return header{}, cutOff(head)
	}
	major, minor := head[6], head[7]
	if major < 1 || major > 3 || minor != 0 {
		return header{}, &format.RefusedError{OffsetBytes: 6, Reason: fmt.Sprintf("npy version %d.%d is not read, only 1.0, 2.0 and 3.0: save the array again with numpy.save", major, minor)}
	}
	text, err := readText(src, major)
	if err != nil {
		return header{}, err
	}
	h, err := parseHeader(text, major < 3)
	if err != nil {
		return header{}, format.Corrupt(0, int64(fixedBytes), "%v", err)
	}
	return h, nil
}

func cutOff(head []byte) error {
	return format.Corrupt(0, 0, "the file ends inside the npy header, after %d bytes", len(head))
}

// readText returns the dictionary's text and consumes the header.
func readText(src format.Source, major byte) (string, error) {
	lead := fixedBytes + 4
	if major == 1 {
		lead = fixedBytes + 2
	}
	head, err := window(src, lead)
	if err != nil {
		return "", err
	}
	if len(head) < lead {
		return "", cutOff(head)
	}
	n := int64(binary.LittleEndian.Uint16(head[fixedBytes:]))
	if major > 1 {
		n = int64(binary.LittleEndian.Uint32(head[fixedBytes:]))
	}
	if n > int64(maxHeaderBytes-lead) {
		return "", &format.RefusedError{OffsetBytes: int64(fixedBytes), Reason: fmt.Sprintf("the npy header has %d bytes, more than the %d that are read: save the array with fewer or shorter fields", n, maxHeaderBytes-lead)}
	}
	if head, err = window(src, lead+int(n)); err != nil {
		return "", err
	}
	if len(head) < lead+int(n) {
		return "", cutOff(head)
	}
	text, ok := decode(head[lead:], major)
	if !ok {
		return "", format.Corrupt(0, int64(lead), "the npy header is not UTF-8")
	}
	return text, src.Discard(int64(lead) + n)
}

// window returns the next n bytes, fewer only at the shard's end.
func window(src format.Source, n int) ([]byte, error) {
	head, err := src.Window(n)
	if err == io.EOF {
		err = nil
	}
	return head[:min(n, len(head))], err
}

// decode converts a header to UTF-8: before version 3.0 it is Latin-1.
func decode(text []byte, major byte) (string, bool) {
	if major == 3 {
		return string(text), utf8.Valid(text)
	}
	var b strings.Builder
	for _, c := range text {
		b.WriteRune(rune(c))
	}
	return b.String(), true
}

// parseHeader parses the dictionary. Errors describe what is wrong with it.
func parseHeader(text string, longs bool) (header, error) {
	p := parser{text: text, longs: longs}
	var h header
	found := map[string]literal{}
	if !strings.HasPrefix(text, "{") {
		return h, p.unexpected("a dictionary")
	}
	p.at++
	for p.next() != '}' {
		key, err := p.value()
		if err != nil {
			return h, err
		}
		if _, twice := found[key.content]; key.class != aString || twice {
			return h, p.errorf("%.40s is not a key, or occurs twice", key.text)
		}
		if err := p.take(':'); err != nil {
			return h, err
		}
		if found[key.content], err = p.value(); err != nil {
			return h, err
		}
		if p.next() != '}' {
			if err := p.take(','); err != nil {
				return h, err
			}
		}
	}
	p.at++
	if err := p.end(); err != nil {
		return h, err
	}
	return h, h.set(found)
}

// set sets the three values.
func (h *header) set(found map[string]literal) error {
	descr, hasDescr := found["descr"]
	order, hasOrder := found["fortran_order"]
	shape, hasShape := found["shape"]
	if len(found) != 3 || !hasDescr || !hasOrder || !hasShape {
		return fmt.Errorf("the npy header's keys are not descr, fortran_order and shape")
	}
	if order.class != aBool {
		return fmt.Errorf("the npy header's fortran_order is %.40s, not True or False", order.text)
	}
	if shape.class != aTuple {
		return fmt.Errorf("the npy header's shape is %.40s, not a tuple", shape.text)
	}
	n, err := numbers(shape.items)
	if err != nil {
		return fmt.Errorf("the npy header's shape is %.80s, not numbers alone", shape.text)
	}
	h.descr, h.fortran, h.shape = descr, order.number == 1, n
	return nil
}

// literal is a value of a Python literal, of the kinds that a header may contain.
type literal struct {
	class class
	// text is the value as written.
	text string
	// content is what is between the quotes of a string, with its escapes.
	content string
	number  int64 // of an integer; 1 for True
	items   []literal
}

type class uint8

const (
	aString class = iota
	aNumber
	aBool
	aTuple
	aList
)

// maxDepth bounds the nesting of tuples and lists: a field of a dtype in a field takes two levels.
const maxDepth = 64

// parser parses Python literals from a text.
type parser struct {
	text  string
	at    int
	longs bool // numbers may end with an L
	depth int
}

func (p *parser) errorf(format string, args ...any) error {
	return fmt.Errorf("the npy header is invalid at character %d: %s", p.at, fmt.Sprintf(format, args...))
}

// blanks skips blanks between tokens.
func (p *parser) blanks() {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
}

// next returns the next byte after blanks, 0 at the end.
func (p *parser) next() byte {
	p.blanks()
	if p.at == len(p.text) {
		return 0
	}
	return p.text[p.at]
}

// take consumes c, which must be next.
func (p *parser) take(c byte) error {
	if p.next() != c {
		return p.unexpected(fmt.Sprintf("%q", c))
	}
	p.at++
	return nil
}

func (p *parser) unexpected(wanted string) error {
	if p.at == len(p.text) {
		return p.errorf("it ends where %s should be", wanted)
	}
	return p.errorf("%q where %s should be", p.text[p.at], wanted)
}

// value parses one value.
func (p *parser) value() (literal, error) {
	c := p.next()
	from := p.at
	var v literal
	var err error
	switch {
	case c == '\'' || c == '"':
		v, err = p.string(c)
	case c >= '0' && c <= '9':
		v, err = p.number()
	case c == '(':
		v, err = p.sequence(aTuple, ')')
	case c == '[':
		v, err = p.sequence(aList, ']')
	case p.word("True"):
		v = literal{class: aBool, number: 1}
	case p.word("False"):
		v = literal{class: aBool}
	default:
		err = p.unexpected("a value")
	}
	v.text = p.text[from:p.at]
	return v, err
}

// word consumes a word if it is next and is not the beginning of a longer one.
func (p *parser) word(w string) bool {
	rest := p.text[p.at:]
	if !strings.HasPrefix(rest, w) {
		return false
	}
	if len(rest) > len(w) && strings.IndexByte(" \t\r\n,)]}", rest[len(w)]) < 0 {
		return false
	}
	p.at += len(w)
	return true
}

func (p *parser) string(quote byte) (literal, error) {
	p.at++
	from := p.at
	for ; p.at < len(p.text); p.at++ {
		switch c := p.text[p.at]; {
		case c == quote:
			p.at++
			return literal{class: aString, content: p.text[from : p.at-1]}, nil
		case c < ' ':
			return literal{}, p.errorf("%q in a string", c)
		case c == '\\':
			p.at++ // an escaped quote does not end the string
		}
	}
	p.at = len(p.text)
	return literal{}, p.unexpected("the end of a string")
}

func (p *parser) number() (literal, error) {
	from := p.at
	for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
		p.at++
	}
	digits := p.text[from:p.at]
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || len(digits) > 1 && digits[0] == '0' {
		return literal{}, p.errorf("%.40s is not a number", digits)
	}
	if p.longs && p.at < len(p.text) && p.text[p.at] == 'L' {
		p.at++
	}
	return literal{class: aNumber, number: n}, nil
}

// sequence parses a tuple or a list. A tuple of one needs a comma.
func (p *parser) sequence(c class, end byte) (literal, error) {
	v := literal{class: c}
	if p.depth++; p.depth > maxDepth {
		return v, p.errorf("tuples and lists more than %d deep", maxDepth)
	}
	p.at++
	comma := true
	for p.next() != end {
		if !comma {
			return v, p.unexpected("a comma")
		}
		item, err := p.value()
		if err != nil {
			return v, err
		}
		v.items = append(v.items, item)
		if comma = p.next() == ','; comma {
			p.at++
		}
	}
	if c == aTuple && len(v.items) == 1 && !comma {
		return v, p.errorf("a tuple of one value needs a comma")
	}
	if len(v.items) == 0 && p.text[p.at-1] == ',' {
		return v, p.unexpected("a value")
	}
	p.at++
	p.depth--
	return v, nil
}

// end fails if anything but blanks is left.
func (p *parser) end() error {
	if p.next(); p.at < len(p.text) {
		return p.unexpected("the end")
	}
	return nil
}
