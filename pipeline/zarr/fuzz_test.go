package zarr

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// checkParsed checks the invariants of every accepted array, so that nothing overflows later.
func checkParsed(t *testing.T, a *Array) {
	require.Len(t, a.Object, len(a.Shape))
	require.Len(t, a.Chunk, len(a.Shape))
	require.Len(t, a.Fill, a.Type.ItemBytes)
	require.Positive(t, a.ChunkBytes())
	require.LessOrEqual(t, a.ChunkBytes(), int64(MaxChunkBytes))
	require.GreaterOrEqual(t, a.Chunks().Total(), int64(0))
	bytes := 0
	for _, u := range a.Type.Units {
		bytes += u.Bytes * u.Count
	}
	require.Equal(t, a.Type.ItemBytes, bytes)
	for _, l := range a.Levels {
		require.LessOrEqual(t, l.Entries(), int64(MaxIndexEntries))
	}
	for _, s := range a.Chain.Sizes(a.ChunkBytes()) {
		require.Positive(t, s.Bytes)
	}
	if a.Chain.Order != nil {
		require.ElementsMatch(t, indices(len(a.Shape)), a.Chain.Order)
	}
	if a.Attributes != nil {
		require.True(t, json.Valid(a.Attributes), "%s", a.Attributes)
	}
	NewCopier(a, nil, a.Shape, a.Shape)
}

func FuzzParseV3(f *testing.F) {
	f.Add([]byte(gfs))
	f.Add([]byte(`{"zarr_format":3,"node_type":"array","shape":[],"data_type":"r8","chunk_grid":{"name":"regular","configuration":{"chunk_shape":[]}},
		"chunk_key_encoding":"v2","fill_value":[1],"codecs":[{"name":"transpose","configuration":{"order":[]}},"bytes","gzip"]}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		if a, err := ParseV3("x", doc); err == nil {
			checkParsed(t, a)
		}
	})
}

func FuzzParseV2(f *testing.F) {
	f.Add([]byte(era), []byte(`{"_ARRAY_DIMENSIONS": ["a", "b", "c", "d"], "x": [-Infinity, NaN]}`))
	f.Add([]byte(`{"zarr_format":2,"shape":[4],"chunks":[2],"dtype":[["a",">i2",[2]]],"compressor":null,"fill_value":"AQIDBA==","order":"F",
		"filters":[{"id":"delta","dtype":">i4","astype":"<i2"},{"id":"shuffle"}],"dimension_separator":"/"}`), []byte(nil))
	f.Fuzz(func(t *testing.T, doc, attrs []byte) {
		if a, err := ParseV2("x", doc, attrs); err == nil {
			checkParsed(t, a)
		}
	})
}

func FuzzGroups(f *testing.F) {
	f.Add([]byte(`{"zarr_format": 3, "node_type": "group", "consolidated_metadata": {"kind": "inline", "metadata": {"a/b": {}}}}`))
	f.Add([]byte(`{"zarr_consolidated_format": 1, "metadata": {".zgroup": {}, "a/.zarray": {}}}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		var nodes []Node
		if g, err := ParseV3Group("x", doc); err == nil {
			nodes = g.Nodes
		}
		if list, err := ParseV2Consolidated("x", doc); err == nil {
			nodes = append(nodes, list...)
		}
		_, _ = ParseV2Group("x", doc, doc)
		for _, n := range nodes {
			if n.Path != "" {
				require.NoError(t, CheckPath(n.Path))
			}
		}
	})
}

// FuzzJSON compares what is accepted with encoding/json.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a": [1, -2.5e3, true, null, "x\u00e4\"", {}], "b": {}}`, `[NaN, -Infinity, "NaN"]`, " 1 ", `"`, `[1,]`, `{"a" 1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		v, err := open(doc)
		if err != nil {
			return
		}
		require.True(t, json.Valid(v.strict()), "%q", v.strict())
		_, _ = v.object()
		_, _ = v.list(100)
	})
}
