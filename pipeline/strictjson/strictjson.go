// Package strictjson scans JSON from front to back, in bounded memory, for documents that have to be
// read exactly or refused with the reason: checkpoints, Zarr's metadata, kerchunk's references.
//
//	s := strictjson.New(doc, depth)            {"a": [1, 2], "b": "x"}
//	err := s.Members('{', func(i int) error {  called at each name
//		name, err := s.Value(100)              "a"
//		…	err = s.Expect(":")
//		…	return s.Skip()                    [1, 2]
//	})
//	err = s.End()
//
// It differs from encoding/json in four ways. A document that is cut off is told from one that no
// further bytes could make valid (SyntaxError.Cut). Errors have offsets. Depth and the size of
// values are bounded. NaN, Infinity and -Infinity are numbers, because Python writes them.
//
// Duplicate names are up to the caller, who sees all names.
package strictjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Scanner scans one document. It is not safe for concurrent use. After an error it must not be used
// further, except for Offset and Token.
type Scanner struct {
	window []byte // window[pos:] are the next bytes
	pos    int
	before int64     // bytes of the document before the window
	from   io.Reader // of what follows the window; nil if nothing does
	buffer []byte
	failed error // of from; sticky
	depth  int   // bound of Skip

	keeping bool // consumed bytes are appended to kept
	kept    []byte
	most    int // bound of kept
}

const bufferBytes = 256 << 10

// New returns a Scanner of a document in memory. Values that are nested deeper than maxDepth are
// refused.
func New(doc []byte, maxDepth int) *Scanner { return &Scanner{window: doc, depth: maxDepth} }

// NewReader returns a Scanner of a document that it reads in portions of 256 KiB. Errors of r are
// returned unchanged.
func NewReader(r io.Reader, maxDepth int) *Scanner {
	return &Scanner{from: r, buffer: make([]byte, bufferBytes), depth: maxDepth}
}

// SyntaxError means that a document is not JSON.
type SyntaxError struct {
	Offset int64 // of the byte that is wrong
	Reason string
	Cut    bool // the document ends in the middle: more bytes could make it valid
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("at byte %d: it is not JSON: %s", e.Offset, e.Reason)
}

// DepthError means that a value is nested too deep.
type DepthError struct {
	Offset   int64
	MaxDepth int
}

func (e *DepthError) Error() string {
	return fmt.Sprintf("at byte %d: it is nested more than %d deep", e.Offset, e.MaxDepth)
}

// SizeError means that an encoded value is longer than the bound that Value was given.
type SizeError struct {
	Offset   int64
	MaxBytes int
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("at byte %d: a value has more than %d bytes", e.Offset, e.MaxBytes)
}

func (s *Scanner) wrong(format string, args ...any) error {
	return &SyntaxError{Offset: s.Offset(), Reason: fmt.Sprintf(format, args...)}
}

// Offset returns the offset in the document of the next byte.
func (s *Scanner) Offset() int64 { return s.before + int64(s.pos) }

// Rest returns the next bytes of the document, as far as they are in memory: all of them for a
// Scanner from New. It is valid until the next call of another method.
func (s *Scanner) Rest() []byte { return s.window[s.pos:] }

// Advance consumes n bytes of Rest.
func (s *Scanner) Advance(n int) { s.pos += n }

// Token returns a few of the next bytes, for messages.
func (s *Scanner) Token() string {
	rest := s.Rest()
	if end := bytes.IndexAny(rest, ", ]}\t\r\n"); end >= 0 {
		rest = rest[:max(1, end)]
	}
	const most = 40
	if len(rest) > most {
		return string(rest[:most]) + "…"
	}
	return string(rest)
}

// next returns the next byte.
func (s *Scanner) next() (byte, error) {
	for s.pos == len(s.window) {
		if err := s.fill(); err != nil {
			return 0, err
		}
	}
	return s.window[s.pos], nil
}

