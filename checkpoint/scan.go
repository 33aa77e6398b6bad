package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// scanner parses JSON strictly, from front to back. It distinguishes a document that is incomplete
// (ErrIncomplete) from one that no further bytes could make valid: the control file is written in
// pieces of any size. encoding/json can't distinguish them, and accepts names in any case and
// duplicate names.
//
// Each value is read by a method for its expected type. Nothing is skipped, and nothing recurses,
// so depth and size of unexpected input don't matter.
type scanner struct {
	doc []byte
	pos int
}

var errEnd = fmt.Errorf("%w: it ends too early", ErrIncomplete)

// peek returns the next byte that is not white space.
func (s *scanner) peek() (byte, error) {
	for ; s.pos < len(s.doc); s.pos++ {
		switch c := s.doc[s.pos]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c, nil
		}
	}
	return 0, errEnd
}

// expect consumes one of the bytes in want, and returns it.
func (s *scanner) expect(want, where string) (byte, error) {
	c, err := s.peek()
	if err != nil {
		return 0, err
	}
	if strings.IndexByte(want, c) < 0 {
		return 0, fmt.Errorf("%s: expected %s, not %q", where, strings.Join(strings.Split(want, ""), " or "), s.token())
	}
	s.pos++
	return c, nil
}

// token returns a few bytes at the current position, for messages.
func (s *scanner) token() string {
	rest := s.doc[s.pos:]
	if end := bytes.IndexAny(rest, ", ]}\t\r\n"); end >= 0 {
		rest = rest[:max(1, end)]
	}
	const most = 40
	if len(rest) > most {
		return string(rest[:most]) + "…"
	}
	return string(rest)
}

// object parses an object whose fields have some of these names; field parses the value of one.
// where describes the object in errors.
func (s *scanner) object(where string, names []string, field func(name string) error) error {
	if _, err := s.expect("{", where); err != nil {
		return err
	}
	c, err := s.peek()
	if err != nil {
		return err
	}
	if c == '}' {
		s.pos++
		return nil
	}
	seen := make([]string, 0, len(names))
	for {
		name, err := s.text("the name of a field of "+where, names)
		if err != nil {
			return err
		}
		if slices.Contains(seen, name) {
			return fmt.Errorf("%s has the field %q twice", where, name)
		}
		seen = append(seen, name)
		if _, err := s.expect(":", where+", after the name "+name); err != nil {
			return err
		}
		if err := field(name); err != nil {
			return err
		}
		c, err := s.expect(",}", where+", after "+name)
		if err != nil {
			return err
		}
		if c == '}' {
			return nil
		}
	}
}

// list parses a list; element parses its i-th element.
func (s *scanner) list(where string, element func(i int) error) error {
	if _, err := s.expect("[", where); err != nil {
		return err
	}
	c, err := s.peek()
	if err != nil {
		return err
	}
	if c == ']' {
		s.pos++
		return nil
	}
	for i := 0; ; i++ {
		if err := element(i); err != nil {
			return err
		}
		c, err := s.expect(",]", where)
		if err != nil {
			return err
		}
		if c == ']' {
			return nil
		}
	}
}

// number parses an integer from low to high. Fractions and exponents are rejected whatever their
// value.
func (s *scanner) number(where string, low, high uint64) (uint64, error) {
	c, err := s.peek()
	if err != nil {
		return 0, err
	}
	begin := s.pos
	refuse := func() (uint64, error) {
		s.pos = begin
		return 0, fmt.Errorf("%s (%s) must be a whole number between %d and %d", where, plain(s.token()), low, high)
	}
	if c < '0' || c > '9' {
		return refuse()
	}
	var n uint64
	for ; s.pos < len(s.doc); s.pos++ {
		digit := uint64(s.doc[s.pos] - '0')
		if digit > 9 {
			break
		}
		zero := s.pos > begin && s.doc[begin] == '0'
		if zero || digit > high || n > (high-digit)/10 {
			return refuse()
		}
		n = n*10 + digit
	}
	if s.pos == len(s.doc) {
		return 0, errEnd
	}
	switch s.doc[s.pos] {
	case ' ', '\t', '\r', '\n', ',', ']', '}':
	default:
		return refuse()
	}
	if n < low {
		return refuse()
	}
	return n, nil
}

// plain returns a token unchanged, or quoted if it is not printable.
func plain(token string) string {
	if strings.ContainsFunc(token, func(r rune) bool { return r < ' ' || r > '~' && r != '…' }) {
		return fmt.Sprintf("%q", token)
	}
	return token
}

// maxTextBytes bounds arbitrary strings: fingerprints have 64 bytes.
const maxTextBytes = 256

// text parses a string: one of allowed, or any if that is nil. The strings of documents are names
// and fingerprints, so only printable ASCII without escapes is accepted.
func (s *scanner) text(where string, allowed []string) (string, error) {
	c, err := s.peek()
	if err != nil {
		return "", err
	}
	if c != '"' {
		return "", fmt.Errorf("%s must be a string, not %q", where, s.token())
	}
	begin := s.pos + 1
	end := begin
	for ; end < len(s.doc) && s.doc[end] != '"'; end++ {
		if c := s.doc[end]; c < ' ' || c > '~' || c == '\\' {
			return "", fmt.Errorf("%s must be plain ASCII without escapes, not %q", where, s.doc[begin:end+1])
		}
		if end-begin == maxTextBytes {
			return "", fmt.Errorf("%s is longer than %d bytes", where, maxTextBytes)
		}
	}
	text := string(s.doc[begin:end])
	complete := end < len(s.doc)
	if allowed != nil && !slices.ContainsFunc(allowed, func(a string) bool {
		return a == text || !complete && strings.HasPrefix(a, text)
	}) {
		return "", fmt.Errorf("%s (%q) must be one of %s", where, text, strings.Join(allowed, ", "))
	}
	if !complete {
		return "", errEnd
	}
	s.pos = end + 1
	return text, nil
}

// end returns an error if anything but white space follows.
func (s *scanner) end() error {
	if _, err := s.peek(); errors.Is(err, ErrIncomplete) {
		return nil
	}
	return fmt.Errorf("unexpected text after the document: %q", s.token())
}
