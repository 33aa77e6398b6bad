package parquet

import (
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/rows"
)

// Limits of a schema, besides those of package rows.
const (
	maxLeaves = 1 << 16
	// maxElements bounds the schema elements: a list is two of them and its element.
	maxElements = 2 * rows.MaxNodes
	// maxNesting bounds the nesting of groups, and so levels: a list of package rows nests two.
	maxNesting = 3 * rows.MaxDepth
)

// Repetition types of parquet.thrift.
const (
	required = 0
	optional = 1
	repeated = 2
)

// annotation is a logical type, or the converted type of older writers in its terms. The values are
// the fields of the union LogicalType.
type annotation int16

const (
	logicalNone      annotation = 0
	logicalString    annotation = 1
	logicalMap       annotation = 2
	logicalList      annotation = 3
	logicalEnum      annotation = 4
	logicalDecimal   annotation = 5
	logicalDate      annotation = 6
	logicalTime      annotation = 7
	logicalTimestamp annotation = 8
	logicalInt       annotation = 10
	logicalJSON      annotation = 12
	logicalBSON      annotation = 13
	logicalUUID      annotation = 14
	logicalFloat16   annotation = 15
	// logicalMapEntry and logicalInterval exist as converted types only.
	logicalMapEntry annotation = -1
	logicalInterval annotation = -2
)

// element is a SchemaElement.
type element struct {
	name             string
	phys             physical
	isLeaf           bool
	length           int32
	repetition       int32
	children         int32
	logical          annotation
	converted        int32 // -1: none
	scale, precision int32
	bits             int8
	unsigned         bool
	unit             rows.Unit
	utc              bool
}

func parseElement(t *thrift) element {
	e := element{converted: -1}
	t.fields(func(id int16, kind byte) bool {
		switch id {
		case 1:
			e.phys, e.isLeaf = physical(t.i32(kind)), true
		case 2:
			e.length = t.i32(kind)
		case 3:
			e.repetition = t.i32(kind)
		case 4:
			e.name = string(t.binary(kind))
		case 5:
			e.children = t.i32(kind)
		case 6:
			e.converted = t.i32(kind)
		case 7:
			e.scale = t.i32(kind)
		case 8:
			e.precision = t.i32(kind)
		case 10:
			if t.is(kind, thriftStruct) {
				e.parseLogical(t)
			}
		default:
			return false
		}
		return true
	})
	return e
}

func (e *element) parseLogical(t *thrift) {
	t.fields(func(id int16, kind byte) bool {
		e.logical = annotation(id)
		if kind != thriftStruct {
			return false
		}
		switch e.logical {
		case logicalDecimal:
			t.fields(func(id int16, kind byte) bool {
				switch id {
				case 1:
					e.scale = t.i32(kind)
				case 2:
					e.precision = t.i32(kind)
				default:
					return false
				}
				return true
			})
		case logicalTime, logicalTimestamp:
			t.fields(func(id int16, kind byte) bool {
				switch {
				case id == 1:
					e.utc = t.bool(kind)
				case id == 2 && kind == thriftStruct:
					t.fields(func(id int16, _ byte) bool {
						if id >= 1 && id <= 3 {
							e.unit = rows.Unit(3 * id)
						}
						return false
					})
				default:
					return false
				}
				return true
			})
		case logicalInt:
			t.fields(func(id int16, kind byte) bool {
				switch {
				case id == 1 && kind == thriftByte:
					e.bits = int8(t.byte())
				case id == 2:
					e.unsigned = !t.bool(kind)
				default:
					return false
				}
				return true
			})
		default:
			return false
		}
		return true
	})
}

