package strictjson_test

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/strictjson"
)

const depth = 8

var valid = []string{
	`{}`, `[]`, `""`, `0`, `-0`, `1`, `-12.5e+3`, `1E5`, `0.10`, `true`, `false`, `null`, ` [ 1 , 2 ] `, "\t{\"a\"\r\n:\n1}",
	`{"a": {"b": [{"c": [true, null, "x"]}]}, "a": 2}`, `"\"\\\/\b\f\n\r\t\u00e9\uD83D\ude00é"`, `"\ud800"`, "\"\xff\"", strings.Repeat("[", depth) + strings.Repeat("]", depth),
}

var invalid = []string{
	``, ` `, `{`, `}`, `[1,]`, `{"a":1,}`, `{a:1}`, `{"a" 1}`, `[1 2]`, `01`, `-`, `+1`, `1.`, `.5`, `1e`, `1e+`, `tru`, `truth`, `nul`, `"`, `"\`, `"\u12`, `"\x"`, `"\u12g4"`,
	"\"\n\"", `[`, `{"a"`, `{"a":`, `x`, `1x`, `[]]`, `{} {}`, `'a'`, "\x00", `--1`, `1.5.5`, `[,1]`, `nullx`,
}

// whole scans a document to its end.
func whole(s *strictjson.Scanner) error {
	if err := s.Skip(); err != nil {
		return err
	}
	return s.End()
}

func isCut(err error) bool {
	wrong, ok := errors.AsType[*strictjson.SyntaxError](err)
	return ok && wrong.Cut
}

// check compares what is accepted with encoding/json.
func check(t *testing.T, doc string) {
	err := whole(strictjson.New([]byte(doc), depth))
	if _, deep := errors.AsType[*strictjson.DepthError](err); deep {
		return
	}
	if !strings.ContainsAny(doc, "NI") {
		require.Equal(t, json.Valid([]byte(doc)), err == nil, "%q: %v", doc, err)
	}
	for _, r := range []io.Reader{iotest.OneByteReader(strings.NewReader(doc)), iotest.DataErrReader(strings.NewReader(doc))} {
		again := whole(strictjson.NewReader(r, depth))
		require.Equal(t, err == nil, again == nil, "%q", doc)
		require.Equal(t, isCut(err), isCut(again), "%q: %v, %v", doc, err, again)
		if wrong, ok := errors.AsType[*strictjson.SyntaxError](err); ok {
			require.Equal(t, wrong.Offset, again.(*strictjson.SyntaxError).Offset, "%q", doc)
		}
	}
	for n := range len(doc) {
		prefix := whole(strictjson.New([]byte(doc)[:n], depth))
		switch {
		case err == nil:
			require.True(t, prefix == nil || isCut(prefix), "%q can be continued: %v", doc[:n], prefix)
		case prefix != nil && !isCut(prefix):
			require.False(t, isCut(err), "%q can't become valid", doc[:n])
		}
	}
}

func TestAcceptsWhatEncodingJSONDoes(t *testing.T) {
	for _, doc := range append(valid, invalid...) {
		check(t, doc)
	}
	for _, doc := range valid {
		require.NoError(t, whole(strictjson.New([]byte(doc), depth)), doc)
	}
	for _, doc := range invalid {
		require.Error(t, whole(strictjson.New([]byte(doc), depth)), doc)
	}
}

func TestNumbersThatPythonWrites(t *testing.T) {
	for _, doc := range []string{`NaN`, `[NaN, Infinity, -Infinity]`, `{"a": NaN}`} {
		check(t, doc)
		require.NoError(t, whole(strictjson.New([]byte(doc), depth)), doc)
	}
	for _, doc := range []string{`nan`, `-NaN`, `+Infinity`, `Infinite`, `Nan`} {
		require.Error(t, whole(strictjson.New([]byte(doc), depth)), doc)
	}
}

func TestErrorsHaveOffsetAndReason(t *testing.T) {
	for doc, want := range map[string]string{
		`[1, x]`:                     `at byte 4: it is not JSON: no value begins with "x"`,
		`{"a": 1 2}`:                 `at byte 8: it is not JSON: expected , or }, not "2"`,
		`{1: 2}`:                     `at byte 1: it is not JSON: expected a name, not "1:"`,
		`[1] 2`:                      `at byte 4: it is not JSON: unexpected text after the document: "2"`,
		`["a`:                        `at byte 3: it is not JSON: it ends in the middle`,
		"[\"\x01\"]":                 `at byte 2: it is not JSON: a string has a control character`,
		strings.Repeat("[", depth+1): `at byte 8: it is nested more than 8 deep`,
	} {
		require.EqualError(t, whole(strictjson.New([]byte(doc), depth)), want)
		require.EqualError(t, whole(strictjson.NewReader(strings.NewReader(doc), depth)), want)
	}
}

func TestValuesAreReturnedWithoutWhiteSpace(t *testing.T) {
	s := strictjson.NewReader(iotest.OneByteReader(strings.NewReader(` { "a b" : [ 1 , true ], "c":"\u00e9" }, 7`)), depth)
	v, err := s.Value(100)
	require.NoError(t, err)
	require.Equal(t, `{"a b":[1,true],"c":"\u00e9"}`, string(v))
	require.EqualValues(t, 39, s.Offset())
	s = strictjson.New([]byte(`["abcdef"]`), depth)
	_, err = s.Value(5)
	require.EqualError(t, err, "at byte 6: a value has more than 5 bytes")
}

func TestReadErrorsAreReturnedUnchanged(t *testing.T) {
	fault := errors.New("input/output error")
	for _, doc := range []string{``, `[`, `"a`, `12`, `{"a": tr`, `[1] `} {
		err := whole(strictjson.NewReader(io.MultiReader(strings.NewReader(doc), iotest.ErrReader(fault)), depth))
		require.Equal(t, fault, err, doc)
	}
}

func TestUnquotedTextIsThatOfEncodingJSON(t *testing.T) {
	for encoded, exact := range map[string]bool{
		`""`: true, `"a"`: true, `"é\n\u00e9\ud83d\ude00"`: true, `"\ufffd"`: true, "\"\ufffd\"": true, `"\\ufffd"`: true, `"\\ud800"`: true,
		`"\ud800"`: false, `"\udc00"`: false, `"\ud800a"`: false, `"\ud800\ud83d\ude00"`: false, `"\ud83d\ude00\ude00"`: false, "\"\xff\"": false, "\"\xff\\n\"": false,
	} {
		var want string
		require.NoError(t, json.Unmarshal([]byte(encoded), &want))
		text, is := strictjson.Unquote([]byte(encoded))
		require.Equal(t, want, string(text), encoded)
		require.Equal(t, exact, is, encoded)
	}
}

func FuzzScanner(f *testing.F) {
	for _, doc := range append(valid, invalid...) {
		f.Add(doc)
	}
	f.Fuzz(func(t *testing.T, doc string) {
		if len(doc) > 200 {
			return // all prefixes are scanned
		}
		check(t, doc)
	})
}
