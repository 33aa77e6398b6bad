package zarr

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
)

// Array is the content of an array's metadata document. It is immutable once parsed.
type Array struct {
	// Shape is the array's extent, in elements. It is empty for an array of a single element.
	Shape []int64
	// Dims are the dimensions' names, or nil if none has a name. A dimension without a name is "".
	Dims []string
	// Type is the type of elements as they are stored.
	Type Dtype
	// Fill is the element that absent chunks consist of, little-endian.
	Fill []byte
	// FillIsMissing means that Fill marks missing values. That is how xarray writes version 2: if
	// the document has dimension names, fill_value is CF's _FillValue.
	FillIsMissing bool
	// Object and Chunk are the edges of an object and of a chunk. Without sharding they are equal.
	Object, Chunk []int64
	// Levels describes how chunks are arranged in an object, outermost first; it is empty if an
	// object is one chunk. The chunks of a level are the objects of the next.
	Levels []Level
	// Keys maps an object's place to its path.
	Keys Keys
	// Chain describes how a chunk is decoded.
	Chain Chain
	// Attributes is the JSON object of the array's attributes, or nil. Numbers that JSON doesn't
	// have are strings in it.
	Attributes []byte
}

// Level is one level of sharding: an object (or a chunk of the level above) that holds chunks and
// an index of them.
type Level struct {
	// Object and Chunk are edges; each edge of Chunk divides that of Object.
	Object, Chunk []int64
	// AtStart means that the index is at the beginning of the object, not at its end.
	AtStart bool
	// Big means that the index's numbers are big-endian, Checksum that a crc32c follows them.
	Big, Checksum bool
}

// Entries returns the number of chunks in the index, including those beyond the array's edge.
func (l Level) Entries() int64 { return product(l.counts()) }

// counts returns the number of chunks along each dimension.
func (l Level) counts() []int64 {
	n := make([]int64, len(l.Object))
	for i := range n {
		n[i] = l.Object[i] / l.Chunk[i]
	}
	return n
}

// ChunkBytes returns the size of a decoded chunk. All chunks have the same size, including those
// that extend past the array's edge.
func (a *Array) ChunkBytes() int64 { return product(a.Chunk) * int64(a.Type.ItemBytes) }

// product multiplies numbers that parsing has checked not to overflow.
func product(list []int64) int64 {
	p := int64(1)
	for _, n := range list {
		p *= n
	}
	return p
}

// productUpTo returns the product of list, or false if it exceeds limit.
func productUpTo(limit uint64, list ...int64) (uint64, bool) {
	if slices.Contains(list, 0) {
		return 0, true
	}
	p := uint64(1)
	for _, n := range list {
		high, low := bits.Mul64(p, uint64(n))
		if n < 0 || high != 0 || low > limit {
			return 0, false
		}
		p = low
	}
	return p, true
}

// checkSizes reports edges of a that are too large. It needs Shape, Object, Chunk and Type.
func (a *Array) checkSizes(p *problems, grid string) {
	if len(a.Object) != len(a.Shape) {
		p.add(grid, "has %d dimensions, and shape has %d", len(a.Object), len(a.Shape))
		return
	}
	if _, ok := productUpTo(MaxChunkBytes, append(slices.Clone(a.Chunk), int64(a.Type.ItemBytes))...); !ok {
		p.add(grid, "a chunk has more than %d bytes: rewrite the array in smaller chunks", int64(MaxChunkBytes))
	}
	if _, ok := productUpTo(MaxObjects, gridCounts(a.Shape, a.Chunk)...); !ok {
		p.add("shape", "the array has more than %d chunks: rewrite it in larger ones", uint64(MaxObjects))
	}
}

// gridCounts returns how many boxes with these edges cover shape, along each dimension.
func gridCounts(shape, edges []int64) []int64 {
	n := make([]int64, len(shape))
	for i := range n {
		n[i] = (shape[i] + edges[i] - 1) / edges[i]
	}
	return n
}

// edges reads a list of edges of at least 1.
func edges(p *problems, name string, v value, dims int) []int64 {
	list, err := v.integers(1, MaxEdge-1)
	if err != nil {
		p.add(name, "%v", err)
		return nil
	}
	if dims >= 0 && len(list) != dims {
		p.add(name, "has %d dimensions, and the array has %d", len(list), dims)
		return nil
	}
	return list
}

// config returns the members of an object by name, and reports unknown ones.
func config(p *problems, place string, members []member, known ...string) map[string]value {
	byName := map[string]value{}
	for _, m := range members {
		if !slices.Contains(known, m.name) {
			p.add(join(place, m.name), "is unknown to lsiofs, which can't tell what it changes")
		}
		byName[m.name] = m.value
	}
	return byName
}

// join returns the path of a member in a document.
func join(place, name string) string {
	if place == "" {
		return name
	}
	return place + "." + name
}

// extension reads what v3 uses for every choice: a name, or an object with a name and a
// configuration.
func (v value) extension() (name string, configuration []member, err error) {
	if v[0] == '"' {
		name, err = v.text()
		return name, nil, err
	}
	members, err := v.object()
	if err != nil {
		return "", nil, fmt.Errorf("%w, or a name", err)
	}
	for _, m := range members {
		switch m.name {
		case "name":
			name, err = m.value.text()
		case "configuration":
			if !m.value.isNull() {
				configuration, err = m.value.object()
			}
		case "must_understand":
		default:
			err = fmt.Errorf("is unknown to lsiofs")
		}
		if err != nil {
			return "", nil, fmt.Errorf("%s %w", m.name, err)
		}
	}
	if name == "" {
		return "", nil, fmt.Errorf("has no name")
	}
	return name, configuration, nil
}

// Dimension returns the index of the dimension with a name, the first if there are several. A
// dimension without a name can be given by its index as text. It returns -1 if there is none.
func (a *Array) Dimension(name string) int {
	if i := slices.Index(a.Dims, name); i >= 0 && name != "" {
		return i
	}
	i, err := strconv.Atoi(name)
	if err != nil || i < 0 || i >= len(a.Shape) || a.Dims != nil && a.Dims[i] != "" {
		return -1
	}
	return i
}
