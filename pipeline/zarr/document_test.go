package zarr

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// gfs is the document of a field of NOAA's GFS analysis as published by dynamical.org, shortened.
const gfs = `{
 "zarr_format": 3, "node_type": "array", "shape": [3000, 721, 1440], "data_type": "float32",
 "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3024, 384, 384]}},
 "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
 "fill_value": "NaN",
 "codecs": [{"name": "sharding_indexed", "configuration": {
   "chunk_shape": [1008, 64, 64],
   "codecs": [{"name": "bytes", "configuration": {"endian": "little"}},
     {"name": "blosc", "configuration": {"typesize": 4, "cname": "zstd", "clevel": 3, "shuffle": "shuffle", "blocksize": 0}}],
   "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
   "index_location": "end"}}],
 "attributes": {"units": "degree_Celsius", "_FillValue": NaN, "odd": "NaN -Infinity", "range": [-Infinity, 1e3]},
 "dimension_names": ["time", "latitude", null], "storage_transformers": [],
 "consolidated_metadata": {"must_understand": false}}`

// era is a field of ERA5 in version 2.
const era = `{"chunks": [1, 37, 721, 1440], "compressor": {"blocksize": 0, "clevel": 5, "cname": "lz4", "id": "blosc", "shuffle": 1},
 "dtype": "<f4", "fill_value": "NaN", "filters": null, "order": "C", "shape": [93544, 37, 721, 1440], "zarr_format": 2}`

func TestVersion3ShardedArray(t *testing.T) {
	a, err := ParseV3("t/zarr.json", []byte(gfs))
	require.NoError(t, err)
	require.Equal(t, []int64{3000, 721, 1440}, a.Shape)
	require.Equal(t, []string{"time", "latitude", ""}, a.Dims)
	require.Equal(t, "'<f4'", a.Type.Descr)
	require.Equal(t, []byte{0, 0, 0xc0, 0x7f}, a.Fill)
	require.Equal(t, []int64{3024, 384, 384}, a.Object)
	require.Equal(t, []int64{1008, 64, 64}, a.Chunk)
	require.Equal(t, []Level{{Object: a.Object, Chunk: a.Chunk, Checksum: true}}, a.Levels)
	require.EqualValues(t, 3*6*6*16+4, a.Levels[0].IndexBytes())
	require.Equal(t, Grid{a.Object, []int64{1, 2, 4}}, a.Objects())
	require.Equal(t, Grid{a.Chunk, []int64{3, 12, 23}}, a.Chunks())
	require.True(t, a.Chain.Blocks())
	require.EqualValues(t, 1008*64*64*4, a.ChunkBytes())
	require.JSONEq(t, `{"units": "degree_Celsius", "_FillValue": "NaN", "odd": "NaN -Infinity", "range": ["-Infinity", 1e3]}`, string(a.Attributes))
	object := make([]int64, 3)
	a.ObjectOf(object, []int64{2, 7, 22})
	require.Equal(t, "c/0/1/3", string(a.Keys.Append(nil, object)))
	require.EqualValues(t, (2*6+1)*6+4, a.EntryOf(0, []int64{2, 7, 22}))
}

func TestVersion2Array(t *testing.T) {
	a, err := ParseV2("t/.zarray", []byte(era), []byte(`{"_ARRAY_DIMENSIONS": ["time", "level", "latitude", "longitude"], "missing": NaN}`))
	require.NoError(t, err)
	require.Equal(t, []string{"time", "level", "latitude", "longitude"}, a.Dims)
	require.Equal(t, "12.0.0.0", string(a.Keys.Append(nil, []int64{12, 0, 0, 0})))
	require.Empty(t, a.Levels)
	require.True(t, a.Chain.Blocks())
}

// edited returns a document with one text replaced.
func edited(t *testing.T, doc, from, to string) []byte {
	t.Helper()
	require.Contains(t, doc, from)
	return []byte(strings.Replace(doc, from, to, 1))
}

