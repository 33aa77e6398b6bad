package rows

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Kind is the kind of a type.
type Kind uint8

// The kinds. Number, JSON and NDArray occur in MDS only.
const (
	Bool        Kind = iota + 1
	Int              // Bits 8, 16, 32, 64; Unsigned
	Float            // Bits 16, 32, 64
	String           // UTF-8
	Binary           // Size, if all values have the same; Suffix, if the format defines what they are
	UUID             // 16 bytes
	Decimal          // Precision, Scale
	Date             // days since 1970-01-01
	Time             // Unit, since midnight
	Timestamp        // Unit, since 1970-01-01; UTC
	List             // Fields[0] is the element
	Map              // Fields[0] is the key, Fields[1] the value
	Struct           // Fields
	Number           // text, presented as it is if it is a JSON number, else as a string
	JSON             // text, presented as it is; it must be JSON without bytes below 0x20
	NDArray          // an array of Fields[0], bool, int or float, whose shape is part of each value
	Unsupported      // Suffix is what it is; it can't be selected
)

// Unit is the unit of times and timestamps.
type Unit uint8

// The units. Their values are the digits after the point of a second.
const (
	Seconds Unit = 0
	Millis  Unit = 3
	Micros  Unit = 6
	Nanos   Unit = 9
)

// Type is the type of a column, a field or an element. It must not be changed while it is in use.
type Type struct {
	Kind             Kind
	Bits             int
	Unsigned         bool
	Size             int
	Suffix           string
	Precision, Scale int
	Unit             Unit
	UTC              bool
	Nullable         bool // plays no part in comparisons
	Fields           []Field
}

// Field is a column of a schema, or a part of a nested type. The names of a list's element and of a
// map's key and value are not used.
type Field struct {
	Name string
	Type *Type
}

// Schema is the columns of a shard, in its order.
type Schema []Field

// Limits of a schema.
const (
	// MaxDepth bounds the nesting of types, and so the recursion of all that walks over values.
	MaxDepth = 64
	// MaxNodes bounds the columns, fields and elements.
	MaxNodes = 1 << 17
	// maxDigits bounds the precision and the scale of decimals. Arrow's widest has 76.
	maxDigits = 308
)

// Check returns why a schema is not accepted: two columns or fields of one name, names that are not
// UTF-8, nesting beyond MaxDepth, or types with impossible parameters. The error is a *RefusedError.
func (s Schema) Check() error {
	nodes := 0
	return checkFields(s, "", 1, &nodes)
}

func checkFields(fields []Field, path string, depth int, nodes *int) error {
	if depth > MaxDepth {
		return refused(path, "its type is nested more than %d levels deep", MaxDepth)
	}
	seen := make(map[string]bool, len(fields))
	for _, f := range fields {
		if *nodes++; *nodes > MaxNodes {
			return refused("", "the schema has more than %d columns and fields", MaxNodes)
		}
		if !utf8.ValidString(f.Name) {
			return refused(path, "the name %q is not UTF-8", f.Name)
		}
		if seen[f.Name] {
			if path == "" {
				return refused("", "two columns are named %s: rename one of them in the files", quoted(f.Name))
			}
			return refused(path, "two fields are named %s: rename one of them in the files", quoted(f.Name))
		}
		seen[f.Name] = true
		name := f.Name
		if path != "" {
			name = path + "." + name
		}
		if err := f.Type.check(name, depth, nodes); err != nil {
			return err
		}
	}
	return nil
}

func (t *Type) check(path string, depth int, nodes *int) error {
	bad := func(ok bool) error {
		if !ok {
			return refused(path, "its type %s is not supported", t)
		}
		return nil
	}
	switch t.Kind {
	case Int:
		return bad(t.Bits == 8 || t.Bits == 16 || t.Bits == 32 || t.Bits == 64)
	case Float:
		return bad(t.Bits == 16 || t.Bits == 32 || t.Bits == 64)
	case Decimal:
		return bad(t.Precision >= 1 && t.Precision <= maxDigits && t.Scale >= 0 && t.Scale <= maxDigits)
	case Time, Timestamp:
		return bad(t.Unit == Seconds || t.Unit == Millis || t.Unit == Micros || t.Unit == Nanos)
	case List, Map:
		want := 1
		if t.Kind == Map {
			want = 2
		}
		if err := bad(len(t.Fields) == want); err != nil {
			return err
		}
		parts := [...]Field{{"element", nil}, {"key", nil}, {"value", nil}}
		names := parts[:1]
		if t.Kind == Map {
			names = parts[1:]
		}
		for i := range names {
			names[i].Type = t.Fields[i].Type
		}
		return checkFields(names, path, depth+1, nodes)
	case Struct:
		return checkFields(t.Fields, path, depth+1, nodes)
	case NDArray:
		return bad(len(t.Fields) == 1 && (t.Fields[0].Type.Kind == Bool || t.Fields[0].Type.Kind == Int || t.Fields[0].Type.Kind == Float))
	case Bool, String, Binary, UUID, Date, Number, JSON, Unsupported:
		return nil
	}
	return bad(false)
}

