package rows

import (
	"slices"
	"strconv"
	"strings"
)

// anyIndex stands for all indexes of elements in a suffix: a name never contains it.
const anyIndex = "#"

// suffixes is all suffixes that one binary value of the schema, or one named column, can have.
type suffixes struct {
	column string
	parts  []string // lower case; anyIndex for elements; without the kind, but for a name
	kind   string   // if the format defines it
	image  bool     // the kind may also be any extension of a path
	fixed  bool     // parts is everything: a name
}

// clash returns a *RefusedError if two members of a sample can have suffixes that are equal but for
// case.
func clash(unnamed, named []node) error {
	var all []suffixes
	if len(unnamed) > 0 {
		all = append(all, suffixes{column: "the JSON object of the columns that are not named", parts: []string{"json"}, fixed: true})
	}
	for i := range unnamed {
		n := &unnamed[i]
		all = appendSuffixes(all, n, quoted(n.name), []string{strings.ToLower(n.part)})
	}
	for i := range named {
		name := named[i].name
		all = append(all, suffixes{column: quoted(name), parts: strings.Split(strings.ToLower(name), "."), fixed: true})
	}
	// Equal suffixes have equal numbers of components, and most components are names: values are
	// compared with those of the same number and the same first name only.
	type group struct {
		components int
		first      string
	}
	groups := map[group][]suffixes{}
	for _, s := range all {
		g := group{len(s.parts), s.parts[0]}
		if !s.fixed {
			g.components++
		}
		for _, other := range groups[g] {
			if s.meets(other) {
				return refused("", "%s and %s can be members of a sample with the same name, %s: give one of them another name with --columns NAME=PATH", other.column, s.column, s.example(other))
			}
		}
		groups[g] = append(groups[g], s)
	}
	return nil
}

// appendSuffixes appends the binary values below a node, outside of maps.
func appendSuffixes(all []suffixes, n *node, column string, parts []string) []suffixes {
	switch {
	case n.Kind == Binary:
		return append(all, suffixes{column: column, parts: slices.Clone(parts), kind: n.Suffix})
	case n.image:
		return append(all, suffixes{column: column, parts: slices.Clone(parts), kind: n.bytesType().Suffix, image: true})
	case n.Kind == List:
		return appendSuffixes(all, &n.kids[0], column, append(parts, anyIndex))
	case n.Kind == Struct:
		for i := range n.kids {
			kid := &n.kids[i]
			all = appendSuffixes(all, kid, column+"."+quoted(kid.name), append(parts, strings.ToLower(kid.part)))
		}
	}
	return all
}

// meets reports whether two values can have equal suffixes, of the same number of components.
func (s suffixes) meets(o suffixes) bool {
	shared := min(len(s.parts), len(o.parts)) // of both, without the kind where one has it apart
	for i := range shared {
		if !samePart(s.parts[i], o.parts[i]) {
			return false
		}
	}
	switch {
	case s.fixed && o.fixed:
		return true
	case s.fixed:
		return o.hasKind(s.parts[len(s.parts)-1])
	case o.fixed:
		return s.hasKind(o.parts[len(o.parts)-1])
	case s.kind != "":
		return o.hasKind(s.kind)
	case o.kind != "":
		return s.hasKind(o.kind)
	}
	return true // both can be "bin"
}

func samePart(a, b string) bool {
	return a == b || a == anyIndex && isIndex(b) || b == anyIndex && isIndex(a)
}

// isIndex reports whether s is the decimal form of an index.
func isIndex(s string) bool {
	n, err := strconv.ParseUint(s, 10, 31)
	return err == nil && strconv.FormatUint(n, 10) == s
}

// hasKind reports whether a binary value can be of a kind.
func (s suffixes) hasKind(kind string) bool {
	if s.kind != "" {
		return s.kind == kind
	}
	if kind == "bin" || s.image && string(extension([]byte("."+kind))) == kind {
		return true
	}
	for i := range magics {
		if magics[i].kind == kind {
			return true
		}
	}
	return false
}

// example returns a suffix that both can have.
func (s suffixes) example(o suffixes) string {
	if o.fixed {
		s, o = o, s
	}
	text := strings.ReplaceAll(strings.Join(s.parts, "."), anyIndex, "0")
	switch {
	case s.fixed:
		return text
	case s.kind != "":
		return text + "." + s.kind
	case o.kind != "":
		return text + "." + o.kind
	}
	return text + ".bin"
}
