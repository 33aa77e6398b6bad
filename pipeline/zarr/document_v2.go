package zarr

import (
	"fmt"
	"slices"
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