// convert replaces a converted type by the logical type that it means.
func (e *element) convert() {
	if e.logical != logicalNone || e.converted < 0 {
		return
	}
	integer := func(bits int8, unsigned bool) { e.logical, e.bits, e.unsigned = logicalInt, bits, unsigned }
	moment := func(a annotation, unit rows.Unit) { e.logical, e.unit, e.utc = a, unit, true }
	switch e.converted {
	case 0:
		e.logical = logicalString
	case 1:
		e.logical = logicalMap
	case 2:
		e.logical = logicalMapEntry
	case 3:
		e.logical = logicalList
	case 4:
		e.logical = logicalEnum
	case 5:
		e.logical = logicalDecimal
	case 6:
		e.logical = logicalDate
	case 7:
		moment(logicalTime, rows.Millis)
	case 8:
		moment(logicalTime, rows.Micros)
	case 9:
		moment(logicalTimestamp, rows.Millis)
	case 10:
		moment(logicalTimestamp, rows.Micros)
	case 11, 12, 13, 14:
		integer(8<<(e.converted-11), true)
	case 15, 16, 17, 18:
		integer(8<<(e.converted-15), false)
	case 19:
		e.logical = logicalJSON
	case 20:
		e.logical = logicalBSON
	case 21:
		e.logical = logicalInterval
	default:
		e.logical = logicalInterval - 1
	}
}

// leafType returns the type of a leaf.
func (e *element) leafType() *rows.Type {
	t := &rows.Type{}
	text := e.phys == physBytes
	ok := true
	switch e.logical {
	case logicalNone:
		switch e.phys {
		case physBool:
			t.Kind = rows.Bool
		case physInt32:
			t.Kind, t.Bits = rows.Int, 32
		case physInt64:
			t.Kind, t.Bits = rows.Int, 64
		case physInt96:
			t.Kind, t.Unit = rows.Timestamp, rows.Nanos
		case physFloat:
			t.Kind, t.Bits = rows.Float, 32
		case physDouble:
			t.Kind, t.Bits = rows.Float, 64
		case physBytes:
			t.Kind = rows.Binary
		case physFixed:
			t.Kind, t.Size = rows.Binary, int(e.length)
		}
	case logicalString, logicalEnum, logicalJSON:
		t.Kind, ok = rows.String, text || e.phys == physFixed
	case logicalBSON:
		t.Kind, ok = rows.Binary, text
	case logicalDecimal:
		t.Kind, t.Precision, t.Scale = rows.Decimal, int(e.precision), int(e.scale)
		ok = (e.phys == physInt32 || e.phys == physInt64 || text || e.phys == physFixed) &&
			t.Precision >= 1 && t.Precision <= 308 && t.Scale >= 0 && t.Scale <= 308
	case logicalDate:
		t.Kind, ok = rows.Date, e.phys == physInt32
	case logicalTime:
		t.Kind, t.Unit = rows.Time, e.unit
		ok = e.unit == rows.Millis && e.phys == physInt32 || e.unit > rows.Millis && e.phys == physInt64
	case logicalTimestamp:
		t.Kind, t.Unit, t.UTC = rows.Timestamp, e.unit, e.utc
		ok = e.unit >= rows.Millis && e.phys == physInt64
	case logicalInt:
		t.Kind, t.Bits, t.Unsigned = rows.Int, int(e.bits), e.unsigned
		ok = e.phys == physInt64 && e.bits == 64 || e.phys == physInt32 && (e.bits == 8 || e.bits == 16 || e.bits == 32)
	case logicalUUID:
		t.Kind, ok = rows.UUID, e.phys == physFixed && e.length == 16
	case logicalFloat16:
		t.Kind, t.Bits, ok = rows.Float, 16, e.phys == physFixed && e.length == 2
	default:
		ok = false
	}
	if !ok {
		*t = rows.Type{Kind: rows.Unsupported, Suffix: e.logical.String()}
	}
	return t
}

var annotationNames = map[annotation]string{
	logicalString: "string", logicalMap: "map", logicalList: "list", logicalEnum: "enum", logicalDecimal: "decimal",
	logicalDate: "date", logicalTime: "time", logicalTimestamp: "timestamp", logicalInt: "integer", 11: "unknown",
	logicalJSON: "json", logicalBSON: "bson", logicalUUID: "uuid", logicalFloat16: "float16", 16: "variant",
	17: "geometry", 18: "geography", logicalMapEntry: "map entry", logicalInterval: "interval",
}

// String returns the name of a logical type for messages about types that are not supported.
func (a annotation) String() string {
	if name, ok := annotationNames[a]; ok {
		return name
	}
	return "of a newer version of Parquet"
}