func TestVersion3CodecChains(t *testing.T) {
	sharded := gfs[strings.Index(gfs, `"codecs": [{"name": "bytes"`):strings.Index(gfs, `"index_codecs"`)]
	for name, c := range map[string]struct {
		codecs string
		big    bool
		want   Chain
	}{
		"nothing but bytes": {`"bytes"`, false, Chain{}},
		"big-endian":        {`{"name": "bytes", "configuration": {"endian": "big"}}`, true, Chain{}},
		"the last is undone first": {`{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "zstd", "configuration": {"level": 1, "checksum": false}}, "crc32c"`, false,
			Chain{Steps: []Step{{Codec: CRC32C}, {Codec: Zstd}}}},
		"two transpositions": {`{"name": "transpose", "configuration": {"order": [1, 2, 0]}}, {"name": "transpose", "configuration": {"order": [1, 0, 2]}}, {"name": "bytes", "configuration": {"endian": "little"}}`, false,
			Chain{Order: []int{2, 1, 0}}},
		"numcodecs": {`{"name": "numcodecs.delta", "configuration": {"dtype": "<f4"}}, {"name": "bytes", "configuration": {"endian": "big"}}, {"name": "numcodecs.shuffle", "configuration": {"elementsize": 4}}, {"name": "numcodecs.zlib", "configuration": {"level": 1}}`, true,
			Chain{Steps: []Step{{Codec: Zlib}, {Codec: Shuffle, ItemBytes: 4}, {Codec: Delta, From: Number{'f', 4, true}, To: Number{'f', 4, true}}}}},
		"packed into one byte": {`{"name": "numcodecs.fixedscaleoffset", "configuration": {"dtype": "<f4", "astype": "|u1", "scale": 10, "offset": -5.5}}, {"name": "numcodecs.bitround", "configuration": {"keepbits": 5}}, "bytes", "gzip"`, false,
			Chain{Steps: []Step{{Codec: Gzip}, {Codec: FixedScaleOffset, From: Number{'u', 1, false}, To: Number{'f', 4, false}, Scale: 10, Offset: -5.5}}}},
	} {
		t.Run(name, func(t *testing.T) {
			doc := edited(t, gfs, sharded, `"codecs": [`+c.codecs+`], `)
			if name == "nothing but bytes" {
				doc = []byte(strings.NewReplacer(`"float32"`, `"uint8"`, `"fill_value": "NaN"`, `"fill_value": 0`).Replace(string(doc)))
			}
			a, err := ParseV3("zarr.json", doc)
			require.NoError(t, err)
			require.Equal(t, c.want, a.Chain)
			require.Equal(t, c.big, a.Type.Big())
		})
	}
}

func TestSizesBetweenSteps(t *testing.T) {
	c := Chain{Steps: []Step{{Codec: CRC32C}, {Codec: Zstd}, {Codec: Fletcher32}, {Codec: Shuffle, ItemBytes: 4}, {Codec: Delta, From: Number{'i', 1, false}, To: Number{'i', 4, false}}}}
	require.Equal(t, []Size{{Bound(54) + 4, false}, {Bound(54), false}, {54, true}, {50, true}, {50, true}, {200, true}}, c.Sizes(200))
}

func TestNestedShards(t *testing.T) {
	inner := `"codecs": [{"name": "bytes", "configuration": {"endian": "little"}},
     {"name": "blosc", "configuration": {"typesize": 4, "cname": "zstd", "clevel": 3, "shuffle": "shuffle", "blocksize": 0}}]`
	a, err := ParseV3("zarr.json", edited(t, gfs, inner, `"codecs": [{"name": "sharding_indexed", "configuration": {"chunk_shape": [504, 16, 32],
		"codecs": [{"name": "bytes", "configuration": {"endian": "big"}}], "index_codecs": [{"name": "bytes", "configuration": {"endian": "big"}}], "index_location": "start"}}]`))
	require.NoError(t, err)
	require.Equal(t, []int64{504, 16, 32}, a.Chunk)
	require.Len(t, a.Levels, 2)
	require.Equal(t, Level{Object: []int64{1008, 64, 64}, Chunk: a.Chunk, AtStart: true, Big: true}, a.Levels[1])
	chunk := []int64{5, 29, 44} // in objects of 6×24×12 chunks: object (0,1,3), in it (5,5,8)
	require.EqualValues(t, (2*6+1)*6+4, a.EntryOf(0, chunk))
	require.EqualValues(t, (1*4+1)*2+0, a.EntryOf(1, chunk))
	require.True(t, a.Chain.Raw() && a.Type.Big())
}

