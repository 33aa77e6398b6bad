package npy

import (
	"fmt"
	"strconv"
	"strings"
)

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
