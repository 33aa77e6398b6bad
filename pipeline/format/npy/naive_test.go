package npy_test

import (
	"bytes"
	"encoding/binary"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lsiofs/lsiofs/pipeline/format/formattest"
)

// The naive parser of whole files: tokens by a regular expression, values without checks of their
// place, numbers without bounds.

var token = regexp.MustCompile(`^[ \t\r\n]*('(?:[^'\\\x00-\x1f]|\\(?s:.))*'|"(?:[^"\\\x00-\x1f]|\\(?s:.))*"|[0-9]+L?|True|False|[][(){}:,])`)

type tuple []any

type list []any

type text string

// scanner returns tokens; it panics with damaged if there is none.
type scanner struct {
	rest  string
	whole string
	depth int
}

type damaged struct{}

func (s *scanner) peek() string {
	m := token.FindStringSubmatch(s.rest)
	if m == nil {
		panic(damaged{})
	}
	return m[1]
}

func (s *scanner) take() string {
	t := s.peek()
	s.rest = s.rest[strings.Index(s.rest, t)+len(t):]
	if t == "True" || t == "False" {
		if s.rest != "" && !strings.ContainsAny(s.rest[:1], " \t\r\n,)]}") {
			panic(damaged{})
		}
	}
	return t
}

func (s *scanner) at() int { return len(s.whole) - len(s.rest) }

// value returns one value, and its text.
func (s *scanner) value(longs bool) (any, string) {
	s.peek()
	s.rest = strings.TrimLeft(s.rest, " \t\r\n")
	from := s.at()
	v := s.bare(longs)
	return v, s.whole[from:s.at()]
}

func (s *scanner) bare(longs bool) any {
	t := s.take()
	switch {
	case t == "True" || t == "False":
		return t == "True"
	case t[0] == '\'' || t[0] == '"':
		return text(t[1 : len(t)-1])
	case t[0] >= '0' && t[0] <= '9':
		digits, long := strings.CutSuffix(t, "L")
		n, _ := new(big.Int).SetString(digits, 10)
		if long && !longs || len(digits) > 1 && digits[0] == '0' || !n.IsInt64() {
			panic(damaged{})
		}
		return n
	case t == "(" || t == "[":
		if s.depth++; s.depth > 64 {
			panic(damaged{})
		}
		var items []any
		comma := false
		for s.peek() != ")" && s.peek() != "]" {
			v, _ := s.value(longs)
			items = append(items, v)
			if comma = s.peek() == ","; comma {
				s.take()
			} else {
				break
			}
		}
		s.depth--
		if end := s.take(); t == "(" && end == ")" && (comma || len(items) != 1) {
			return tuple(items)
		} else if t == "[" && end == "]" {
			return list(items)
		}
	}
	panic(damaged{})
}

// size returns the size of a dtype, nil if it is refused.
func size(d any) *big.Int {
	switch d := d.(type) {
	case text:
		m := regexp.MustCompile(`^[<>|=]?(?:(b1|[iu][1248]|f2|f4|f8|f12|f16|c8|c16|c24|c32)|[mM]8(\[\d*(?:Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?|([SUV])(0|[1-9]\d*))$`).FindStringSubmatch(string(d))
		switch {
		case m == nil:
			return nil
		case m[1] != "":
			n, _ := new(big.Int).SetString(m[1][1:], 10)
			return n
		case m[3] == "":
			return big.NewInt(8)
		}
		n, _ := new(big.Int).SetString(m[4], 10)
		if !n.IsInt64() {
			return nil
		}
		if m[3] == "U" {
			n.Mul(n, big.NewInt(4))
		}
		return n
	case list:
		total := new(big.Int)
		var names []string
		for _, f := range d {
			t, ok := f.(tuple)
			if !ok || len(t) < 2 || len(t) > 3 || !name(t[0]) {
				return nil
			}
			for _, n := range append(tuple{t[0]}, pair(t[0])...) {
				if s, ok := n.(text); ok && s != "" {
					if slices.Contains(names, string(s)) {
						return nil
					}
					names = append(names, string(s))
				}
			}
			n := size(t[1])
			if n == nil {
				return nil
			}
			if len(t) == 3 {
				dims, ok := t[2].(tuple)
				if one, is := t[2].(*big.Int); is {
					dims, ok = tuple{one}, true
				}
				if n = times(n, dims); !ok || n == nil {
					return nil
				}
			}
			if total.Add(total, n); !total.IsInt64() {
				return nil
			}
		}
		return total
	}
	return nil
}

// pair is a title and a name, or nothing.
func pair(n any) tuple {
	t, _ := n.(tuple)
	return t
}

