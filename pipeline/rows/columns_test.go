package rows

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var columnsSchema = Schema{
	{"id", tInt64},
	{"text", nullable(tString)},
	{"meta", nullable(structOf(Field{"lang", tString}, Field{"a.b", tInt32}, Field{"in", structOf(Field{"x", tBool})}))},
	{"meta.lang", tDate},
	{"tags", listOf(structOf(Field{"name", tString}))},
	{"image", structOf(Field{"bytes", tBinary}, Field{"path", tString})},
}

// selected returns the columns as "NAME=PATH:TYPE", with "!" after named ones.
func selected(s Schema, text string) (string, error) {
	var items []Item
	var err error
	if text != "" {
		if items, err = ParseColumns(text); err != nil {
			return "", err
		}
	}
	columns, err := Resolve(s, items)
	var parts []string
	for _, c := range columns {
		path, fields := "", []Field(s)
		for _, i := range c.Path {
			path += "/" + fields[i].Name
			fields = fields[i].Type.Fields
		}
		part := c.Name + "=" + path[1:] + ":" + c.Type.String()
		if c.Named {
			part += "!"
		}
		if c.Type.Nullable {
			part += "?"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, " "), err
}

func TestColumns(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"in the order given", "text,id", "text=text:string? id=id:int64"},
		{"renamed", "text,i=id", "text=text:string? i=id:int64!"},
		{"a name that is the path is a name, too", "id=id", "id=id:int64!"},
		{"one column twice", "a=id,b=id", "a=id:int64! b=id:int64!"},
		{"a column whose own name has the dot comes first", "meta.lang", "meta.lang=meta.lang:date"},
		{"a field whose own name has the dot", "meta.a.b", "meta.a.b=meta/a.b:int32?"},
		{"a field of a field is null where a struct is", "meta.in.x", "meta.in.x=meta/in/x:bool?"},
		{"all others under their own names", "caption=text,meta,image,*,x=tags", "caption=text:string!? meta=meta:struct<lang: string, \"a.b\": int32, in: struct<x: bool>>? image=image:struct<bytes: binary, path: string> id=id:int64 meta.lang=meta.lang:date x=tags:list<struct<name: string>>!"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := selected(columnsSchema, c.text)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
	all, err := selected(columnsSchema[:2], "")
	require.NoError(t, err)
	require.Equal(t, "id=id:int64 text=text:string?", all)
	star, err := selected(columnsSchema[:2], "*")
	require.NoError(t, err)
	require.Equal(t, all, star)
}

func TestColumnsThatAreRefused(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"an empty item", "id,,text", `--columns: "" is not a column: write PATH, NAME=PATH or *`},
		{"no name", "=id", `--columns: "=id" is not a column: write PATH, NAME=PATH or *`},
		{"no path", "id=", `--columns: "id=" is not a column: write PATH, NAME=PATH or *`},
		{"a name for *", "x=*", `--columns: x=*: * is all other columns under their own names, and has no name itself`},
		{"* twice", "*,id,*", `--columns: * is given twice`},
		{"an unknown column", "nope", `--columns: there is no nope: the columns are id, text, meta, "meta.lang", tags, image`},
		{"an unknown field", "meta.nope", `--columns: there is no meta.nope: the fields of meta are lang, "a.b", in`},
		{"an unknown field of a field", "meta.in.nope", `--columns: there is no meta.in.nope: the fields of meta.in are x`},
		{"a field of a list", "tags.name", `--columns: there is no tags.name: tags is a list<struct<name: string>>, which has no fields`},
		{"a field of an int", "id.x", `--columns: there is no id.x: id is an int64, which has no fields`},
		{"equal names", "id,id=text", `--columns: two columns are named id: give one of them another name, as NAME=id`},
		{"the name of a column of *", "id=text,*", `--columns: two columns are named id: give one of them another name, as NAME=id`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := selected(columnsSchema, c.text)
			var refusal *RefusedError
			require.ErrorAs(t, err, &refusal)
			require.EqualError(t, err, c.want)
		})
	}
}