// fill replaces the window, all of which has been consumed.
func (s *Scanner) fill() error {
	if s.failed == nil && s.from == nil {
		s.failed = io.EOF
	}
	for tries := 0; s.failed == nil; tries++ {
		n, err := s.from.Read(s.buffer)
		if s.failed = err; tries == 100 && n == 0 && err == nil {
			s.failed = io.ErrNoProgress
		}
		if n > 0 {
			s.before += int64(len(s.window))
			s.window, s.pos = s.buffer[:n], 0
			return nil
		}
	}
	if s.failed == io.EOF {
		return &SyntaxError{Offset: s.Offset(), Reason: "it ends in the middle", Cut: true}
	}
	return s.failed
}

// take consumes n bytes of the window.
func (s *Scanner) take(n int) error {
	if s.keeping {
		if room := s.most - len(s.kept); n > room {
			return &SizeError{Offset: s.Offset() + int64(room) + 1, MaxBytes: s.most}
		}
		s.kept = append(s.kept, s.window[s.pos:s.pos+n]...)
	}
	s.pos += n
	return nil
}

// Peek returns the next byte that is not white space, which it does not consume.
func (s *Scanner) Peek() (byte, error) {
	for {
		c, err := s.next()
		if err != nil || c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c, err
		}
		s.pos++
	}
}

// Expect consumes one of the bytes in want, after white space, and returns it.
func (s *Scanner) Expect(want string) (byte, error) {
	c, err := s.Peek()
	if err != nil {
		return 0, err
	}
	if strings.IndexByte(want, c) < 0 {
		return 0, s.wrong("expected %s, not %q", strings.Join(strings.Split(want, ""), " or "), s.Token())
	}
	return c, s.take(1)
}

// End returns an error if anything but white space follows.
func (s *Scanner) End() error {
	_, err := s.Peek()
	if end, ok := err.(*SyntaxError); ok && end.Cut {
		return nil
	}
	if err != nil {
		return err
	}
	return s.wrong("unexpected text after the document: %q", s.Token())
}

// Members consumes an object or a list, which begins with open, '{' or '['. It calls member for each
// member, i being how many came before it: member consumes the value, and in an object before it the
// name and the colon. Errors of member are returned unchanged.
func (s *Scanner) Members(open byte, member func(i int) error) error {
	begins, goesOn := "{", ",}"
	if open == '[' {
		begins, goesOn = "[", ",]"
	}
	if _, err := s.Expect(begins); err != nil {
		return err
	}
	end := goesOn[1]
	if c, err := s.Peek(); err != nil {
		return err
	} else if c == end {
		return s.take(1)
	}
	for i := 0; ; i++ {
		if err := member(i); err != nil {
			return err
		}
		c, err := s.Expect(goesOn)
		if err != nil || c == end {
			return err
		}
	}
}

// Value consumes the next value, and returns it as it is encoded, without white space between its
// parts. A value of more than maxBytes is a *SizeError. The result is valid until the next Value.
func (s *Scanner) Value(maxBytes int) ([]byte, error) {
	s.kept, s.keeping, s.most = s.kept[:0], true, maxBytes
	err := s.Skip()
	s.keeping = false
	return s.kept, err
}

// Skip consumes the next value.
func (s *Scanner) Skip() error { return s.skip(0) }

func (s *Scanner) skip(depth int) error {
	c, err := s.Peek()
	if err != nil {
		return err
	}
	switch {
	case c == '"':
		return s.quoted()
	case c == '{' || c == '[':
		if depth == s.depth {
			return &DepthError{Offset: s.Offset(), MaxDepth: s.depth}
		}
		return s.Members(c, func(int) error {
			if c == '{' {
				if err := s.name(); err != nil {
					return err
				}
			}
			return s.skip(depth + 1)
		})
	case c == '-' || isDigit(c):
		return s.number()
	}
	for _, word := range [...]string{"true", "false", "null", "NaN", infinity} {
		if c == word[0] {
			return s.word(word)
		}
	}
	return s.wrong("no value begins with %q", s.Token())
}

const infinity = "Infinity"

// name consumes a name and the colon.
func (s *Scanner) name() error {
	if c, err := s.Peek(); err != nil {
		return err
	} else if c != '"' {
		return s.wrong("expected a name, not %q", s.Token())
	}
	if err := s.quoted(); err != nil {
		return err
	}
	_, err := s.Expect(":")
	return err
}