// String returns the canonical text of a schema: "id: int64, meta: struct<lang: string>". Two
// schemas have the same text if their columns have the same names and types in the same order,
// required or not.
func (s Schema) String() string { return string(appendFields(nil, s)) }

// String returns the canonical text of a type: "list<int32>".
func (t *Type) String() string { return string(t.appendText(nil)) }

func appendFields(b []byte, fields []Field) []byte {
	for i, f := range fields {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(b, quoted(f.Name)...)
		b = append(b, ": "...)
		b = f.Type.appendText(b)
	}
	return b
}

func (t *Type) appendText(b []byte) []byte {
	switch t.Kind {
	case Bool:
		return append(b, "bool"...)
	case Int:
		if t.Unsigned {
			b = append(b, 'u')
		}
		return strconv.AppendInt(append(b, "int"...), int64(t.Bits), 10)
	case Float:
		return strconv.AppendInt(append(b, "float"...), int64(t.Bits), 10)
	case String:
		return append(b, "string"...)
	case Binary:
		b = append(b, "binary"...)
		if t.Size > 0 {
			b = fmt.Appendf(b, "(%d)", t.Size)
		}
		if t.Suffix != "" {
			b = fmt.Appendf(b, "(%s)", t.Suffix)
		}
		return b
	case UUID:
		return append(b, "uuid"...)
	case Decimal:
		return fmt.Appendf(b, "decimal(%d, %d)", t.Precision, t.Scale)
	case Date:
		return append(b, "date"...)
	case Time, Timestamp:
		name := "time"
		if t.Kind == Timestamp {
			name = "timestamp"
		}
		b = append(append(b, name...), '(')
		b = append(b, map[Unit]string{Seconds: "s", Millis: "ms", Micros: "us", Nanos: "ns"}[t.Unit]...)
		if t.Kind == Timestamp && t.UTC {
			b = append(b, ", UTC"...)
		}
		return append(b, ')')
	case List, Map, NDArray:
		b = append(b, map[Kind]string{List: "list<", Map: "map<", NDArray: "ndarray<"}[t.Kind]...)
		for i, f := range t.Fields {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = f.Type.appendText(b)
		}
		return append(b, '>')
	case Struct:
		return append(appendFields(append(b, "struct<"...), t.Fields), '>')
	case Unsupported:
		return fmt.Appendf(b, "unsupported(%s)", t.Suffix)
	case Number:
		return append(b, "number"...)
	case JSON:
		return append(b, "json"...)
	}
	return fmt.Appendf(b, "unknown(%d)", t.Kind)
}

// quoted returns a name for texts: as it is if it consists of letters, digits, '_' and '-', else in
// quotes, so that texts are unambiguous.
func quoted(name string) string {
	plain := name != ""
	for _, c := range []byte(name) {
		plain = plain && isPlain(c)
	}
	if plain {
		return name
	}
	return strconv.Quote(name)
}

// isPlain reports whether c is in [A-Za-z0-9_-].
func isPlain(c byte) bool {
	return c == '_' || c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// Difference describes the first difference between two schemas, "" if they are the same. It names
// them with first and second, for example the names of two shards.
func Difference(a, b Schema, first, second string) string {
	for i := range min(len(a), len(b)) {
		x, y := a[i], b[i]
		if x.Name != y.Name {
			return fmt.Sprintf("column %d is %s in %s and %s in %s", i+1, quoted(x.Name), first, quoted(y.Name), second)
		}
		if is, was := x.Type.String(), y.Type.String(); is != was {
			return fmt.Sprintf("column %s is %s in %s and %s in %s", quoted(x.Name), is, first, was, second)
		}
	}
	switch {
	case len(a) > len(b):
		return fmt.Sprintf("column %s is in %s and not in %s", quoted(a[len(b)].Name), first, second)
	case len(a) < len(b):
		return fmt.Sprintf("column %s is in %s and not in %s", quoted(b[len(a)].Name), second, first)
	}
	return ""
}

// names returns the names of fields for an error, at most 30 of them.
func names(fields []Field) string {
	const most = 30
	var b strings.Builder
	for i, f := range fields {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(fields)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(quoted(f.Name))
	}
	return b.String()
}
