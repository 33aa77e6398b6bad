package zarr

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/strictjson"
)

// value is an encoded JSON value, without surrounding whitespace. It was validated when its
// document was opened, so its contents can be cut out without further checks.
type value []byte

// member is a name and its value.
type member struct {
	name  string
	value value
}

// open checks that doc is one JSON value within the limits.
func open(doc []byte) (value, error) {
	if len(doc) > MaxDocumentBytes {
		return nil, fmt.Errorf("has %d bytes, more than the %d that are read", len(doc), MaxDocumentBytes)
	}
	doc = bytes.TrimPrefix(doc, []byte("\xef\xbb\xbf"))
	s := strictjson.New(doc, MaxDepth)
	v, err := next(s, doc)
	if err == nil {
		err = s.End()
	}
	if wrong, ok := errors.AsType[*strictjson.SyntaxError](err); ok {
		if wrong.Cut {
			return nil, errors.New("is not complete JSON: it was cut off")
		}
		return nil, fmt.Errorf("is not JSON: %s, at byte %d", wrong.Reason, wrong.Offset)
	}
	if deep, ok := errors.AsType[*strictjson.DepthError](err); ok {
		return nil, fmt.Errorf("is nested more than %d deep at byte %d", deep.MaxDepth, deep.Offset)
	}
	return v, err
}

// next returns the next value of a scanner of doc.
func next(s *strictjson.Scanner, doc []byte) (value, error) {
	if _, err := s.Peek(); err != nil {
		return nil, err
	}
	begin := s.Offset()
	err := s.Skip()
	return doc[begin:s.Offset()], err
}

// kind names what v is, for errors.
func (v value) kind() string {
	switch v[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 't', 'f':
		return "a truth value"
	case 'n':
		return "null"
	}
	return "a number"
}

func (v value) isNull() bool { return v[0] == 'n' }

// Bounds of the members of an object, each of which takes about a hundred bytes. Documents and
// their parts have about ten members, attributes may be many, and consolidated metadata has one
// member per node.
const (
	maxMembers    = 1 << 12
	maxAttributes = 1 << 16
	maxNodes      = 1 << 20
)

// object returns the members of an object, at most maxMembers.
func (v value) object() ([]member, error) { return v.objectOf(maxMembers) }

// objectOf returns the members of an object, at most max. A duplicate name is an error: readers
// differ in which one they use.
func (v value) objectOf(max int) ([]member, error) {
	if v[0] != '{' {
		return nil, fmt.Errorf("must be an object, is %s", v.kind())
	}
	var list []member
	seen := map[string]bool{}
	err := v.each('{', func(name string, v value) error {
		if len(list) == max {
			return fmt.Errorf("has more than %d members", max)
		}
		if seen[name] {
			return fmt.Errorf("has %q twice", name)
		}
		seen[name] = true
		list = append(list, member{name, v})
		return nil
	})
	return list, err
}

// list returns the items of a list, at most max.
func (v value) list(max int) ([]value, error) {
	if v[0] != '[' {
		return nil, fmt.Errorf("must be a list, is %s", v.kind())
	}
	var list []value
	err := v.each('[', func(_ string, v value) error {
		if len(list) == max {
			return fmt.Errorf("has more than %d items", max)
		}
		list = append(list, v)
		return nil
	})
	return list, err
}

// each calls f for each member of an object or a list, which begins with open. v was validated, so
// only f can fail.
func (v value) each(open byte, f func(name string, v value) error) error {
	s := strictjson.New(v, MaxDepth)
	return s.Members(open, func(int) error {
		name := ""
		if open == '{' {
			quoted, err := next(s, v)
			if err == nil {
				_, err = s.Expect(":")
			}
			if err != nil {
				return err
			}
			name = quoted.unquoted()
		}
		item, err := next(s, v)
		if err != nil {
			return err
		}
		return f(name, item)
	})
}

// text returns the value of a string.
func (v value) text() (string, error) {
	if v[0] != '"' {
		return "", fmt.Errorf("must be a string, is %s", v.kind())
	}
	return v.unquoted(), nil
}

