package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// scanner reads JSON strictly, from the front, and knows a document that has
// not come to its end (ErrIncomplete) from one that no bytes behind it could
// put right: the control file is written in pieces of any size. encoding/json
// can't tell them apart, takes names in any case and names that come twice.
//
// Values are read by those who know what they must be; nothing is skipped, and
// nothing recurses, so neither depth nor size of what is foreign matters.
type scanner struct {
	doc []byte
	pos int
}

var errEnd = fmt.Errorf("%w: it ends too early", ErrIncomplete)

// peek is the next byte that is not white space.
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

// expect passes one of the bytes in want, and says which.
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

// token is what stands at the position, for messages: a few bytes at most.
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

// object reads an object whose fields have some of these names; field reads
// the value of one. where names the object.
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

// list reads a list; element reads its i-th element.
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

// number reads a whole number from low to high. Fractions and exponents are
// refused whatever their value is.
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

// plain is a token as it stands, or quoted, where it could not be printed.
func plain(token string) string {
	if strings.ContainsFunc(token, func(r rune) bool { return r < ' ' || r > '~' && r != '…' }) {
		return fmt.Sprintf("%q", token)
	}
	return token
}

// maxTextBytes bounds strings that may be anything: fingerprints have 64 bytes.
const maxTextBytes = 256

// text reads a string: one of allowed, or, where that is nil, any. A document's
// strings are names and fingerprints, so that all of them are printable ASCII
// without escapes; nothing else is taken.
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

// end says whether nothing but white space follows.
func (s *scanner) end() error {
	if _, err := s.peek(); errors.Is(err, ErrIncomplete) {
		return nil
	}
	return fmt.Errorf("there is text after the document: %q", s.token())
}