// word consumes the bytes of a word.
func (s *Scanner) word(word string) error {
	for i := range len(word) {
		c, err := s.next()
		if err != nil {
			return err
		}
		if c != word[i] {
			return s.wrong("expected %s", word)
		}
		if err := s.take(1); err != nil {
			return err
		}
	}
	return nil
}

// quoted consumes a string.
func (s *Scanner) quoted() error {
	if err := s.take(1); err != nil {
		return err
	}
	for {
		c, err := s.next()
		if err != nil {
			return err
		}
		plain := 0
		for _, c := range s.Rest() {
			if c < ' ' || c == '"' || c == '\\' {
				break
			}
			plain++
		}
		switch {
		case plain > 0:
			err = s.take(plain)
		case c == '"':
			return s.take(1)
		case c == '\\':
			err = s.escape()
		default:
			err = s.wrong("a string has a control character")
		}
		if err != nil {
			return err
		}
	}
}

// escape consumes a backslash and what belongs to it.
func (s *Scanner) escape() error {
	if err := s.take(1); err != nil {
		return err
	}
	allowed, left := `"\/bfnrtu`, 1
	for ; left > 0; left-- {
		c, err := s.next()
		if err != nil {
			return err
		}
		if strings.IndexByte(allowed, c) < 0 {
			return s.wrong("a string has an escape that is not allowed")
		}
		if c == 'u' {
			allowed, left = "0123456789abcdefABCDEF", 1+4
		}
		if err := s.take(1); err != nil {
			return err
		}
	}
	return nil
}

// number consumes a number.
func (s *Scanner) number() error {
	c, err := s.next()
	if err == nil && c == '-' {
		if err = s.take(1); err == nil {
			c, err = s.next()
		}
		if err == nil && c == infinity[0] {
			return s.word(infinity)
		}
	}
	if err != nil {
		return err
	}
	if c == '0' {
		err = s.take(1)
	} else {
		err = s.digits()
	}
	if err == nil && s.is(".") {
		if err = s.take(1); err == nil {
			err = s.digits()
		}
	}
	if err == nil && s.is("eE") {
		if err = s.take(1); err == nil && s.is("+-") {
			err = s.take(1)
		}
		if err == nil {
			err = s.digits()
		}
	}
	return err
}

// is reports whether the next byte is one of set. A failed read is reported by the next call.
func (s *Scanner) is(set string) bool {
	c, err := s.next()
	return err == nil && strings.IndexByte(set, c) >= 0
}

// digits consumes at least one digit.
func (s *Scanner) digits() error {
	c, err := s.next()
	if err != nil {
		return err
	}
	if !isDigit(c) {
		return s.wrong("expected a digit, not %q", s.Token())
	}
	for err == nil && isDigit(c) {
		if err := s.take(1); err != nil {
			return err
		}
		c, err = s.next()
	}
	return nil // what ended the digits is reported by the next call
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// Unquote returns the text of an encoded string that was scanned before. exact is false if the
// encoding is not UTF-8, or has an escape that is half a character: then the text has the
// replacement character instead. The text may share memory with encoded.
func Unquote(encoded []byte) (text []byte, exact bool) {
	inner := encoded[1 : len(encoded)-1]
	exact = utf8.Valid(inner)
	if exact && bytes.IndexByte(inner, '\\') < 0 {
		return inner, true
	}
	var decoded string
	if err := json.Unmarshal(encoded, &decoded); err != nil {
		return nil, false
	}
	return []byte(decoded), exact && !hasHalf(inner)
}

// hasHalf reports whether a string has an escape of a surrogate that is not one of a pair.
func hasHalf(inner []byte) bool {
	high := false // the previous character is the first half of one
	for len(inner) > 0 {
		unit, n := uint64(0), 1
		if inner[0] == '\\' {
			if n = 2; inner[1] == 'u' {
				n = 6
				unit, _ = strconv.ParseUint(string(inner[2:6]), 16, 16)
			}
		}
		low := unit&^0x3ff == 0xdc00
		if low != high {
			return true
		}
		high = unit&^0x3ff == 0xd800
		inner = inner[n:]
	}
	return high
}
