package zarr

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
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

// Grid is a grid of equal boxes over an array: its objects, or its chunks.
type Grid struct {
	// Edges are the edges of a box, in elements.
	Edges []int64
	// Counts are the numbers of boxes along each dimension. The last ones may extend past the
	// array's edge.
	Counts []int64
}

// Objects returns the grid of a's objects.
func (a *Array) Objects() Grid { return Grid{a.Object, gridCounts(a.Shape, a.Object)} }

// Chunks returns the grid of a's chunks. Only chunks that have elements of the array are counted.
func (a *Array) Chunks() Grid { return Grid{a.Chunk, gridCounts(a.Shape, a.Chunk)} }

// Total returns the number of boxes.
func (g Grid) Total() int64 { return product(g.Counts) }

// Number returns the index of a box in C order.
func (g Grid) Number(place []int64) int64 { return number64(place, g.Counts) }

// Place is the inverse of Number: it writes the place of a box into place.
func (g Grid) Place(place []int64, number int64) { place64(place, number, g.Counts) }

func number64(place, counts []int64) int64 {
	n := int64(0)
	for d, i := range place {
		n = n*counts[d] + i
	}
	return n
}

func place64(place []int64, number int64, counts []int64) {
	for d := len(counts) - 1; d >= 0; d-- {
		place[d] = number % counts[d]
		number /= counts[d]
	}
}

// ObjectOf writes the place of the object that holds a chunk into object; chunk is a place in the
// grid of chunks.
func (a *Array) ObjectOf(object, chunk []int64) {
	for d := range chunk {
		object[d] = chunk[d] / (a.Object[d] / a.Chunk[d])
	}
}

// EntryOf returns the number of the entry, in an index of the level, that leads to a chunk. Unless
// the level is the last, the entry is that of an object of the next level.
func (a *Array) EntryOf(level int, chunk []int64) int64 {
	l := a.Levels[level]
	n := int64(0)
	for d := range chunk {
		inObject := chunk[d] % (l.Object[d] / a.Chunk[d])
		n = n*(l.Object[d]/l.Chunk[d]) + inObject/(l.Chunk[d]/a.Chunk[d])
	}
	return n
}

// ShardOf returns the number of the shard of the level that holds a chunk, in C order of all shards
// of that level in all objects.
func (a *Array) ShardOf(level int, chunk []int64) int64 {
	l := a.Levels[level]
	n := int64(0)
	for d := range chunk {
		n = n*((a.Shape[d]+l.Object[d]-1)/l.Object[d]) + chunk[d]/(l.Object[d]/a.Chunk[d])
	}
	return n
}

// ShapeText formats a shape for people: "time=512, 1024".
func ShapeText(shape []int64, dims []string) string {
	list := make([]string, len(shape))
	for i, n := range shape {
		list[i] = fmt.Sprint(n)
		if dims != nil && dims[i] != "" {
			list[i] = fmt.Sprintf("%s=%d", dims[i], n)
		}
	}
	return strings.Join(list, ", ")
}

// Keys maps an object's place in the array's grid of objects to its path relative to the array,
// such as "c/0/13/5" or "0.13.5".
type Keys struct {
	// Prefixed is v3's default: paths begin with c.
	Prefixed bool
	// Separator is '/' or '.'.
	Separator byte
}

// Append appends the path of the object at place to dst.
func (k Keys) Append(dst []byte, place []int64) []byte {
	if k.Prefixed {
		dst = append(dst, 'c')
	} else if len(place) == 0 {
		return append(dst, '0')
	}
	for i, n := range place {
		if i > 0 || k.Prefixed {
			dst = append(dst, k.Separator)
		}
		dst = strconv.AppendInt(dst, n, 10)
	}
	return dst
}

// Parse writes the place of the object with a path into place, and reports whether the path is that
// of an object in a grid of counts. Every object has only one path: "00.1" is not one. place and
// counts have an entry for each dimension of the array.
func (k Keys) Parse(place []int64, path string, counts []int64) bool {
	if len(counts) == 0 {
		return k.Prefixed && path == "c" || !k.Prefixed && path == "0"
	}
	if k.Prefixed {
		if len(path) < 2 || path[0] != 'c' || path[1] != k.Separator {
			return false
		}
		path = path[2:]
	}
	for d := range counts {
		n, digits := int64(0), 0
		for digits < len(path) && path[digits] >= '0' && path[digits] <= '9' {
			if n = n*10 + int64(path[digits]-'0'); n >= counts[d] || digits > 0 && path[0] == '0' {
				return false
			}
			digits++
		}
		if digits == 0 || n >= counts[d] {
			return false
		}
		place[d], path = n, path[digits:]
		if d == len(counts)-1 {
			return path == ""
		}
		if path == "" || path[0] != k.Separator {
			return false
		}
		path = path[1:]
	}
	return false
}

// Limits of documents and arrays. Anything beyond a limit is refused.
const (
	// MaxDocumentBytes bounds a metadata document. Consolidated metadata of large hierarchies has a
	// few MiB.
	MaxDocumentBytes = 16 << 20
	// MaxDepth bounds the nesting of a document.
	MaxDepth = 64
	// MaxDims bounds the dimensions of an array. NumPy 1 has the same limit.
	MaxDims = 32
	// MaxEdge bounds each edge of an array, chunk and object. The product of two such numbers fits
	// in 96 bits.
	MaxEdge = 1 << 48
	// MaxItemBytes bounds an element.
	MaxItemBytes = 1 << 20
	// MaxChunkBytes bounds a decoded chunk. A mount's own bound is much lower, and is checked
	// there.
	MaxChunkBytes = 1 << 40
	// MaxObjects bounds the objects of an array, and its chunks.
	MaxObjects = 1 << 60
	// MaxIndexEntries bounds the chunks of an object of a sharded array, including those of nested
	// shards; an index of that many takes 256 MiB.
	MaxIndexEntries = 1 << 24
	// MaxLevels bounds the nesting of sharding.
	MaxLevels = 4
	// maxCodecs bounds a chain of codecs.
	maxCodecs = 16
)

// Problem is one thing about a document that is wrong or not supported.
type Problem struct {
	// Member is the location, such as "codecs[1].configuration.order". It is empty if the document
	// as a whole is wrong.
	Member string
	// Text is what is wrong and what to do.
	Text string
}

// Error lists everything that is wrong with a document.
type Error struct {
	// Document is the path that was passed to the parser.
	Document string
	// Problems has at least one entry.
	Problems []Problem
}

// Error returns all problems on one line.
func (e *Error) Error() string {
	texts := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		texts[i] = p.Text
		if p.Member != "" {
			texts[i] = p.Member + ": " + p.Text
		}
	}
	return "zarr: " + e.Document + ": " + strings.Join(texts, "; ")
}

// problems collects what is wrong with a document.
type problems struct {
	document string
	list     []Problem
}

// add adds a problem. After the first 20 further ones are dropped.
func (p *problems) add(member, format string, args ...any) {
	const enough = 20
	if len(p.list) < enough {
		p.list = append(p.list, Problem{shortened(member), shortened(fmt.Sprintf(format, args...))})
	}
}

// shortened shortens a message that quotes a long text from a document. The end, which has the
// advice, stays.
func shortened(s string) string {
	const begin, end = 200, 150
	if len(s) <= begin+end {
		return s
	}
	return strings.ToValidUTF8(s[:begin], "") + " … " + strings.ToValidUTF8(s[len(s)-end:], "")
}

// err returns an *Error, or nil if there was no problem.
func (p *problems) err() error {
	if len(p.list) == 0 {
		return nil
	}
	return &Error{p.document, p.list}
}