// leafInfo is a leaf of the schema: what a column chunk has the values of.
type leafInfo struct {
	name           string // the names on the way, joined by "."
	phys           physical
	width          int // bytes of a value; 0 if values have different sizes
	maxDef, maxRep uint8
	slotDef        uint8   // the definition level from which on a slot is there, null or not
	elemDefs       []uint8 // of each list that it is in: from which on an element is there
	bigEndian      bool
}

// node is a type of package rows, and where its values are in the levels of its leaves.
type node struct {
	t        *rows.Type
	children []*node // for t.Fields
	depth    uint8   // how many lists it is in
	slotDef  uint8   // from this definition level on a slot is there
	def      uint8   // from this definition level on its value is not null
	elemDef  uint8   // lists and maps: from this definition level on an element is there
	from, to int     // its leaves
}

// tree builds nodes from schema elements.
type tree struct {
	elements []element
	at       int
	leaves   []leafInfo
	path     []string
}

// levels are those at a place of the schema.
type levels struct {
	def, rep, slotDef uint8
	elemDefs          []uint8
}

// element returns the levels of a repeated field.
func (l levels) element() levels {
	elemDefs := append(l.elemDefs[:len(l.elemDefs):len(l.elemDefs)], l.def+1)
	return levels{l.def + 1, l.rep + 1, l.def + 1, elemDefs}
}

// buildSchema returns the columns, and the leaves in the order of column chunks.
func buildSchema(elements []element) ([]*node, []string, []leafInfo, error) {
	if len(elements) == 0 || elements[0].isLeaf {
		return nil, nil, nil, damaged("the schema has no root")
	}
	b := &tree{elements: elements, at: 1}
	var columns []*node
	var names []string
	for range elements[0].children {
		e, err := b.peek()
		if err != nil {
			return nil, nil, nil, err
		}
		names = append(names, e.name)
		n, err := b.field(levels{}, 1)
		if err != nil {
			return nil, nil, nil, err
		}
		columns = append(columns, n)
	}
	if b.at != len(elements) {
		return nil, nil, nil, damaged("the schema has %d elements, of which %d belong to a column", len(elements), b.at)
	}
	return columns, names, b.leaves, nil
}

func (b *tree) peek() (*element, error) {
	if b.at >= len(b.elements) {
		return nil, damaged("the schema ends early")
	}
	return &b.elements[b.at], nil
}

// field builds the next field with its repetition: a list if it is repeated.
func (b *tree) field(l levels, nesting int) (*node, error) {
	e, err := b.peek()
	if err != nil {
		return nil, err
	}
	switch e.repetition {
	case optional:
		n, err := b.value(levels{l.def + 1, l.rep, l.slotDef, l.elemDefs}, nesting)
		if err == nil {
			n.t.Nullable = true
		}
		return n, err
	case repeated:
		from := len(b.leaves)
		inner := l.element()
		elem, err := b.value(inner, nesting)
		if err != nil {
			return nil, err
		}
		return &node{
			t:        &rows.Type{Kind: rows.List, Fields: []rows.Field{{Name: "element", Type: elem.t}}},
			children: []*node{elem}, depth: l.rep, slotDef: l.slotDef, def: l.def, elemDef: inner.def,
			from: from, to: len(b.leaves),
		}, nil
	case required:
		return b.value(l, nesting)
	}
	return nil, damaged("the schema has the unknown repetition %d", e.repetition)
}