func TestSchemasThatAreRefused(t *testing.T) {
	deep := tInt32
	for range 64 {
		deep = listOf(deep)
	}
	for _, c := range []struct {
		name   string
		schema Schema
		want   string
	}{
		{"two columns of one name", Schema{{"a b", tBool}, {"a b", tInt32}}, `two columns are named "a b": rename one of them in the files`},
		{"two fields of one name", Schema{{"s", structOf(Field{"x", tBool}, Field{"x", tBool})}}, `column s: two fields are named x: rename one of them in the files`},
		{"a name that is not UTF-8", Schema{{"\xff", tBool}}, `the name "\xff" is not UTF-8`},
		{"nesting", Schema{{"a", deep}}, "its type is nested more than 64 levels deep"},
		{"a negative scale", Schema{{"d", &Type{Kind: Decimal, Precision: 3, Scale: -1}}}, "column d: its type decimal(3, -1) is not supported"},
		{"an unknown kind", Schema{{"d", &Type{}}}, "column d: its type unknown(0) is not supported"},
		{"no columns", Schema{}, "no column is selected; there are none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Resolve(c.schema, nil)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// Required or optional plays no part in the text of a schema, and everything else does.
func TestSchemaText(t *testing.T) {
	s := Schema{
		{"a", nullable(listOf(nullable(tUint32)))},
		{"odd name", mapOf(tString, structOf(Field{"x", &Type{Kind: Decimal, Precision: 9, Scale: 2}}))},
		{"t", tMicros},
		{"u", &Type{Kind: Timestamp, Unit: Seconds}},
		{"v", &Type{Kind: Time, Unit: Nanos}},
		{"b", &Type{Kind: Binary, Size: 4}},
		{"j", &Type{Kind: Binary, Suffix: "jpg"}},
		{"n", arrayOf(tHalf)},
		{"i", tUUID}, {"d", tDate}, {"x", &Type{Kind: Number}}, {"y", &Type{Kind: JSON}}, {"z", tBool},
	}
	require.Equal(t, `a: list<uint32>, "odd name": map<string, struct<x: decimal(9, 2)>>, t: timestamp(us, UTC), u: timestamp(s), v: time(ns), b: binary(4), j: binary(jpg), n: ndarray<float16>, i: uuid, d: date, x: number, y: json, z: bool`, s.String())
	require.NoError(t, s.Check())
	require.Equal(t, "", Difference(s, s, "a", "b"))
	require.Equal(t, "column 2 is x in a.parquet and y in b.parquet", Difference(Schema{{"a", tBool}, {"x", tBool}}, Schema{{"a", nullable(tBool)}, {"y", tBool}}, "a.parquet", "b.parquet"))
	require.Equal(t, "column a is bool in a.parquet and int32 in b.parquet", Difference(Schema{{"a", tBool}}, Schema{{"a", tInt32}}, "a.parquet", "b.parquet"))
	require.Equal(t, "column b is in b.parquet and not in a.parquet", Difference(s[:0], Schema{{"b", tBool}}, "a.parquet", "b.parquet"))
	require.Equal(t, "column b is in a.parquet and not in b.parquet", Difference(Schema{{"b", tBool}}, s[:0], "a.parquet", "b.parquet"))
}

func TestPresentation(t *testing.T) {
	of := func(types ...*Type) (columns []Column) {
		for _, typ := range types {
			columns = append(columns, Column{Type: typ})
		}
		return columns
	}
	for _, c := range []struct {
		name    string
		as      string
		packed  bool
		columns []Column
		want    Presentation
	}{
		{"text and numbers", "", false, of(tInt32, tString, tUUID), AsJSONL},
		{"binary", "", false, of(tInt32, tBinary), AsTar},
		{"binary inside", "", false, of(listOf(structOf(Field{"a", tBinary}))), AsTar},
		{"binary in maps only", "", false, of(mapOf(tString, tBinary)), AsJSONL},
		{"asked for", "jsonl", false, of(tBinary), AsJSONL},
		{"arrays are asked for", "npy", false, of(tInt32), AsNPY},
		{"packed", "", true, of(listOf(tInt32)), AsNPY},
		{"packed and asked for", "npy", true, of(listOf(tInt32)), AsNPY},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Present(c.as, c.packed, c.columns)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
	_, err := Present("csv", false, of(tInt32))
	require.EqualError(t, err, "--as csv: it must be jsonl, tar or npy")
	_, err = Present("tar", true, of(tInt32))
	require.EqualError(t, err, "--as tar: --pack makes rows of an array: leave out --as, or --pack")
}

func TestFingerprint(t *testing.T) {
	items, err := ParseColumns("input ids,x=a%b,*")
	require.NoError(t, err)
	require.Equal(t, "parquet jsonl", Choice{Format: "parquet", Presentation: AsJSONL}.String())
	require.Equal(t, "parquet tar columns input%20ids,x=a%25b,* groups", Choice{Format: "parquet", Presentation: AsTar, Columns: items, Groups: true}.String())
	require.Equal(t, "mds tar columns a%2Cb%0A", Choice{Format: "mds", Presentation: AsTar, Columns: []Item{{Path: "a,b\n"}}}.String())
	require.Equal(t, "arrow npy pack 4+1 eos -1 dtype u4", Choice{Format: "arrow", Presentation: AsNPY, Pack: Pack{Length: 4, Labels: true, HasEOS: true, EOS: -1, Dtype: "u4"}}.String())
	require.Equal(t, "arrow npy pack 4 eos 0", Choice{Format: "arrow", Presentation: AsNPY, Pack: Pack{Length: 4, HasEOS: true}}.String())
}
