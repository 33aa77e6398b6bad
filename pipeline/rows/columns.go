package rows

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lsiofs/lsiofs/pipeline/format/npy"
)

// Item is one item of --columns.
type Item struct {
	Name  string // what the column is called in records
	Path  string // the column, or fields of structs joined by "."
	Named bool   // the name was given, as NAME=PATH
	All   bool   // the item is *
}

// String returns the item as it was given.
func (i Item) String() string {
	switch {
	case i.All:
		return "*"
	case i.Named:
		return i.Name + "=" + i.Path
	}
	return i.Path
}

// ParseColumns parses the value of --columns: items separated by commas, each PATH, NAME=PATH or *.
func ParseColumns(text string) ([]Item, error) {
	var items []Item
	for part := range strings.SplitSeq(text, ",") {
		item := Item{Name: part, Path: part, All: part == "*"}
		if name, path, found := strings.Cut(part, "="); found {
			item = Item{Name: name, Path: path, Named: true}
		}
		switch {
		case item.Name == "" || item.Path == "":
			return nil, refused("", "--columns: %q is not a column: write PATH, NAME=PATH or *", part)
		case item.Named && item.Path == "*":
			return nil, refused("", "--columns: %s: * is all other columns under their own names, and has no name itself", part)
		case item.All && slices.ContainsFunc(items, func(i Item) bool { return i.All }):
			return nil, refused("", "--columns: * is given twice")
		}
		items = append(items, item)
	}
	return items, nil
}

// Column is a column of records. Its values are null wherever one of the structs on its path is.
type Column struct {
	Name  string
	Named bool  // its name was given, as NAME=PATH
	Path  []int // the column's position in the schema, then the positions of fields of structs
	Type  *Type // Nullable if the column or a struct on its path is
}

// Resolve returns the columns that items select from a schema; nil items select all. The error is a
// *RefusedError.
func Resolve(s Schema, items []Item) ([]Column, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if items == nil {
		items = []Item{{All: true}}
	}
	taken := make([]bool, len(s))
	found := make([]Column, len(items))
	for i, item := range items {
		if item.All {
			continue
		}
		path, t := find(s, item.Path)
		if path == nil {
			return nil, unknown(s, item.Path)
		}
		if len(path) == 1 {
			taken[path[0]] = true
		}
		found[i] = Column{Name: item.Name, Named: item.Named, Path: path, Type: t}
	}
	var columns []Column
	for i, item := range items {
		if !item.All {
			columns = append(columns, found[i])
			continue
		}
		for at, f := range s {
			if !taken[at] {
				columns = append(columns, Column{Name: f.Name, Path: []int{at}, Type: f.Type})
			}
		}
	}
	seen := map[string]bool{}
	for _, c := range columns {
		if seen[c.Name] {
			return nil, refused("", "--columns: two columns are named %s: give one of them another name, as NAME=%s", quoted(c.Name), c.Name)
		}
		seen[c.Name] = true
	}
	if len(columns) == 0 {
		return nil, refused("", "no column is selected; there are %s", orNone(s))
	}
	for _, c := range columns {
		if u := c.Type.unsupported(); u != nil {
			return nil, refused(c.Name, "values of the type %s are not supported: select other columns with --columns", u.Suffix)
		}
	}
	return columns, nil
}

// unsupported returns the first part of a type that is not supported, nil if there is none.
func (t *Type) unsupported() *Type {
	if t.Kind == Unsupported {
		return t
	}
	for _, f := range t.Fields {
		if u := f.Type.unsupported(); u != nil {
			return u
		}
	}
	return nil
}

// find returns the positions on a path, nil if there is none. A field whose own name is the rest of
// the path comes first, then those with the longest name.
func find(fields []Field, path string) ([]int, *Type) {
	if i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == path }); i >= 0 {
		return []int{i}, fields[i].Type
	}
	for end := strings.LastIndexByte(path, '.'); end >= 0; end = strings.LastIndexByte(path[:end], '.') {
		i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == path[:end] })
		if i < 0 || fields[i].Type.Kind != Struct {
			continue
		}
		if rest, t := find(fields[i].Type.Fields, path[end+1:]); rest != nil {
			if fields[i].Type.Nullable && !t.Nullable {
				copied := *t
				copied.Nullable = true
				t = &copied
			}
			return append([]int{i}, rest...), t
		}
	}
	return nil, nil
}