// unquoted returns the text of a string. Half characters become the replacement character.
func (v value) unquoted() string {
	text, _ := strictjson.Unquote(v)
	return string(text)
}

// is reports whether v is the string s. A document may encode it in several ways, such as "/" and
// "\/", so encoded bytes are never compared.
func (v value) is(s string) bool {
	text, err := v.text()
	return err == nil && text == s
}

// isAny reports whether v is one of these strings.
func (v value) isAny(list ...string) bool { return slices.ContainsFunc(list, v.is) }

// isTrue and isFalse report whether v is that boolean, which has only one spelling.
func (v value) isTrue() bool  { return v[0] == 't' }
func (v value) isFalse() bool { return v[0] == 'f' }

// isNumber reports whether v is the number n.
func (v value) isNumber(n int64) bool {
	got, err := v.integer(n, n)
	return err == nil && got == n
}

// whole returns a whole number as digits with its sign: 5.0 and 50e-1 are 5. It returns false for
// numbers with more digits than any 64-bit number has.
func (v value) whole() (digits string, ok bool) {
	const mostDigits = 20
	if v.kind() != "a number" || v[len(v)-1] == 'N' || v[len(v)-1] == 'y' { // NaN, -Infinity
		return "", false
	}
	text, sign := string(v), ""
	if text[0] == '-' {
		text, sign = text[1:], "-"
	}
	exponent := 0
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		const most = 1 << 30                    // far beyond all accepted exponents
		exponent, _ = strconv.Atoi(text[at+1:]) // on overflow it is clamped, with an error
		exponent = max(min(exponent, most), -most)
		text = text[:at]
	}
	if before, after, ok := strings.Cut(text, "."); ok {
		text = before + after
		exponent -= len(after)
	}
	text = strings.TrimLeft(text, "0")
	trimmed := strings.TrimRight(text, "0")
	switch exponent += len(text) - len(trimmed); {
	case trimmed == "":
		return "0", true
	case exponent < 0 || len(trimmed)+exponent > mostDigits:
		return "", false
	}
	return sign + trimmed + strings.Repeat("0", exponent), true
}

// integer returns a whole number from low to high.
func (v value) integer(low, high int64) (int64, error) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		if digits, ok := v.whole(); ok {
			n, err = strconv.ParseInt(digits, 10, 64)
		}
	}
	switch {
	case err != nil && v.kind() != "a number":
		return 0, fmt.Errorf("must be a whole number, is %s", v.kind())
	case err != nil || n < low || n > high:
		return 0, fmt.Errorf("must be a whole number from %d to %d, is %s", low, high, v.shown())
	}
	return n, nil
}

// integers returns a list of numbers from low to high, at most MaxDims.
func (v value) integers(low, high int64) ([]int64, error) {
	items, err := v.list(MaxDims)
	if err != nil {
		return nil, err
	}
	list := make([]int64, len(items))
	for i, item := range items {
		if list[i], err = item.integer(low, high); err != nil {
			return nil, fmt.Errorf("item %d %w", i, err)
		}
	}
	return list, nil
}

// shown returns v for an error, shortened if it is long.
func (v value) shown() string {
	const most = 60
	if len(v) > most {
		return fmt.Sprintf("%q …", v[:most])
	}
	return string(v)
}

// strict returns v as valid JSON: words that Python writes and JSON doesn't have become strings.
// Names and whitespace stay as they are.
func (v value) strict() []byte {
	out := make([]byte, 0, len(v))
	for i := 0; i < len(v); {
		switch v[i] {
		case '"':
			end := endOfString(v, i)
			out = append(out, v[i:end]...)
			i = end
			continue
		case 'N', 'I':
			word := "NaN"
			if v[i] == 'I' {
				word = "Infinity"
			}
			i += len(word)
			if n := len(out); n > 0 && out[n-1] == '-' {
				out, word = out[:n-1], "-"+word
			}
			out = strconv.AppendQuote(out, word)
			continue
		}
		out = append(out, v[i])
		i++
	}
	return out
}

// endOfString returns the index after the string that begins at i.
func endOfString(v value, i int) int {
	for i++; v[i] != '"'; i++ {
		if v[i] == '\\' {
			i++
		}
	}
	return i + 1
}
