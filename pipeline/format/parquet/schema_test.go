package parquet

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/rows"
)

func leafOf(name string, repetition int32, phys physical) element {
	return element{name: name, repetition: repetition, phys: phys, isLeaf: true, converted: -1}
}

func groupOf(name string, repetition, children, converted int32) element {
	return element{name: name, repetition: repetition, children: children, converted: converted}
}

func schemaOf(t *testing.T, elements ...element) (rows.Schema, []*node, []leafInfo) {
	all := append([]element{groupOf("schema", 0, 0, -1)}, elements...)
	for i := range all {
		all[i].convert()
	}
	for at := 1; at < len(all); all[0].children++ {
		for left := 1; left > 0; at++ {
			left += int(all[at].children) - 1
		}
	}
	columns, names, leaves, err := buildSchema(all)
	require.NoError(t, err)
	var s rows.Schema
	for i, n := range columns {
		s = append(s, rows.Field{Name: names[i], Type: n.t})
	}
	require.NoError(t, s.Check())
	return s, columns, leaves
}

// The examples of lists and maps are those of LogicalTypes.md.
func TestListsAndMaps(t *testing.T) {
	const list, mapping, entry, text = 3, 1, 2, 0
	str := func(name string, repetition int32) element {
		e := leafOf(name, repetition, physBytes)
		e.converted = text
		return e
	}
	for want, elements := range map[string][]element{
		"a: list<string>":                          {groupOf("a", optional, 1, list), groupOf("list", repeated, 1, -1), str("element", optional)},
		"b: list<list<string>>":                    {groupOf("b", required, 1, list), groupOf("list", repeated, 1, -1), groupOf("element", required, 1, list), groupOf("list", repeated, 1, -1), str("element", required)},
		"c: list<int32>":                           {groupOf("c", optional, 1, list), leafOf("element", repeated, physInt32)},
		"d: list<struct<str: string, num: int32>>": {groupOf("d", optional, 1, list), groupOf("element", repeated, 2, -1), str("str", required), leafOf("num", required, physInt32)},
		"e: list<struct<str: string>>":             {groupOf("e", optional, 1, list), groupOf("array", repeated, 1, -1), str("str", required)},
		"g: list<list<int32>>":                     {groupOf("g", optional, 1, list), groupOf("array", repeated, 1, list), leafOf("array", repeated, physInt32)},
		"h: list<struct<x: list<int32>>>":          {groupOf("h", optional, 1, list), groupOf("element", repeated, 1, -1), leafOf("x", repeated, physInt32)},
		"i: map<string, int32>":                    {groupOf("i", required, 1, mapping), groupOf("key_value", repeated, 2, -1), str("key", required), leafOf("value", optional, physInt32)},
		"j: map<string, int32>":                    {groupOf("j", optional, 1, entry), groupOf("map", repeated, 2, -1), str("key", required), leafOf("num", required, physInt32)},
		"k: list<string>":                          {groupOf("k", optional, 1, mapping), groupOf("key_value", repeated, 1, -1), str("key", required)},
		"l: list<int64>":                           {leafOf("l", repeated, physInt64)},
		"m: list<struct<x: int64>>":                {groupOf("m", repeated, 1, -1), leafOf("x", required, physInt64)},
		"n: struct<x: int64, y: float64>":          {groupOf("n", optional, 2, list), leafOf("x", required, physInt64), leafOf("y", required, physDouble)},
	} {
		s, _, _ := schemaOf(t, elements...)
		require.Equal(t, want, s.String())
	}
	s, _, _ := schemaOf(t, groupOf("my", optional, 1, list), groupOf("my_tuple", repeated, 1, -1), str("str", required))
	require.Equal(t, "my: list<struct<str: string>>", s.String())
}

