package zarr

import (
	"fmt"
	"slices"
	"strings"
)

// ParseV2 reads the .zarray of an array, and its .zattrs, which may be nil. path is the path of the
// .zarray for errors, which are *Error.
func ParseV2(path string, zarray, zattrs []byte) (*Array, error) {
	p := &problems{document: path}
	members, ok := openObject(p, zarray)
	if !ok {
		return nil, p.err()
	}
	m := map[string]value{}
	for _, one := range members {
		m[one.name] = one.value
	}
	if !isVersion(p, m, 2) {
		return nil, p.err()
	}
	missing := false
	for _, name := range []string{"shape", "chunks", "dtype", "compressor", "fill_value", "order", "filters"} {
		if m[name] == nil {
			p.add(name, "is missing")
			missing = true
		}
	}
	if missing {
		return nil, p.err()
	}
	a := &Array{}
	a.readV2(p, m)
	if zattrs != nil {
		a.readAttributesV2(p, zattrs, !m["fill_value"].isNull())
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	return a, nil
}

// readV2 fills in a from m, which has all required members.
func (a *Array) readV2(p *problems, m map[string]value) {
	var err error
	if a.Shape, err = m["shape"].integers(0, MaxEdge-1); err != nil {
		p.add("shape", "%v", err)
	}
	if a.Type, err = dtypeV2(m["dtype"], 0); err != nil {
		p.add("dtype", "%v", err)
	} else if a.Fill, err = fillV2(m["fill_value"], a.Type); err != nil {
		p.add("fill_value", "%v", err)
	}
	a.Keys.Separator = '.'
	if v, ok := m["dimension_separator"]; ok && !v.isNull() {
		a.Keys.Separator = separator(p, "dimension_separator", v)
	}
	switch v := m["order"]; {
	case v.is("C"):
	case v.is("F"):
		a.Chain.Order = make([]int, len(a.Shape))
		for i := range a.Chain.Order {
			a.Chain.Order[i] = len(a.Shape) - 1 - i
		}
	default:
		p.add("order", `must be "C" or "F", is %s`, v.shown())
	}
	a.readFiltersV2(p, m)
	if a.Object = edges(p, "chunks", m["chunks"], -1); a.Object == nil || a.Shape == nil || a.Type.ItemBytes == 0 {
		return
	}
	a.Chunk = a.Object
	a.Chain.checkItems(p, "filters", a.Type.ItemBytes)
	a.checkSizes(p, "chunks")
}

// readFiltersV2 reads how chunks are decoded: first the compressor, then the filters, last to
// first.
func (a *Array) readFiltersV2(p *problems, m map[string]value) {
	if v := m["compressor"]; !v.isNull() {
		a.addFilterV2(p, "compressor", v)
	}
	v := m["filters"]
	if v.isNull() {
		return
	}
	list, err := v.list(maxCodecs)
	if err != nil {
		p.add("filters", "%v", err)
		return
	}
	for i, v := range slices.Backward(list) {
		a.addFilterV2(p, fmt.Sprintf("filters[%d]", i), v)
	}
}

// addFilterV2 adds a codec.
func (a *Array) addFilterV2(p *problems, place string, v value) {
	members, err := v.object()
	if err != nil {
		p.add(place, "%v", err)
		return
	}
	i := slices.IndexFunc(members, func(m member) bool { return m.name == "id" })
	if i < 0 {
		p.add(place+".id", "is missing")
		return
	}
	id, err := members[i].value.text()
	if err != nil {
		p.add(place+".id", "%v", err)
		return
	}
	if s, ok := filter(p, place, id, members, nil); ok {
		a.Chain.Steps = append(a.Chain.Steps, s)
	}
}

// readAttributesV2 reads .zattrs, where xarray puts the dimensions' names. filled means that the
// array has a fill value.
func (a *Array) readAttributesV2(p *problems, zattrs []byte, filled bool) {
	const place = ".zattrs"
	v, err := open(zattrs)
	if err != nil {
		p.add(place, "%v", err)
		return
	}
	members, err := v.objectOf(maxAttributes)
	if err != nil {
		p.add(place, "%v", err)
		return
	}
	a.Attributes = attributes(p, place, v)
	for _, m := range members {
		if m.name == "_ARRAY_DIMENSIONS" {
			a.Dims = a.names(p, place+"._ARRAY_DIMENSIONS", m.value)
			a.FillIsMissing = filled
		}
	}
}

// Group is the content of a group's metadata document.
type Group struct {
	// Attributes is like an Array's.
	Attributes []byte
	// Nodes are the documents of the nodes below the group, in order, if the document has them
	// (consolidated metadata). If the documents themselves can be listed, those are used instead.
	Nodes []Node
}

// Node is a document within another.
type Node struct {
	// Path is relative to the group, such as "data/temperature". It has no empty, "." or ".."
	// parts.
	Path string
	// Name is the document's file name, such as "zarr.json" or ".zarray".
	Name string
	// Document is its JSON.
	Document []byte
}

// KindV3 reports whether a zarr.json describes an array; otherwise it describes a group.
func KindV3(path string, doc []byte) (isArray bool, err error) {
	p := &problems{document: path}
	members, ok := openObject(p, doc)
	if !ok {
		return false, p.err()
	}
	for _, m := range members {
		if m.name != "node_type" {
			continue
		}
		switch {
		case m.value.is("array"):
			return true, nil
		case m.value.is("group"):
			return false, nil
		}
		p.add(m.name, `must be "array" or "group", is %s`, m.value.shown())
		return false, p.err()
	}
	if slices.ContainsFunc(members, func(m member) bool { return m.name == "metadata_encoding" }) {
		p.add("", "is of a draft of version 3, which was changed before it was final: copy it with the zarr-python that wrote it, to version 2")
	} else {
		p.add("node_type", "is missing")
	}
	return false, p.err()
}

// ParseV3Group reads the zarr.json of a group.
func ParseV3Group(path string, doc []byte) (*Group, error) {
	p := &problems{document: path}
	members, ok := openObject(p, doc)
	if !ok {
		return nil, p.err()
	}
	m := map[string]value{}
	for _, one := range members {
		m[one.name] = one.value
	}
	if !isVersion(p, m, 3) || !isNode(p, m, "group") {
		return nil, p.err()
	}
	g := &Group{}
	for _, one := range members {
		switch v := one.value; one.name {
		case "zarr_format", "node_type":
		case "attributes":
			if !v.isNull() {
				g.Attributes = attributes(p, one.name, v)
			}
		case "consolidated_metadata":
			if !v.isNull() {
				g.readConsolidated(p, v)
			}
		default:
			if !ignorable(v) {
				p.add(one.name, "is unknown, and must be understood: this group needs a newer lsiofs")
			}
		}
	}
	return g, p.err()
}

// readConsolidated reads the documents of all nodes from a v3 group's document.
func (g *Group) readConsolidated(p *problems, v value) {
	const place = "consolidated_metadata"
	members, err := v.object()
	if err != nil {
		p.add(place, "%v", err)
		return
	}
	c := config(p, place, members, "kind", "must_understand", "metadata")
	if c["kind"] == nil || !c["kind"].is("inline") || c["metadata"] == nil {
		p.add(place, `must have the kind "inline", and metadata`)
		return
	}
	nodes, err := c["metadata"].objectOf(maxNodes)
	if err != nil {
		p.add(place+".metadata", "%v", err)
	}
	for _, n := range nodes {
		if err := CheckPath(n.name); err != nil {
			p.add(place+".metadata", "%v", err)
			continue
		}
		g.Nodes = append(g.Nodes, Node{n.name, "zarr.json", n.value})
	}
}

// ParseV2Group reads a .zgroup, and its .zattrs, which may be nil.
func ParseV2Group(path string, zgroup, zattrs []byte) (*Group, error) {
	p := &problems{document: path}
	members, ok := openObject(p, zgroup)
	if !ok {
		return nil, p.err()
	}
	m := map[string]value{}
	for _, one := range members {
		m[one.name] = one.value
	}
	isVersion(p, m, 2)
	g := &Group{}
	if zattrs != nil {
		if v, err := open(zattrs); err != nil {
			p.add(".zattrs", "%v", err)
		} else {
			g.Attributes = attributes(p, ".zattrs", v)
		}
	}
	return g, p.err()
}

// ParseV2Consolidated reads a .zmetadata: the documents of a hierarchy, with their paths.
func ParseV2Consolidated(path string, doc []byte) ([]Node, error) {
	p := &problems{document: path}
	members, ok := openObject(p, doc)
	if !ok {
		return nil, p.err()
	}
	var list []Node
	seen := false
	for _, m := range members {
		switch m.name {
		case "zarr_consolidated_format":
			if !m.value.isNumber(1) {
				p.add(m.name, "must be 1, is %s", m.value.shown())
			}
		case "metadata":
			seen = true
			nodes, err := m.value.objectOf(maxNodes)
			if err != nil {
				p.add(m.name, "%v", err)
			}
			for _, n := range nodes {
				at := strings.LastIndexByte(n.name, '/')
				node := Node{n.name[:max(at, 0)], n.name[at+1:], n.value}
				if node.Path != "" || at == 0 {
					if err := CheckPath(node.Path); err != nil {
						p.add(m.name, "%v", err)
						continue
					}
				}
				switch node.Name {
				case ".zarray", ".zgroup", ".zattrs":
					list = append(list, node)
				}
			}
		}
	}
	if !seen {
		p.add("metadata", "is missing")
	}
	return list, p.err()
}

// CheckPath refuses a path that is not valid or that leaves the hierarchy: a path is names joined
// by slashes, and "." and ".." are not names.
func CheckPath(path string) error {
	for name := range strings.SplitSeq(path, "/") {
		if name == "" || name == "." || name == ".." || strings.ContainsRune(name, 0) {
			return fmt.Errorf("%q is not a path of an array or group: %q is not a name", path, name)
		}
	}
	return nil
}
