package zarr

import (
	"fmt"
	"slices"
	"strings"
)

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
