package page

import (
	"fmt"
	"html"
	"strings"
)

// markup is HTML that is written in this package. Go turns a constant into markup by
// itself, but no variable: what comes from a dataset is a string, and can only be a
// value of put. (A template would check this too, but the library calls methods by
// their names, so that the linker has to keep every method of the whole program: 3 MB.)
type markup string

// writer puts a page together.
type writer struct{ b strings.Builder }

// put writes form, in which each {} stands for the next of values. Values are text,
// between tags or in an attribute in double quotes: they are always escaped.
func (w *writer) put(form markup, values ...string) {
	parts := strings.Split(string(form), "{}")
	if len(parts) != len(values)+1 {
		panic(fmt.Sprintf("page: %d values for %q", len(values), form)) // both are ours
	}
	w.b.WriteString(parts[0])
	for i, part := range parts[1:] {
		w.b.WriteString(escape(values[i]))
		w.b.WriteString(part)
	}
}

// when is put where a condition holds.
func (w *writer) when(holds bool, form markup, values ...string) {
	if holds {
		w.put(form, values...)
	}
}

// escape makes text of any string. The plus sign and the zero byte are for old
// browsers, which guess encodings and drop bytes.
func escape(s string) string {
	return strings.NewReplacer("+", "&#43;", "\x00", "\uFFFD").Replace(html.EscapeString(s))
}