func name(n any) bool {
	if t, ok := n.(tuple); ok && len(t) == 2 {
		_, is := t[0].(text)
		n, ok = t[1], is
		if !ok {
			return false
		}
	}
	_, ok := n.(text)
	return ok
}

func times(n *big.Int, dims []any) *big.Int {
	n = new(big.Int).Set(n)
	for _, d := range dims {
		k, ok := d.(*big.Int)
		if !ok {
			return nil
		}
		n.Mul(n, k)
	}
	return n
}

func naive(shard []byte) (o formattest.Outcome) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(damaged); !ok {
				panic(r)
			}
			o = formattest.Outcome{Damaged: true}
		}
	}()
	refused := formattest.Outcome{Refused: true}
	if !bytes.HasPrefix([]byte("\x93NUMPY"), shard[:min(6, len(shard))]) {
		return refused
	}
	if len(shard) < 8 {
		return formattest.Outcome{Damaged: true}
	}
	if v := string(shard[6:8]); v != "\x01\x00" && v != "\x02\x00" && v != "\x03\x00" {
		return refused
	}
	lead, longs := 10, true
	if shard[6] > 1 {
		lead = 12
	}
	if len(shard) < lead {
		return formattest.Outcome{Damaged: true}
	}
	n := int(binary.LittleEndian.Uint16(shard[8:]))
	if lead == 12 {
		n = int(binary.LittleEndian.Uint32(shard[8:]))
	}
	if lead+n > 1<<20 {
		return refused
	}
	if lead+n > len(shard) {
		return formattest.Outcome{Damaged: true}
	}
	dictionary := string(shard[lead : lead+n])
	if shard[6] == 3 {
		if longs = false; !utf8.ValidString(dictionary) {
			return formattest.Outcome{Damaged: true}
		}
	} else {
		var runes []rune
		for _, c := range []byte(dictionary) {
			runes = append(runes, rune(c))
		}
		dictionary = string(runes)
	}
	return naiveRows(shard, lead+n, dictionary, longs)
}

func naiveRows(shard []byte, at int, dictionary string, longs bool) formattest.Outcome {
	s := &scanner{rest: dictionary, whole: dictionary}
	if !strings.HasPrefix(dictionary, "{") {
		panic(damaged{})
	}
	s.take()
	values, written := map[text]any{}, map[text]string{}
	for s.peek() != "}" {
		k, _ := s.value(longs)
		key, ok := k.(text)
		if _, twice := values[key]; !ok || twice || s.take() != ":" {
			panic(damaged{})
		}
		values[key], written[key] = s.value(longs)
		if s.peek() != "}" && s.take() != "," {
			panic(damaged{})
		}
	}
	s.take()
	fortran, isBool := values["fortran_order"].(bool)
	shape, isTuple := values["shape"].(tuple)
	if strings.Trim(s.rest, " \t\r\n") != "" || len(values) != 3 || values["descr"] == nil || !isBool || !isTuple || times(big.NewInt(1), shape) == nil {
		panic(damaged{})
	}
	item := size(values["descr"])
	if fortran || len(shape) == 0 || item == nil {
		return formattest.Outcome{Refused: true}
	}
	row, rows := times(item, shape[1:]), shape[0].(*big.Int).Int64()
	for _, c := range written["descr"] {
		if c > 255 {
			return formattest.Outcome{Refused: true}
		}
	}
	header := len(regexp.MustCompile(`^\((\d+)L?`).ReplaceAllString(written["shape"], "")) + utf8.RuneCountInString(written["descr"])
	if !row.IsInt64() || row.Sign() == 0 && rows > 0 || header > 65000 {
		return formattest.Outcome{Refused: true}
	}
	return cutRows(shard, at, row.Int64(), rows, written["descr"]+" "+python(shape[1:]))
}

func cutRows(shard []byte, at int, row, rows int64, kind string) formattest.Outcome {
	o := formattest.Outcome{Kind: kind}
	left := int64(len(shard) - at)
	for range rows {
		if left < row {
			o.Damaged = true
			return o
		}
		o.Records = append(o.Records, formattest.Record{OffsetBytes: int64(len(shard)) - left, SizeBytes: row})
		left -= row
	}
	o.Damaged = left > 0
	return o
}

// python formats a tuple of numbers as Python does.
func python(t tuple) string {
	var words []string
	for _, n := range t {
		words = append(words, n.(*big.Int).String())
	}
	if len(words) == 1 {
		words = append(words, "")
	}
	return strings.TrimSuffix("("+strings.Join(words, ", "), " ") + ")"
}
