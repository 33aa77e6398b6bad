package kerchunk

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage/crops/refs/table"
)

// shown returns a line for each key of a table.
func shown(t *table.Table) (lines []string) {
	for i := range t.Len() {
		p := t.Place(i)
		switch p.Kind {
		case table.Inline:
			lines = append(lines, fmt.Sprintf("%s = %s", t.Key(i), p.Bytes))
		case table.Whole:
			lines = append(lines, fmt.Sprintf("%s: %s", t.Key(i), t.File(p.File)))
		default:
			lines = append(lines, fmt.Sprintf("%s: %s [%d, +%d)", t.Key(i), t.File(p.File), p.Offset, p.Size))
		}
	}
	return lines
}

func TestBothVersionsAreRead(t *testing.T) {
	refs := `{"b/0.0": ["{{u}}/a.nc", 7, 8], "b/0.1": ["{{ u }}{{w}}"], ".zgroup": "{\"zarr_format\": 2}",
		"b/.zarray": {"shape": [ 1, -2.5e3 ], "x": NaN, "y": {}, "z": [null, true]}, "b/1": "base64:AAEC/w==", "t": "\u00e9\ud83d\ude00é\n", "empty": ""}`
	want := []string{
		`.zgroup = {"zarr_format": 2}`, `b/.zarray = {"shape":[1,-2.5e3],"x":NaN,"y":{},"z":[null,true]}`,
		"b/0.0: data/a.nc [7, +8)", "b/0.1: data.bin", "b/1 = \x00\x01\x02\xff", "empty = ", "t = é😀é\n",
	}
	for _, document := range []string{
		`{"version": 1, "templates": {"u": "data", "w": ".bin"}, "gen": [], "refs": ` + refs + `}`,
		` {"refs": ` + refs + `, "templates": {"w": ".bin", "u": "data"}, "version":1}` + "\n",
	} {
		got, err := Parse(strings.NewReader(document), 1<<30)
		require.NoError(t, err)
		require.Equal(t, want, shown(got))
	}
	got, err := Parse(strings.NewReader(`{"a/0": ["x.nc", 1, 2], "a/1": ["x.nc", 3, 4]}`), 1<<30)
	require.NoError(t, err)
	require.Equal(t, []string{"a/0: x.nc [1, +2)", "a/1: x.nc [3, +4)"}, shown(got))
	require.Equal(t, 1, got.Files())
}