func TestRefusedArrayDocuments(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{`"regular"`, `"rectilinear"`, `chunk_grid: grid "rectilinear" is not supported`},
		{`"storage_transformers": []`, `"storage_transformers": [{"name": "x"}]`, "storage_transformers: are not supported"},
		{`"consolidated_metadata": {"must_understand": false}`, `"extra": {"must_understand": true}`, "extra: is unknown"},
		{`"consolidated_metadata": {"must_understand": false}`, `"extra": 1`, "extra: is unknown"},
		{`"float32"`, `"string"`, `data type "string" is not supported`},
		{`"float32"`, `"r12"`, "multiples of 8"},
		{`"float32"`, `{"name": "numpy.datetime64", "configuration": {"unit": "week"}}`, `"week" is not a unit`},
		{`"fill_value": "NaN"`, `"fill_value": "none"`, `fill_value: "none" is not a value`},
		{`"crc32c"`, `"gzip"`, "index_codecs: must be bytes, or bytes and crc32c"},
		{`"index_location": "end"`, `"index_location": "middle"`, "index_location: must be"},
		{`"chunk_shape": [1008, 64, 64]`, `"chunk_shape": [1000, 64, 64]`, "the edge 1000 of dimension 0 does not divide 3024"},
		{`"chunk_shape": [1008, 64, 64]`, `"chunk_shape": [1008, 64]`, "has 2 dimensions, and the array has 3"},
		{`"chunk_shape": [3024, 384, 384]`, `"chunk_shape": [0, 384, 384]`, "item 0 must be a whole number from 1"},
		{`[3000, 721, 1440]`, `[3000, -1, 1440]`, "shape: item 1 must be"},
		{`[3000, 721, 1440]`, `[281474976710656, 721, 1440]`, "shape: item 0 must be"},
		{`[3000, 721, 1440]`, `[3.5, 721, 1440]`, "shape: item 0 must be"},
		{`[3000, 721, 1440]`, `[1e999999999, 721, 1440]`, "shape: item 0 must be"},
		{`"blosc"`, `"zfpy"`, `codec "zfpy" is not supported`},
		{`"blosc"`, `"xz"`, `codec "xz" is not supported`},
		{`"blosc"`, `"numcodecs.lzma"`, `codec "numcodecs.lzma" is not supported`},
		{`[{"name": "sharding_indexed"`, `["transpose", {"name": "sharding_indexed"`, "codecs before or after sharding_indexed"},
		{`{"name": "bytes", "configuration": {"endian": "little"}},
     {`, `"bytes", {`, "endian: is missing"},
		{`{"name": "bytes", "configuration": {"endian": "little"}},
     {`, `{"name": "vlen-utf8"}, {`, `codec "vlen-utf8" is not supported`},
		{`"endian": "little"`, `"endian": "middle"`, `endian: must be "little" or "big"`},
		{`"separator": "/"`, `"separator": ".."`, "separator: must be"},
		{`"name": "default"`, `"name": "v4"`, `encoding "v4"`},
		{`["time", "latitude", null]`, `["time"]`, "dimension_names: has 1 names"},
		{`["time", "latitude", null]`, `["time", "a\nb", null]`, `dimension_names[1]: is "a\nb", which has characters that can't be shown: rename it`},
		{`["time", "latitude", null]`, `["time", null, "\u001b[31m"]`, `dimension_names[2]: is "\x1b[31m"`},
		{`["time", "latitude", null]`, `["\u0000", null, null]`, `dimension_names[0]: is "\x00"`},
		{`["time", "latitude", null]`, `["\ud800", "latitude\u202e", null]`, `dimension_names[0]: is "�", which has characters that can't be shown: rename it; dimension_names[1]: is "latitude\u202e"`},
		{`["time", "latitude", null]`, `["time", "` + strings.Repeat("x", 201) + `", null]`, "dimension_names[1]: is a name of 201 bytes: at most 200 are read: rename it"},
		{`"float32"`, `"` + strings.Repeat("float", 1<<20) + `"`, "floatfloa … floatfloat"},
		{`"float32"`, `"` + strings.Repeat("float", 1<<20) + `"`, `float" is not supported: store numbers`},
		{`"consolidated_metadata": {"must_understand": false}`, `"` + strings.Repeat("e", 1<<20) + `": 1`, " … "},
		{`"blosc"`, `"gzip", "must_understand": false}, {"name": "zstd"}, {"name": "gzip"}, {"name": "blosc"`, "codecs[0].configuration.codecs: 4 codecs compress, one after the other, and at most 2 are read"},
		{`"codecs": [{"name": "bytes", "configuration": {"endian": "little"}},
     {"name": "blosc", "configuration": {"typesize": 4, "cname": "zstd", "clevel": 3, "shuffle": "shuffle", "blocksize": 0}}]`,
			`"codecs": [{"name": "sharding_indexed", "configuration": {"chunk_shape": [9, 1, 1],
		"codecs": ["bytes"], "index_codecs": [{"name": "bytes", "configuration": {"endian": "big"}}]}}]`, "codecs[0].configuration.codecs[0].configuration.chunk_shape: makes more than 16777216 chunks a file"},
		{`"zarr_format": 3`, `"zarr_format": 4`, "zarr_format: must be 3"},
		{`"node_type": "array"`, `"node_type": "group"`, `node_type: must be "array"`},
		{`"zarr_format": 3`, `"zarr_format": 3, "zarr_format": 3`, `has "zarr_format" twice`},
		{`"fill_value": "NaN",`, ``, "fill_value: is missing"},
		{`"attributes": {`, `"attributes": {,`, "is not JSON"},
		{`"attributes": {`, `"attributes": {"deep":` + strings.Repeat("[", 80) + strings.Repeat("]", 80) + `,`, "nested more than 64 deep"},
	} {
		_, err := ParseV3("t/zarr.json", edited(t, gfs, c.from, c.to))
		require.ErrorContains(t, err, c.want)
		require.ErrorContains(t, err, "zarr: t/zarr.json: ")
	}
	for _, c := range []struct{ from, to, want string }{
		{`"<f4"`, `"|O"`, `dtype "|O" is not supported`},
		{`"<f4"`, `"<float32"`, `dtype "<float32" is not supported`},
		{`"<f4"`, `[["a", "<i4"], ["a", "<i4"]]`, "field 1 needs a name of its own"},
		{`"id": "blosc"`, `"id": "pcodec"`, `compressor: codec "pcodec" is not supported`},
		{`"filters": null`, `"filters": [{"id": "categorize"}]`, `filters[0]: codec "categorize"`},
		{`"filters": null`, `"filters": [{"id": "delta", "dtype": "<i8"}]`, "the codecs make numbers of 8 bytes"},
		{`"filters": null`, `"filters": [{"id": "fixedscaleoffset", "dtype": "<f4", "scale": 0, "offset": 0}]`, "scale: must be a number"},
		{`"order": "C"`, `"order": "A"`, "order: must be"},
		{`[1, 37, 721, 1440]`, `[1, 37, 721]`, "chunks: has 3 dimensions, and shape has 4"},
		{`[1, 37, 721, 1440]`, `[1000000, 37000, 721, 1440]`, "a chunk has more than"},
		{`"filters": null`, `"filters": [{"id": "delta", "dtype": "<f16"}]`, `zarr: t/.zarray: filters[0].dtype: dtype "<f16" is not supported: ` + wantNumbers},
	} {
		_, err := ParseV2("t/.zarray", edited(t, era, c.from, c.to), nil)
		require.ErrorContains(t, err, c.want)
	}
}

