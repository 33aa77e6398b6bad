package integration

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// edited returns a copy of a version 3 store with an edited document.
func edited(t *testing.T, kind string, edit func(doc map[string]any)) string {
	t.Helper()
	path := store(t, makeVersion3, kind)
	b, err := os.ReadFile(filepath.Join(path, "zarr.json"))
	require.NoError(t, err)
	var doc map[string]any
	require.NoError(t, json.Unmarshal(b, &doc))
	edit(doc)
	b, err = json.Marshal(doc)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(path, "zarr.json"), b, 0o644))
	return path
}

// sharding returns the configuration of a document's sharding.
func sharding(doc map[string]any) map[string]any {
	return doc["codecs"].([]any)[0].(map[string]any)["configuration"].(map[string]any)
}

func grid(doc map[string]any) map[string]any {
	return doc["chunk_grid"].(map[string]any)["configuration"].(map[string]any)
}

// refused is an edit of a document, and what its refusal must contain.
type refused struct {
	name string
	edit func(doc map[string]any)
	says []string
}

var refusedDocuments = []refused{
	{"a negative edge", func(doc map[string]any) { doc["shape"] = []int{13, -1, 50} }, []string{"shape"}},
	{"an edge of 2⁵⁰", func(doc map[string]any) { doc["shape"] = []int{1 << 50, 37, 50} }, []string{"shape"}},
	{"chunks without elements", func(doc map[string]any) { grid(doc)["chunk_shape"] = []int{0, 16, 48} }, []string{"chunk_shape"}},
	{"chunks of another number of dimensions", func(doc map[string]any) { grid(doc)["chunk_shape"] = []int{8, 16} }, []string{"chunk_shape"}},
	{"chunks that do not divide their shard", func(doc map[string]any) { sharding(doc)["chunk_shape"] = []int{3, 8, 16} }, []string{"chunk_shape"}},
	{"shards of more chunks than any index has", func(doc map[string]any) {
		grid(doc)["chunk_shape"] = []int{1 << 40, 8, 16}
		sharding(doc)["chunk_shape"] = []int{1, 8, 16}
	}, []string{"chunk_shape"}},
	{"chunks of 2⁴⁵ bytes", func(doc map[string]any) {
		grid(doc)["chunk_shape"] = []int{1 << 20, 1 << 14, 1 << 10}
		sharding(doc)["chunk_shape"] = []int{1 << 20, 1 << 14, 1 << 10}
	}, []string{""}},
	{"an unknown codec", func(doc map[string]any) {
		sharding(doc)["codecs"] = []any{map[string]any{"name": "bytes", "configuration": map[string]any{"endian": "little"}}, map[string]any{"name": "zfp"}}
	}, []string{"zfp"}},
	{"an image codec", func(doc map[string]any) { doc["codecs"] = []any{map[string]any{"name": "imagecodecs_jpegxl"}} }, []string{"imagecodecs_jpegxl"}},
	{"an index that is compressed", func(doc map[string]any) {
		sharding(doc)["index_codecs"] = []any{map[string]any{"name": "bytes", "configuration": map[string]any{"endian": "little"}}, map[string]any{"name": "gzip", "configuration": map[string]any{"level": 1}}}
	}, []string{"index_codecs", "must be bytes, or bytes and crc32c"}},
	{"transposing before sharding", func(doc map[string]any) {
		doc["codecs"] = append([]any{map[string]any{"name": "transpose", "configuration": map[string]any{"order": []int{2, 1, 0}}}}, doc["codecs"].([]any)...)
	}, []string{"before or after sharding_indexed"}},
	{"storage transformers", func(doc map[string]any) { doc["storage_transformers"] = []any{map[string]any{"name": "secret"}} }, []string{"storage_transformers"}},
	{"a grid that is not regular", func(doc map[string]any) { doc["chunk_grid"].(map[string]any)["name"] = "rectilinear" }, []string{"rectilinear"}},
	{"a member that must be understood", func(doc map[string]any) { doc["surprise"] = map[string]any{"name": "x"} }, []string{"surprise"}},
	{"strings", func(doc map[string]any) { doc["data_type"] = "string" }, []string{"data_type", "string"}},
	{"a fill value that is no number", func(doc map[string]any) { doc["fill_value"] = "much" }, []string{"fill_value"}},
	{"a fill value that does not fit", func(doc map[string]any) { doc["fill_value"] = 1 << 20 }, []string{"fill_value"}},
	{"another version", func(doc map[string]any) { doc["zarr_format"] = 4 }, []string{"zarr_format"}},
	{"several things at once", func(doc map[string]any) {
		doc["data_type"], doc["shape"], doc["surprise"] = "string", []int{13, -1, 50}, 7
	}, []string{"data_type", "shape", "surprise"}},
	{"deep JSON", func(doc map[string]any) {
		deep := any(1)
		for range 100 {
			deep = []any{deep}
		}
		doc["attributes"] = map[string]any{"deep": deep}
	}, []string{"zarr.json"}},
	{"17 MiB of JSON", func(doc map[string]any) {
		doc["attributes"] = map[string]any{"long": strings.Repeat("x", 17<<20)}
	}, []string{"zarr.json", "16"}},
}

