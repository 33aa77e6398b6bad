package page

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fill sets every string in a value to text, every number to 1, and every slice to two elements.
func fill(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint, reflect.Uint64:
		v.SetUint(1)
	case reflect.Float64, reflect.Float32:
		v.SetFloat(1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i), text)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), text)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i), text)
			}
		}
	}
}

// pageWith returns a page whose texts are all the same.
func pageWith(text string) string {
	var p page
	fill(reflect.ValueOf(&p).Elem(), text)
	p.Shards = 3 // with a chart
	return string(p.Render())
}

// Names, errors, notes and settings of any content add no tag and end no attribute.
func TestTextFromAnySourceIsEscaped(t *testing.T) {
	plain := pageWith("train")
	require.Greater(t, strings.Count(plain, "train"), 50)
	for _, hostile := range []string{
		"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, `' onload='alert(1)`, `" style="x`, "&lt;&#60;&amp;", "</title></style></code>", "{}", "-->",
	} {
		text := pageWith("train" + hostile)
		for _, c := range []string{"<", ">", `"`} {
			require.Equalf(t, strings.Count(plain, c), strings.Count(text, c), "%s of %s", c, hostile)
		}
		require.Contains(t, text, "<title>train"+escape(hostile)+" · lsiofs inspect</title>")
		require.Contains(t, text, `<img src="train`+escape(hostile)+`" alt=`)
	}
	require.Equal(t, "&lt;a b=&#34;c&#34; d=&#39;e&#39;&gt; &amp;amp; &#43;\uFFFD", escape("<a b=\"c\" d='e'> &amp; +\x00"))
}

// Escaping relies on this: values are in double quotes or between tags, and only the styles are
// converted to markup.
func TestValuesAreInQuotesOrBetweenTags(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	conversions, attributes := 0, 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		conversions += strings.Count(string(b), "markup(")
		require.NotRegexp(t, `=\s*'?\{\}`, string(b), "%s: an attribute without double quotes", file)
		require.NotRegexp(t, `<[/!]?\{\}|<[^>{]*\s\{\}`, regexp.MustCompile(`"[^"\n]*"`).ReplaceAllString(string(b), ""), "%s: a value as a name in a tag", file)
		attributes += strings.Count(string(b), `="{}`)
	}
	require.Equal(t, 1, conversions, "a string may become markup in one place: the styles")
	require.Greater(t, attributes, 5)
}

func TestTemplateInsertsItsValues(t *testing.T) {
	var w writer
	w.put(`<a b="{}">{}</a>`, `"`, "{}")
	w.when(false, `<b>{}</b>`, "x")
	w.when(true, `<i>`)
	require.Equal(t, `<a b="&#34;">{}</a><i>`, w.b.String())
	require.Panics(t, func() { w.put(`{}`) })
	require.Panics(t, func() { w.put(`a`, "b") })
}