func TestInvalidReferenceFileIsRefusedWithExplanation(t *testing.T) {
	for document, want := range map[string]string{
		``: "ends in the middle", `[]`: `at byte 0: expected an object, {…}, not "["`, `{} x`: `unexpected text after the document: "x"`, `{"a": "b"`: "ends in the middle",
		`{"a" "b"}`: `expected :, not "\"b\""`, `{"a": "b" "c"}`: `at byte 10: it is not JSON: expected , or }, not "\"c\""`, `{"a": "\q"}`: "a string has an escape that is not allowed",
		`{"a": "\ud800"}`: "half a character", "{\"a\": \"\xff\"}": "not UTF-8", "{\"a\": \"\n\"}": "control character",
		`{"a": 5}`: `key "a": at byte 6: a key stands for a text, an object or a list`, `{"a": null}`: "a key stands for",
		`{"a": []}`: "a list of 0 items", `{"a": ["x", 1]}`: "a list of 2 items", `{"a": ["x", 1, 2, 3]}`: "more than 3 items",
		`{"a": ["x", 1.5, 2]}`: "not a number of bytes", `{"a": ["x", "1", 2]}`: "not a number of bytes", `{"a": [null, 1, 2]}`: "expected a string",
		`{"a": ["x", -1, 2]}`: "not a number of bytes", `{"a": ["x", 9223372036854775808, 2]}`: "not a number of bytes", `{"a": ["x", 9223372036854775807, 2]}`: "no range",
		`{"a": "base64:*"}`: "base64", `{"a": "x", "a": "y"}`: `"a" occurs twice`, `{"a": "x", "a/b": "y"}`: "both an object and a directory",
		`{"../a": "x"}`: "is not a path", `{"/a": "x"}`: "is not a path", `{"a//b": "x"}`: "is not a path", `{"a/./b": "x"}`: "is not a path", `{"": "x"}`: "is not a path",
		`{"` + strings.Repeat("a", 2000) + `": "x"}`: "a key has 2000 bytes",
		`{"zarr_format": 3}`:                         "this is a document of a Zarr array or group",
		`{"version": 1}`:                             `no "refs"`, `{"refs": {}}`: `its "version" is not 1`, `{"version": 2, "refs": {}}`: `its "version" is not 1`,
		`{"version": 1, "refs": {}, "more": "x"}`:                                                                     "1 other members",
		`{"version": 1, "refs": {}, "refs": {}}`:                                                                      "twice",
		`{"version": 1, "gen": [{"key": "x"}], "refs": {}}`:                                                           "template language",
		`{"version": 1, "templates": {"f": "{{c}}"}, "refs": {}}`:                                                     "takes arguments",
		`{"version": 1, "refs": {"a": ["{{u}}"]}}`:                                                                    "not the name of a template",
		`{"version": 1, "templates": {"u": "x"}, "refs": {"a": ["{{u(c='1')}}"]}}`:                                    "not the name of a template",
		`{"version": 1, "templates": {"u": "x"}, "refs": {"a": ["{{u"]}}`:                                             "not the name of a template",
		`{"a": ` + strings.Repeat(`{"a":`, 100) + `1` + strings.Repeat("}", 101):                                      "nested more than 64 deep",
		`{"a": ["` + strings.Repeat("x", 5000) + `"]}`:                                                                "more than 4096 bytes",
		`{"version": 1, "templates": {"u": "` + strings.Repeat("x", 4000) + `"}, "refs": {"a": ["{{u}}{{u}}{{u}}"]}}`: "more than 4096 bytes with its templates",
	} {
		_, err := Parse(strings.NewReader(document), 1<<30)
		require.ErrorContains(t, err, want, "%.200s", document)
	}
}

// A short file must not expand to a long table.
func TestTemplatesThatMakeNamesLongAreRefused(t *testing.T) {
	var b strings.Builder
	fmt.Fprintf(&b, `{"version": 1, "templates": {"u": %q}, "refs": {`, strings.Repeat("x", 4000))
	for i := range 70_000 {
		fmt.Fprintf(&b, `"a/%d": ["{{u}}%d", 0, 1],`, i, i)
	}
	_, err := Parse(strings.NewReader(b.String()+`"b": ""}}`), 1<<30)
	require.ErrorContains(t, err, "the names of files have more than 268435456 bytes together")
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"version": 1, "templates": {"u": "d"}, "gen": [], "refs": {"a/0": ["{{u}}", 1, 2], "a/1": "base64:AAAA", "b": {"x": [1, "y"]}}}`,
		`{"a/0": ["x.nc", 1, 2], "a/1": "t"}`, `{"a": "\u00e9"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := Parse(strings.NewReader(string(b)), 1<<30)
		if err != nil {
			return
		}
		inline := 0
		for i := range got.Len() {
			p := got.Place(i)
			if n, found := got.Find(got.Key(i)); !found || n != i {
				t.Fatalf("key %q is not found", got.Key(i))
			}
			inline += len(p.Bytes)
			if p.Kind != table.Inline && (p.Offset < 0 || p.Size < 0 || p.Offset+p.Size < 0 || len(got.File(p.File)) > maxNameBytes+len(b)) {
				t.Fatalf("key %q lies at %v", got.Key(i), p)
			}
		}
		if inline > len(b) {
			t.Fatalf("%d bytes of %d", inline, len(b))
		}
	})
}