// Invalid documents are refused with text that names the problem, within the promised memory.
// Nothing is mounted.
func TestUnsupportedDocumentsAreRefusedWithExplanation(t *testing.T) {
	for _, c := range refusedDocuments {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := edited(t, "sharded-zstd", c.edit)
			r := bounded(t, append([]string{"index", path, "--format", "zarr", "--memory", fmt.Sprint(hostileMemory)}, smallCrops...)...)
			require.NotZero(t, r.code)
			for _, words := range c.says {
				require.Contains(t, r.stderr, words)
			}
		})
	}
}

// Files next to the objects, and beyond the grid, have no effect.
func TestFilesThatAreNotObjectsAreIgnored(t *testing.T) {
	path := store(t, makeVersion3, "plain-none")
	want := toolOK(t, append([]string{"cat", path, "--format", "zarr"}, smallCrops...)...)
	for _, name := range []string{"c/99/0/0", "c/0/0/00", "c/0/0/0.bak", "c/0/x", "c/0/0/-1", "README", "c/readme/0/0", "c/0/0/18446744073709551617", ".hidden"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(path, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(path, name), []byte("nothing"), 0o644))
	}
	requireSameBytes(t, want, toolOK(t, append([]string{"cat", path, "--format", "zarr"}, smallCrops...)...), "with other files")
}

// A shard's index without a checksum may contain anything. What points outside its object, or to
// more than a brick can have, is not a brick. No memory is allocated for what it claims.
func TestBogusIndexesAreEIO(t *testing.T) {
	const absent = 1<<64 - 1
	for name, entry := range map[string][2]uint64{
		"behind the object":     {1 << 40, 100},
		"over its end":          {10, 1 << 20},
		"offset near 2⁶⁴":       {absent - 10, 100},
		"size near 2⁶⁴":         {10, absent - 10},
		"size of 2³⁰":           {0, 1 << 30},
		"only half absent":      {absent, 10},
		"the other half absent": {10, absent},
		"no bytes":              {10, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := store(t, makeVersion3, "no-checksum")
			object, at := lateObject(t, path, true)
			b, err := os.ReadFile(object)
			require.NoError(t, err)
			index := b[len(b)-16*2*2*3:]
			for i := 0; i < len(index); i += 16 {
				binary.LittleEndian.PutUint64(index[i:], entry[0])
				binary.LittleEndian.PutUint64(index[i+8:], entry[1])
			}
			require.NoError(t, os.WriteFile(object, b, 0o644))
			r := bounded(t, append([]string{"cat", path, "--format", "zarr", "--memory", fmt.Sprint(hostileMemory)}, lateCrops...)...)
			require.NotZero(t, r.code)
			require.Contains(t, r.stderr, at)
		})
	}
}

// A blosc buffer with a false header is not a brick, and takes no more memory than a brick.
func TestBogusBloscHeadersAreEIO(t *testing.T) {
	word := binary.LittleEndian.PutUint32
	for name, damage := range map[string]func(b []byte){
		"version":             func(b []byte) { b[0] = 9 },
		"a flag of later":     func(b []byte) { b[2] |= 8 },
		"another codec":       func(b []byte) { b[2] = b[2]&0x1f | 7<<5 },
		"no bytes":            func(b []byte) { word(b[4:], 0) },
		"more bytes":          func(b []byte) { word(b[4:], 1<<31) },
		"blocks of no bytes":  func(b []byte) { word(b[8:], 0) },
		"tiny blocks":         func(b []byte) { word(b[8:], 1) },
		"fewer stored bytes":  func(b []byte) { word(b[12:], 17) },
		"more stored bytes":   func(b []byte) { word(b[12:], 1<<31-1) },
		"a block before all":  func(b []byte) { word(b[16:], 3) },
		"a block behind all":  func(b []byte) { word(b[16:], 1<<30) },
		"a negative block":    func(b []byte) { word(b[16:], 1<<31) },
		"a block's long part": func(b []byte) { word(b[20:], 1<<30) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := store(t, makeVersion3, "plain-blosc")
			object, at := lateObject(t, path, false)
			b, err := os.ReadFile(object)
			require.NoError(t, err)
			whole := bytes.Clone(b)
			damage(b)
			require.NotEqual(t, whole, b)
			require.NoError(t, os.WriteFile(object, b, 0o644))
			r := bounded(t, append([]string{"cat", path, "--format", "zarr", "--memory", fmt.Sprint(hostileMemory)}, lateCrops...)...)
			require.NotZero(t, r.code, "%x", b[:20])
			require.Contains(t, r.stderr, at)
			require.Contains(t, r.stderr, "blosc")
		})
	}
}