func TestAllProblemsAreNamedAtOnce(t *testing.T) {
	doc := strings.NewReplacer(`"blosc"`, `"zfpy"`, `"crc32c"`, `"gzip"`, `"/"`, `"-"`).Replace(gfs)
	_, err := ParseV3("t/zarr.json", []byte(doc))
	var e *Error
	require.ErrorAs(t, err, &e)
	var members []string
	for _, p := range e.Problems {
		members = append(members, p.Member)
	}
	require.Equal(t, []string{"chunk_key_encoding.configuration.separator", "codecs[0].configuration.index_codecs", "codecs[0].configuration.codecs[1]"}, members)
}

func TestVersion2Types(t *testing.T) {
	for text, want := range map[string]string{
		`"|b1"`: "'|b1'", `"<i1"`: "'|i1'", `">u2"`: "'<u2'", `"<f8"`: "'<f8'", `">c16"`: "'<c16'", `"|S7"`: "'|S7'", `">U3"`: "'<U3'", `"|V5"`: "'|V5'",
		`"<M8[ns]"`: "'<M8[ns]'", `">m8[25s]"`: "'<m8[25s]'", `"<M8"`: "'<M8'",
		`[["a", ">i4"], ["b", "<f2", [2, 3]], ["c", [["d", "|u1"]]]]`: "[('a', '<i4'), ('b', '<f2', (2, 3)), ('c', [('d', '|u1')])]",
	} {
		d, err := dtypeV2(value(text), 0)
		require.NoError(t, err, text)
		require.Equal(t, want, d.Descr)
		bytes := 0
		for _, u := range d.Units {
			bytes += u.Bytes * u.Count
		}
		require.Equal(t, d.ItemBytes, bytes, "%s: the numbers fill the element", text)
		require.Equal(t, strings.Contains(text, ">"), d.Big(), text)
	}
	for name, want := range map[string]string{"bfloat16": "'|V2'", "r24": "'|V3'", "complex128": "'<c16'", "bool": "'|b1'"} {
		d, err := dtypeV3(value(`"` + name + `"`))
		require.NoError(t, err)
		require.Equal(t, want, d.Descr)
	}
	d, err := dtypeV3(value(`{"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 10}}`))
	require.NoError(t, err)
	require.Equal(t, "'<M8[10s]'", d.Descr)
}