// value builds the next element without its repetition, which is in l.
func (b *tree) value(l levels, nesting int) (*node, error) {
	e, err := b.peek()
	if err != nil {
		return nil, err
	}
	if nesting > maxNesting {
		return nil, refused("", "the schema is nested more than %d levels deep", maxNesting)
	}
	b.at++
	b.path = append(b.path, e.name)
	defer func() { b.path = b.path[:len(b.path)-1] }()
	n := &node{depth: l.rep, slotDef: l.slotDef, def: l.def, from: len(b.leaves)}
	if e.isLeaf {
		if e.children > 0 || e.phys < 0 || int(e.phys) >= len(physicalNames) || e.phys == physFixed && e.length <= 0 {
			return nil, damaged("the schema has an impossible column %q", e.name)
		}
		if len(b.leaves) >= maxLeaves {
			return nil, refused("", "the schema has more than %d columns and fields", maxLeaves)
		}
		n.t = e.leafType()
		name := strings.Join(b.path, ".")
		if name == "" {
			name = `""`
		}
		b.leaves = append(b.leaves, leafInfo{
			name: name, phys: e.phys, width: e.phys.width(int(e.length)),
			maxDef: l.def, maxRep: l.rep, slotDef: l.slotDef, elemDefs: l.elemDefs,
			bigEndian: e.phys == physBytes || e.phys == physFixed,
		})
		n.to = len(b.leaves)
		return n, nil
	}
	switch e.logical {
	case logicalList:
		err = b.list(n, e, l, nesting)
	case logicalMap, logicalMapEntry:
		err = b.mapping(n, e, l, nesting)
	default:
		err = b.group(n, e, l, nesting)
	}
	n.to = len(b.leaves)
	return n, err
}

// group builds a struct.
func (b *tree) group(n *node, e *element, l levels, nesting int) error {
	n.t = &rows.Type{Kind: rows.Struct}
	for range e.children {
		child, err := b.peek()
		if err != nil {
			return err
		}
		c, err := b.field(l, nesting+1)
		if err != nil {
			return err
		}
		n.children = append(n.children, c)
		n.t.Fields = append(n.t.Fields, rows.Field{Name: child.name, Type: c.t})
	}
	switch {
	case e.logical != logicalNone && e.logical != logicalList && e.logical != logicalMap && e.logical != logicalMapEntry:
		n.t = &rows.Type{Kind: rows.Unsupported, Suffix: e.logical.String()}
	case e.children <= 0:
		n.t = &rows.Type{Kind: rows.Unsupported, Suffix: "struct without fields"}
	}
	return nil
}

// list builds a group that is annotated as a list, with the rules for backward compatibility of
// LogicalTypes.md. A group that has not one repeated field is a struct.
func (b *tree) list(n *node, e *element, l levels, nesting int) error {
	child, err := b.peek()
	if err != nil {
		return err
	}
	if e.children != 1 || child.repetition != repeated {
		return b.group(n, e, l, nesting)
	}
	inner := l.element()
	n.elemDef = inner.def
	isElement := child.isLeaf || child.children != 1 || child.name == "array" || child.name == e.name+"_tuple"
	if !isElement {
		if b.at+1 >= len(b.elements) {
			return damaged("the schema ends early")
		}
		isElement = b.elements[b.at+1].repetition == repeated
	}
	var elem *node
	if isElement {
		elem, err = b.value(inner, nesting+1)
	} else {
		b.path = append(b.path, child.name)
		b.at++
		elem, err = b.field(inner, nesting+2)
		b.path = b.path[:len(b.path)-1]
	}
	if err != nil {
		return err
	}
	n.t = &rows.Type{Kind: rows.List, Fields: []rows.Field{{Name: "element", Type: elem.t}}}
	n.children = []*node{elem}
	return nil
}

// mapping builds a group that is annotated as a map. Without values it is a list of its keys; with
// another shape, a struct.
func (b *tree) mapping(n *node, e *element, l levels, nesting int) error {
	entry, err := b.peek()
	if err != nil {
		return err
	}
	if e.children != 1 || entry.repetition != repeated || entry.isLeaf || entry.children < 1 || entry.children > 2 {
		return b.group(n, e, l, nesting)
	}
	inner := l.element()
	n.elemDef = inner.def
	n.t = &rows.Type{Kind: rows.Map}
	if entry.children == 1 {
		n.t.Kind = rows.List
	}
	b.path = append(b.path, entry.name)
	b.at++
	for range entry.children {
		child, err := b.peek()
		if err != nil {
			return err
		}
		c, err := b.field(inner, nesting+2)
		if err != nil {
			return err
		}
		n.children = append(n.children, c)
		n.t.Fields = append(n.t.Fields, rows.Field{Name: child.name, Type: c.t})
	}
	b.path = b.path[:len(b.path)-1]
	return nil
}
