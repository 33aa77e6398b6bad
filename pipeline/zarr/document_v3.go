package zarr

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// ParseV3 reads the zarr.json of an array. path is for errors, which are *Error.
func ParseV3(path string, doc []byte) (*Array, error) {
	p := &problems{document: path}
	members, ok := openObject(p, doc)
	if !ok {
		return nil, p.err()
	}
	m := map[string]value{}
	for _, one := range members {
		m[one.name] = one.value
		if !slices.Contains(membersV3, one.name) && !ignorable(one.value) {
			p.add(one.name, "is unknown, and must be understood: this array needs a newer lsiofs")
		}
	}
	if !isVersion(p, m, 3) || !isNode(p, m, "array") {
		return nil, p.err()
	}
	for _, name := range membersV3[:8] {
		if m[name] == nil {
			p.add(name, "is missing")
		}
	}
	if missingAny(m) {
		return nil, p.err()
	}
	a := &Array{}
	a.readV3(p, m)
	if err := p.err(); err != nil {
		return nil, err
	}
	return a, nil
}

// membersV3 are the members of an array's document; the first 8 are required.
var membersV3 = []string{
	"zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs",
	"attributes", "storage_transformers", "dimension_names",
}

func missingAny(m map[string]value) bool {
	return slices.ContainsFunc(membersV3[:8], func(name string) bool { return m[name] == nil })
}

// openObject returns the members of a document, or adds a problem.
func openObject(p *problems, doc []byte) ([]member, bool) {
	v, err := open(doc)
	if err == nil {
		var members []member
		if members, err = v.object(); err == nil {
			return members, true
		}
	}
	p.add("", "%v", err)
	return nil, false
}

// ignorable reports whether an unknown member is marked as safe to ignore.
func ignorable(v value) bool {
	members, err := v.object()
	return err == nil && slices.ContainsFunc(members, func(m member) bool {
		return m.name == "must_understand" && m.value.isFalse()
	})
}

// isVersion adds a problem if a document has another version.
func isVersion(p *problems, m map[string]value, version int64) bool {
	v := m["zarr_format"]
	if v == nil {
		p.add("zarr_format", "is missing")
		return false
	}
	if !v.isNumber(version) {
		p.add("zarr_format", "must be %d in this file, is %s", version, v.shown())
		return false
	}
	return true
}

// isNode adds a problem if a document is not an array, or not a group.
func isNode(p *problems, m map[string]value, kind string) bool {
	if v := m["node_type"]; v == nil || !v.is(kind) {
		got := "missing"
		if v != nil {
			got = v.shown()
		}
		p.add("node_type", "must be %q, is %s", kind, got)
		return false
	}
	return true
}

// readV3 fills in a from m, which has all required members.
func (a *Array) readV3(p *problems, m map[string]value) {
	var err error
	if a.Shape, err = m["shape"].integers(0, MaxEdge-1); err != nil {
		p.add("shape", "%v", err)
	}
	if a.Type, err = dtypeV3(m["data_type"]); err != nil {
		p.add("data_type", "%v", err)
	} else if a.Fill, err = fillV3(m["fill_value"], a.Type); err != nil {
		p.add("fill_value", "%v", err)
	}
	if v, ok := m["storage_transformers"]; ok && !v.isNull() {
		if list, err := v.list(maxCodecs); err != nil || len(list) > 0 {
			p.add("storage_transformers", "are not supported: rewrite the array without them")
		}
	}
	if v, ok := m["attributes"]; ok && !v.isNull() {
		a.Attributes = attributes(p, "attributes", v)
	}
	if v, ok := m["dimension_names"]; ok && !v.isNull() {
		a.Dims = a.names(p, "dimension_names", v)
	}
	a.readKeys(p, m["chunk_key_encoding"])
	dims := -1
	if a.Shape != nil {
		dims = len(a.Shape)
	}
	a.Object = gridV3(p, m["chunk_grid"], dims)
	if a.Object == nil || a.Shape == nil || a.Type.ItemBytes == 0 {
		return
	}
	a.Chunk = a.Object
	a.readCodecs(p, "codecs", m["codecs"])
	a.checkSizes(p, "chunk_grid")
}

// attributes returns a JSON object in which values that JSON doesn't have are strings.
func attributes(p *problems, place string, v value) []byte {
	if v[0] != '{' {
		p.add(place, "must be an object, is %s", v.kind())
		return nil
	}
	return v.strict()
}

// names reads the dimensions' names: strings or null.
func (a *Array) names(p *problems, place string, v value) []string {
	list, err := v.list(MaxDims)
	if err != nil {
		p.add(place, "%v", err)
		return nil
	}
	if a.Shape != nil && len(list) != len(a.Shape) {
		p.add(place, "has %d names, and the array has %d dimensions", len(list), len(a.Shape))
		return nil
	}
	names := make([]string, len(list))
	for i, v := range list {
		if v.isNull() {
			continue
		}
		if names[i], err = v.text(); err == nil {
			err = checkName(names[i])
		}
		if err != nil {
			p.add(fmt.Sprintf("%s[%d]", place, i), "%v", err)
		}
	}
	if !slices.ContainsFunc(names, func(s string) bool { return s != "" }) {
		return nil
	}
	return names
}

// maxNameBytes bounds a dimension's name: it becomes a file name, which may have 255 bytes.
const maxNameBytes = 200

// checkName refuses the name of a dimension that can't be displayed or used as a file name.
func checkName(name string) error {
	if len(name) > maxNameBytes {
		return fmt.Errorf("is a name of %d bytes: at most %d are read: rename it", len(name), maxNameBytes)
	}
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) || r == unicode.ReplacementChar }) {
		return fmt.Errorf("is %q, which has characters that can't be shown: rename it", name)
	}
	return nil
}

// gridV3 returns an object's edges.
func gridV3(p *problems, v value, dims int) []int64 {
	name, members, err := v.extension()
	switch {
	case err != nil:
		p.add("chunk_grid", "%v", err)
		return nil
	case name != "regular":
		p.add("chunk_grid", "grid %q is not supported: rewrite the array in chunks of one shape", name)
		return nil
	}
	c := config(p, "chunk_grid.configuration", members, "chunk_shape")
	if c["chunk_shape"] == nil {
		p.add("chunk_grid.configuration.chunk_shape", "is missing")
		return nil
	}
	return edges(p, "chunk_grid.configuration.chunk_shape", c["chunk_shape"], dims)
}

// readKeys reads the encoding of keys.
func (a *Array) readKeys(p *problems, v value) {
	const place = "chunk_key_encoding"
	name, members, err := v.extension()
	if err != nil {
		p.add(place, "%v", err)
		return
	}
	switch name {
	case "default":
		a.Keys = Keys{Prefixed: true, Separator: '/'}
	case "v2":
		a.Keys = Keys{Separator: '.'}
	default:
		p.add(place, "encoding %q is not supported: lsiofs knows default and v2", name)
		return
	}
	c := config(p, place+".configuration", members, "separator")
	if v, ok := c["separator"]; ok {
		a.Keys.Separator = separator(p, place+".configuration.separator", v)
	}
}

// separator reads a slash or a dot.
func separator(p *problems, place string, v value) byte {
	for _, s := range []string{"/", "."} {
		if v.is(s) {
			return s[0]
		}
	}
	p.add(place, `must be "/" or ".", is %s`, v.shown())
	return '.'
}
