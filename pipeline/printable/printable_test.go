package printable

import (
	"encoding/json"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestTerminalControlsAreEscaped(t *testing.T) {
	for _, c := range []struct{ in, text, line string }{
		{"a plain line, größer: 1–2 µs × χ²", "a plain line, größer: 1–2 µs × χ²", "a plain line, größer: 1–2 µs × χ²"},
		{"two\nlines\tand a tab", "two\nlines\tand a tab", `two\x0alines\x09and a tab`},
		{"\x1b]0;title\a\x1b[31mred", `\x1b]0;title\x07\x1b[31mred`, `\x1b]0;title\x07\x1b[31mred`},
		{"back\b\rspace\x7f", `back\x08\x0dspace\x7f`, `back\x08\x0dspace\x7f`},
		{"C1 as UTF-8: \u009b31m", `C1 as UTF-8: \u009b31m`, `C1 as UTF-8: \u009b31m`},
		{"C1 as a byte: \x9b31m", `C1 as a byte: \x9b31m`, `C1 as a byte: \x9b31m`},
		{"cod\u202egnp.exe", `cod\u202egnp.exe`, `cod\u202egnp.exe`},
		{"a tag \U000e0041", `a tag \U000e0041`, `a tag \U000e0041`},
		{"�, as it stands", "�, as it stands", "�, as it stands"},
		{"", "", ""},
	} {
		require.Equal(t, c.text, Text(c.in))
		require.Equal(t, c.line, Line(c.in))
	}
}

func TestNothingElseIsPrinted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) + rapid.String().Draw(t, "string")
		line := Line(in)
		require.True(t, utf8.ValidString(line))
		for _, r := range line {
			require.True(t, unicode.IsGraphic(r), "%q in %q", r, line)
		}
		require.Equal(t, line, Line(line))
	})
}

func TestJSONKeepsItsValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.String().Draw(t, "in") + "\x1b\x7f\u009b\u202e\U000e0041"
		text, err := json.Marshal(in)
		require.NoError(t, err)
		text = JSON(text)
		require.Equal(t, string(text), Line(string(text)))
		var out string
		require.NoError(t, json.Unmarshal(text, &out))
		require.Equal(t, in, out)
	})
}
