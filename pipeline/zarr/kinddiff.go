package zarr

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Differences describes, in terms of flags, how crops of a kind differ from those of a previous
// one: "--crop of data is 4,16,8, and was 4,16,16". It returns "" if one is not a kind, or if both
// are the same.
func Differences(is, was string) string {
	x, errX := parseKind(is)
	y, errY := parseKind(was)
	if errX != nil || errY != nil {
		return ""
	}
	var words []string
	add := func(what string, is, was any) {
		if !reflect.DeepEqual(is, was) {
			words = append(words, fmt.Sprintf("%s is %s, and was %s", what, shown(is), shown(was)))
		}
	}
	add("the dimensions' names", x.Dims, y.Dims)
	add("the arrays (--array)", x.names(), y.names())
	if slices.Equal(x.names(), y.names()) {
		for i, a := range x.Arrays {
			b, of := y.Arrays[i], cmp.Or(a.name, "the array")
			add("--crop of "+of, a.crop, b.crop)
			add("--step of "+of, a.step, b.step)
			add("--select, places of "+of, a.places, b.places)
			add("the type of "+of, a.descr, b.descr)
			add("the fill value of "+of+" (hex)", a.fill, b.fill)
		}
	}
	add("--stride", x.Strides, y.Strides)
	add("the region (--select) begins at", x.Begins, y.Begins)
	add("the region (--select, or the array) ends at", x.Ends, y.Ends)
	add("the chunks' edges", x.Chunk, y.Chunk)
	add("--wrap", x.Wrap, y.Wrap)
	add("--edge", x.Edge, y.Edge)
	add("--jitter", x.Jitter, y.Jitter)
	add("the file of --crops (sha256)", x.List, y.List)
	add("--missing", x.Missing, y.Missing)
	add("what --missing and --on-corrupt leave out (sha256)", x.Kept, y.Kept)
	add("--stack", x.Stack, y.Stack)
	if !reflect.DeepEqual(x.As, y.As) {
		words = append(words, "--as, --scale or --offset, or the attributes that they come from, are others")
	}
	return strings.Join(words, "; ")
}

// names returns the names of the arrays, with their paths if they differ.
func (k *kindText) names() []string {
	list := make([]string, len(k.Arrays))
	for i, a := range k.Arrays {
		if list[i] = a.name; a.name != a.path {
			list[i] = a.name + "=" + a.path
		}
	}
	return list
}

// shown formats a member of a kind for a message.
func shown(v any) string {
	const most = 80
	text := fmt.Sprint(v)
	switch v := v.(type) {
	case string:
		text = cmp.Or(v, "none")
	case []int64, []string, []bool:
		text = strings.Join(strings.Fields(strings.Trim(text, "[]")), ",")
	}
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
