package kerchunk

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/lsiofs/lsiofs/pipeline/zarr"
)

// scanner reads JSON from front to back, with bounded memory. Its errors include the offset.
type scanner struct {
	r    *bufio.Reader
	at   int64 // offset of the next byte
	buf  []byte
	keep bool // append what is read to buf
	most int  // bound of buf
}

func newScanner(r io.Reader) *scanner { return &scanner{r: bufio.NewReaderSize(r, 256<<10)} }

// errorf returns an error at the next byte.
func (s *scanner) errorf(format string, args ...any) error {
	return fmt.Errorf("at byte %d: %w", s.at, fmt.Errorf(format, args...))
}

func (s *scanner) ended(err error) error {
	if err == io.EOF {
		return s.errorf("it is not JSON: %w", errEnds)
	}
	return err
}

var (
	errEnds = errors.New("it ends in the middle")
	errLong = errors.New("more than")
)

// maxMemberBytes bounds the encoded name of a member: names of all levels are held at the same
// time.
const maxMemberBytes = 32 << 10

// take returns the next byte.
func (s *scanner) take() (byte, error) {
	c, err := s.r.ReadByte()
	if err != nil {
		return 0, s.ended(err)
	}
	s.at++
	if s.keep {
		if len(s.buf) == s.most {
			return 0, s.errorf("a value has %w %d bytes", errLong, s.most)
		}
		s.buf = append(s.buf, c)
	}
	return c, nil
}

// next returns the first byte that is not whitespace, without consuming it.
func (s *scanner) next() (byte, error) {
	for {
		c, err := s.r.ReadByte()
		if err != nil {
			return 0, s.ended(err)
		}
		switch c {
		case ' ', '\n', '\t', '\r':
			s.at++
		default:
			return c, s.r.UnreadByte()
		}
	}
}

// end returns an error if anything follows.
func (s *scanner) end() error {
	for {
		switch c, err := s.take(); {
		case errors.Is(err, errEnds):
			return nil
		case err != nil:
			return err
		case bytes.IndexByte([]byte(" \n\t\r"), c) < 0:
			return s.errorf("it is not JSON: %q follows its end", c)
		}
	}
}

// expect consumes a byte after whitespace.
func (s *scanner) expect(want byte) error {
	c, err := s.next()
	if err != nil {
		return err
	}
	if c != want {
		return s.errorf("it is not JSON of references: %q is where %q has to be", c, want)
	}
	_, err = s.take()
	return err
}

// raw returns the encoded next value, without whitespace between its parts. It is valid until the
// scanner is used again.
func (s *scanner) raw(most int) ([]byte, error) {
	s.buf, s.keep, s.most = s.buf[:0], true, most
	err := s.skip(0)
	s.keep = false
	return s.buf, err
}

// text returns the next value, which must be a string. It is valid until the scanner is used again.
func (s *scanner) text(most int) ([]byte, error) {
	c, err := s.next()
	if err != nil {
		return nil, err
	}
	if c != '"' {
		return nil, s.errorf("a string has to be here")
	}
	b, err := s.raw(most)
	if err != nil {
		return nil, err
	}
	if bytes.IndexByte(b, '\\') < 0 {
		return b[1 : len(b)-1], nil
	}
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return nil, s.errorf("a string is not JSON: %v", err)
	}
	const unknown = "\ufffd" // replaces unpaired surrogates
	if bytes.Count([]byte(text), []byte(unknown)) != bytes.Count(b, []byte(unknown))+bytes.Count(bytes.ToLower(b), []byte(`\ufffd`)) {
		return nil, s.errorf("a string has an escape that is half a character")
	}
	return []byte(text), nil
}

// skip consumes a value.
func (s *scanner) skip(depth int) error {
	c, err := s.next()
	if err != nil {
		return err
	}
	switch c {
	case '"':
		return s.quoted()
	case '{', '[':
		if depth == zarr.MaxDepth {
			return s.errorf("it is nested more than %d deep", zarr.MaxDepth)
		}
		return s.each(c, func([]byte) error { return s.skip(depth + 1) })
	}
	return s.word()
}

// each consumes an object or a list, and calls one for each member; one consumes the value. name is
// nil in a list, and while values are kept.
func (s *scanner) each(open byte, one func(name []byte) error) error {
	if err := s.expect(open); err != nil {
		return err
	}
	end := open + 2
	switch c, err := s.next(); {
	case err != nil:
		return err
	case c == end:
		return s.expect(end)
	}
	for {
		var name []byte
		if open == '{' {
			c, err := s.next()
			if err != nil {
				return err
			}
			if c != '"' {
				return s.errorf("it is not JSON: a name has to be here")
			}
			if s.keep {
				err = s.quoted()
			} else if name, err = s.text(maxMemberBytes); err == nil {
				name = bytes.Clone(name)
			}
			if err == nil {
				err = s.expect(':')
			}
			if err != nil {
				return err
			}
		}
		if err := one(name); err != nil {
			return err
		}
		switch c, err := s.next(); {
		case err != nil:
			return err
		case c == end:
			return s.expect(end)
		}
		if err := s.expect(','); err != nil {
			return err
		}
	}
}

// quoted consumes a string.
func (s *scanner) quoted() error {
	if err := s.expect('"'); err != nil {
		return err
	}
	from := len(s.buf)
	escaped := false
	for {
		c, err := s.take()
		switch {
		case err != nil:
			return err
		case c < ' ':
			return s.errorf("it is not JSON: a string has a control character")
		case escaped:
			escaped = false
		case c == '\\':
			escaped = true
		case c == '"':
			if s.keep && !utf8.Valid(s.buf[from:]) {
				return s.errorf("a string is not UTF-8")
			}
			return nil
		}
	}
}

// word consumes a number, null, true, false, or one of the non-finite numbers that Python writes.
func (s *scanner) word() error {
	var b []byte
	for {
		c, err := s.r.ReadByte()
		if err != nil {
			return s.ended(err)
		}
		plain := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '+' || c == '-' || c == '.'
		if err := s.r.UnreadByte(); err != nil {
			return err
		}
		if !plain || len(b) > 100 {
			break
		}
		if _, err := s.take(); err != nil {
			return err
		}
		b = append(b, c)
	}
	switch string(b) {
	case "NaN", "Infinity", "-Infinity":
		return nil
	}
	if !json.Valid(b) {
		return s.errorf("it is not JSON: no value ends here")
	}
	return nil
}

// number returns the next value, which must be a whole number.
func (s *scanner) number() (int64, error) {
	b, err := s.raw(100)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil || n < 0 {
		return 0, s.errorf("%.100q is not a number of bytes", b)
	}
	return n, nil
}
