package checkpoint

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/strictjson"
)

// scanner parses documents strictly. It distinguishes a document that is incomplete (ErrIncomplete)
// from one that no further bytes could make valid: the control file is written in pieces of any
// size. Each value is read by a method for its expected type. Nothing is skipped, and nothing
// recurses, so depth and size of unexpected input don't matter.
type scanner struct{ *strictjson.Scanner }

func newScanner(doc []byte) *scanner { return &scanner{strictjson.New(doc, 0)} }

var errEnd = fmt.Errorf("%w: it ends too early", ErrIncomplete)

// explain returns an error of the embedded Scanner with where it occurred; where may be "".
func explain(where string, err error) error {
	wrong, ok := errors.AsType[*strictjson.SyntaxError](err)
	switch {
	case !ok:
		return err
	case wrong.Cut:
		return errEnd
	}
	return errors.New(strings.TrimPrefix(where+": "+wrong.Reason, ": "))
}

// object parses an object whose fields have some of these names; field parses the value of one.
// where describes the object in errors.
func (s *scanner) object(where string, names []string, field func(name string) error) error {
	seen, at := make([]string, 0, len(names)), where
	err := s.Members('{', func(int) error {
		name, err := s.text("the name of a field of "+where, names)
		if err != nil {
			return err
		}
		if slices.Contains(seen, name) {
			return fmt.Errorf("%s has the field %q twice", where, name)
		}
		seen, at = append(seen, name), where+", after "+name
		if _, err := s.Expect(":"); err != nil {
			return explain(where+", after the name "+name, err)
		}
		return field(name)
	})
	return explain(at, err)
}

// list parses a list; element parses its i-th element.
func (s *scanner) list(where string, element func(i int) error) error {
	return explain(where, s.Members('[', element))
}

// number parses an integer from low to high. Fractions and exponents are rejected whatever their
// value.
func (s *scanner) number(where string, low, high uint64) (uint64, error) {
	if _, err := s.Peek(); err != nil {
		return 0, explain(where, err)
	}
	refuse := func() (uint64, error) {
		return 0, fmt.Errorf("%s (%s) must be a whole number between %d and %d", where, plain(s.Token()), low, high)
	}
	rest := s.Rest()
	var n uint64
	digits := 0
	for ; digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9'; digits++ {
		digit := uint64(rest[digits] - '0')
		if zero := digits > 0 && rest[0] == '0'; zero || digit > high || n > (high-digit)/10 {
			return refuse()
		}
		n = n*10 + digit
	}
	switch {
	case digits == len(rest):
		return 0, errEnd
	case digits == 0 || strings.IndexByte(" \t\r\n,]}", rest[digits]) < 0 || n < low:
		return refuse()
	}
	s.Advance(digits)
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
	c, err := s.Peek()
	if err != nil {
		return "", explain(where, err)
	}
	if c != '"' {
		return "", fmt.Errorf("%s must be a string, not %q", where, s.Token())
	}
	rest := s.Rest()[1:]
	end := 0
	for ; end < len(rest) && rest[end] != '"'; end++ {
		if c := rest[end]; c < ' ' || c > '~' || c == '\\' {
			return "", fmt.Errorf("%s must be plain ASCII without escapes, not %q", where, rest[:end+1])
		}
		if end == maxTextBytes {
			return "", fmt.Errorf("%s is longer than %d bytes", where, maxTextBytes)
		}
	}
	text := string(rest[:end])
	complete := end < len(rest)
	if allowed != nil && !slices.ContainsFunc(allowed, func(a string) bool {
		return a == text || !complete && strings.HasPrefix(a, text)
	}) {
		return "", fmt.Errorf("%s (%q) must be one of %s", where, text, strings.Join(allowed, ", "))
	}
	if !complete {
		return "", errEnd
	}
	s.Advance(1 + end + 1)
	return text, nil
}