// unknown returns the error for a path that find does not find. It names what there is at the level
// at which the path leaves the schema.
func unknown(fields []Field, path string) error {
	for end := strings.LastIndexByte(path, '.'); end >= 0; end = strings.LastIndexByte(path[:end], '.') {
		_, t := find(fields, path[:end])
		switch {
		case t == nil:
		case t.Kind != Struct:
			return refused("", "--columns: there is no %s: %s is %s, which has no fields", path, path[:end], article(t))
		default:
			return refused("", "--columns: there is no %s: the fields of %s are %s", path, path[:end], orNone(t.Fields))
		}
	}
	return refused("", "--columns: there is no %s: the columns are %s", path, orNone(fields))
}

func orNone(fields []Field) string {
	if len(fields) == 0 {
		return "none"
	}
	return names(fields)
}

func article(t *Type) string {
	text := t.String()
	if strings.IndexByte("aeiou", text[0]) >= 0 && !strings.HasPrefix(text, "u") {
		return "an " + text
	}
	return "a " + text
}

// KindText returns the text by which the shards of a dataset are compared: the columns' names and types,
// and for rows of arrays a newline and the kind of the rows, which npy.Format.OfKind accepts.
func KindText(columns []Column, rows *npy.Rows) string {
	s := make(Schema, len(columns))
	for i, c := range columns {
		s[i] = Field{c.Name, c.Type}
	}
	text := s.String()
	if rows != nil {
		text += "\n" + rows.Kind()
	}
	return text
}

// Presentation is how rows become records.
type Presentation string

// The presentations, as in --as.
const (
	AsJSONL Presentation = "jsonl"
	AsTar   Presentation = "tar"
	AsNPY   Presentation = "npy"
)

// Present returns the presentation of columns: as --as asks for, "" if it was not given. Without it,
// rows are tar samples if a column contains binary values that a sample has as members, else lines
// of JSON; packed tokens are rows of an array.
func Present(as string, packed bool, columns []Column) (Presentation, error) {
	p := Presentation(as)
	switch p {
	case "", AsJSONL, AsTar, AsNPY:
	default:
		return "", refused("", "--as %s: it must be jsonl, tar or npy", as)
	}
	switch {
	case packed && p != "" && p != AsNPY:
		return "", refused("", "--as %s: --pack makes rows of an array: leave out --as, or --pack", as)
	case packed:
		return AsNPY, nil
	case p != "":
		return p, nil
	}
	for _, c := range columns {
		if c.Type.hasBinary() {
			return AsTar, nil
		}
	}
	return AsJSONL, nil
}

// hasBinary reports whether a type contains binary outside of maps.
func (t *Type) hasBinary() bool {
	if t.Kind == Map {
		return false
	}
	return t.Kind == Binary || slices.ContainsFunc(t.Fields, func(f Field) bool { return f.Type.hasBinary() })
}

// Choice is what determines the records of a dataset of rows besides its bytes.
type Choice struct {
	Format       string // "parquet", "mds", "arrow"
	Presentation Presentation
	Columns      []Item // nil if not given
	Pack         Pack   // the zero value if not given
	Groups       bool   // --cut groups
}

// String returns the text that stands for the format in a dataset's fingerprint:
// "parquet npy columns input_ids pack 4+1 eos 0 dtype u4 groups".
func (c Choice) String() string {
	b := append([]byte(c.Format), ' ')
	b = append(b, c.Presentation...)
	for i, item := range c.Columns {
		sep := byte(',')
		if i == 0 {
			b, sep = append(b, " columns"...), ' '
		}
		b = append(b, sep)
		for _, x := range []byte(item.String()) {
			if x <= ' ' || x == ',' || x == '%' {
				b = fmt.Appendf(b, "%%%02X", x)
			} else {
				b = append(b, x)
			}
		}
	}
	if c.Pack.Length > 0 {
		b = append(b, " pack "+c.Pack.String()...)
	}
	if c.Groups {
		b = append(b, " groups"...)
	}
	return string(b)
}