func TestTypes(t *testing.T) {
	for converted, want := range map[int32]string{
		0: "string", 4: "string", 19: "string", 20: "binary", 5: "unsupported(decimal)", 21: "unsupported(interval)", 7: "unsupported(time)",
	} {
		e := leafOf("x", required, physBytes)
		e.converted = converted
		s, _, _ := schemaOf(t, e)
		require.Equal(t, "x: "+want, s.String())
	}
	for converted, want := range map[int32]string{
		6: "date", 7: "time(ms)", 11: "uint8", 12: "uint16", 13: "uint32", 14: "unsupported(integer)", 15: "int8", 16: "int16", 17: "int32", 22: "unsupported(of a newer version of Parquet)",
	} {
		e := leafOf("x", optional, physInt32)
		e.converted = converted
		s, _, _ := schemaOf(t, e)
		require.Equal(t, "x: "+want, s.String())
	}
	for converted, want := range map[int32]string{8: "time(us)", 9: "timestamp(ms, UTC)", 10: "timestamp(us, UTC)", 14: "uint64", 18: "int64", 6: "unsupported(date)"} {
		e := leafOf("x", optional, physInt64)
		e.converted = converted
		s, _, _ := schemaOf(t, e)
		require.Equal(t, "x: "+want, s.String())
	}
	for logical, want := range map[annotation]string{logicalUUID: "uuid", logicalFloat16: "unsupported(float16)", 16: "unsupported(variant)", 11: "unsupported(unknown)"} {
		e := leafOf("x", optional, physFixed)
		e.length, e.logical = 16, logical
		s, _, _ := schemaOf(t, e)
		require.Equal(t, "x: "+want, s.String())
	}
	s, _, _ := schemaOf(t, leafOf("x", optional, physInt96), leafOf("y", required, physBool))
	require.Equal(t, "x: timestamp(ns), y: bool", s.String())
	_, err := rows.Resolve(rows.Schema{{Name: "x", Type: &rows.Type{Kind: rows.Unsupported, Suffix: "interval"}}}, nil)
	require.EqualError(t, err, "column x: values of the type interval are not supported: select other columns with --columns")
}

func TestLevelsOfTheSchema(t *testing.T) {
	_, columns, leaves := schemaOf(t,
		groupOf("a", optional, 1, 3), groupOf("list", repeated, 1, -1), groupOf("element", optional, 2, -1),
		leafOf("x", optional, physInt32), leafOf("y", repeated, physInt32))
	require.Equal(t, leafInfo{name: "a.list.element.x", phys: physInt32, width: 4, maxDef: 4, maxRep: 1, slotDef: 2, elemDefs: []uint8{2}}, leaves[0])
	require.Equal(t, leafInfo{name: "a.list.element.y", phys: physInt32, width: 4, maxDef: 4, maxRep: 2, slotDef: 4, elemDefs: []uint8{2, 4}}, leaves[1])
	a := columns[0]
	require.Equal(t, []uint8{0, 0, 1, 2}, []uint8{a.depth, a.slotDef, a.def, a.elemDef})
	element := a.children[0]
	require.Equal(t, []uint8{1, 2, 3}, []uint8{element.depth, element.slotDef, element.def})
	y := element.children[1]
	require.Equal(t, []uint8{1, 2, 3, 4}, []uint8{y.depth, y.slotDef, y.def, y.elemDef})
}

func TestSchemasThatAreDamaged(t *testing.T) {
	for _, elements := range [][]element{
		{},
		{leafOf("x", 0, physInt32)},
		{groupOf("schema", 0, 2, -1), leafOf("x", 0, physInt32)},
		{groupOf("schema", 0, 1, -1), leafOf("x", 0, physInt32), leafOf("y", 0, physInt32)},
		{groupOf("schema", 0, 1, -1), leafOf("x", 3, physInt32)},
		{groupOf("schema", 0, 1, -1), leafOf("x", 0, 8)},
		{groupOf("schema", 0, 1, -1), leafOf("x", 0, physFixed)},
		{groupOf("schema", 0, 1, -1), groupOf("x", 0, 1, 3), groupOf("list", 2, 1, -1)},
		{groupOf("schema", 0, 1, -1), groupOf("x", 0, 1, 1), groupOf("map", 2, 2, -1), leafOf("y", 0, physInt32)},
	} {
		_, _, _, err := buildSchema(elements)
		require.ErrorAs(t, err, new(reason), "%v", elements)
	}
	deep := []element{groupOf("schema", 0, 1, -1)}
	for range 1000 {
		deep = append(deep, groupOf("x", optional, 1, -1))
	}
	_, _, _, err := buildSchema(append(deep, leafOf("x", 0, physInt32)))
	require.ErrorAs(t, err, new(*rows.RefusedError))
}
