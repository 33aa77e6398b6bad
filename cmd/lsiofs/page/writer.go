package page

import (
	"fmt"
	"html"
	"strings"
)

// markup is HTML written in this package. Go converts a constant to markup implicitly, but not a
// variable: text from a dataset is a string and can only be passed to put as a value. (A template
// would check this too, but that library calls methods by name, so the linker has to keep every
// method of the whole program: 3 MB.)
type markup string

// writer builds a page.
type writer struct{ b strings.Builder }

// put writes form, with each {} replaced by the next of values. Values are text, between tags or in
// an attribute in double quotes, and are always escaped.
func (w *writer) put(form markup, values ...string) {
	parts := strings.Split(string(form), "{}")
	if len(parts) != len(values)+1 {
		panic(fmt.Sprintf("page: %d values for %q", len(values), form)) // a mistake in this package
	}
	w.b.WriteString(parts[0])
	for i, part := range parts[1:] {
		w.b.WriteString(escape(values[i]))
		w.b.WriteString(part)
	}
}

// when calls put if holds is true.
func (w *writer) when(holds bool, form markup, values ...string) {
	if holds {
		w.put(form, values...)
	}
}

// escape makes text of any string. It also replaces plus signs and zero bytes, for old browsers
// that guess encodings and drop bytes.
func escape(s string) string {
	return strings.NewReplacer("+", "&#43;", "\x00", "\uFFFD").Replace(html.EscapeString(s))
}