func TestGroupsAndConsolidatedMetadata(t *testing.T) {
	g, err := ParseV3Group("zarr.json", []byte(`{"zarr_format": 3, "node_type": "group", "attributes": {"a": 1},
		"consolidated_metadata": {"kind": "inline", "must_understand": false, "metadata": {"data/t": {"x": [1, 2]}, "u": {}}}}`))
	require.NoError(t, err)
	require.Equal(t, []Node{{"data/t", "zarr.json", []byte(`{"x": [1, 2]}`)}, {"u", "zarr.json", []byte(`{}`)}}, g.Nodes)
	for _, path := range []string{"../t", "a//b", "/a", "a/.", ""} {
		_, err = ParseV3Group("zarr.json", []byte(`{"zarr_format": 3, "node_type": "group", "consolidated_metadata": {"kind": "inline", "metadata": {"`+path+`": {}}}}`))
		require.ErrorContains(t, err, "is not a path")
	}
	nodes, err := ParseV2Consolidated(".zmetadata", []byte(`{"zarr_consolidated_format": 1, "metadata": {".zgroup": {}, "a/b/.zarray": {"c": 1}, "a/b/.zattrs": {}, "a/other": 1}}`))
	require.NoError(t, err)
	require.Equal(t, []Node{{"", ".zgroup", []byte(`{}`)}, {"a/b", ".zarray", []byte(`{"c": 1}`)}, {"a/b", ".zattrs", []byte(`{}`)}}, nodes)
	_, err = ParseV2Consolidated(".zmetadata", []byte(`{"metadata": {"../.zarray": {}}}`))
	require.ErrorContains(t, err, "is not a path")
	isArray, err := KindV3("zarr.json", []byte(gfs))
	require.NoError(t, err)
	require.True(t, isArray)
}

func TestKeys(t *testing.T) {
	counts := []int64{11, 3}
	for _, k := range []Keys{{true, '/'}, {true, '.'}, {false, '/'}, {false, '.'}} {
		seen := map[string]bool{}
		for n := range product(counts) {
			place, got := make([]int64, 2), make([]int64, 2)
			place64(place, n, counts)
			path := string(k.Append(nil, place))
			require.False(t, seen[path])
			seen[path] = true
			require.True(t, k.Parse(got, path, counts), path)
			require.Equal(t, place, got)
			sep := string(k.Separator)
			for _, other := range []string{path + sep, path + "0", sep + path, "c" + path, path + sep + "0", strings.Replace(path, sep, "-", 1), strings.Replace(path, sep, sep+"0", 1) + "1"} {
				if k.Parse(got, other, counts) {
					require.Equal(t, other, string(k.Append(nil, got)), "an object has one path")
				}
			}
		}
		require.True(t, k.Parse(nil, string(k.Append(nil, nil)), nil))
		require.False(t, k.Parse(nil, "x", nil))
		require.False(t, k.Parse(make([]int64, 2), string(k.Append(nil, []int64{11, 0})), counts))
		require.False(t, k.Parse(make([]int64, 2), string(k.Append(nil, []int64{0, 3})), counts))
		require.False(t, k.Parse(make([]int64, 2), "99999999999999999999999", counts))
	}
	require.Equal(t, "c", string(Keys{true, '/'}.Append(nil, nil)))
	require.Equal(t, "0", string(Keys{false, '.'}.Append(nil, nil)))
}
