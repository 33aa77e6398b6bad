package integration

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// makeNested writes arrays of version 3 with shards inside shards, from the specification: a
// directory each. The contents of a shard are in any order, with gaps, and some are absent, at each
// level.
const makeNested = `
import itertools, json, os, struct, sys
import numcodecs as nc
import numpy as np

sys.path.insert(0, "reference")
from stored import crc32c

root = sys.argv[1]
BYTES = {"name": "bytes", "configuration": {"endian": "little"}}

def make(name, edges, checksums, starts, pack=None, codec=None, shape=(13, 37, 50), fill=9, absent=0.12):
    path, random = os.path.join(root, name), np.random.default_rng(len(name))
    values = random.integers(0, 4000, shape).astype("<i2")
    codecs = [BYTES] + [codec] * (codec is not None)
    for inner, checksum, start in zip(edges[:0:-1], checksums[::-1], starts[::-1]):
        index = [BYTES] + [{"name": "crc32c"}] * checksum
        codecs = [{"name": "sharding_indexed", "configuration": {"chunk_shape": inner, "codecs": codecs, "index_codecs": index, "index_location": "start" if start else "end"}}]
    os.makedirs(path)
    json.dump({
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "int16", "fill_value": fill, "codecs": codecs,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": edges[0]}}, "chunk_key_encoding": {"name": "default"}, "dimension_names": ["time", "y", "x"],
    }, open(path + "/zarr.json", "w"))

    def encode(level, origin):
        """The bytes of a box, None of one that is absent."""
        if any(o >= n for o, n in zip(origin, shape)) or random.random() < absent:
            return None
        if level == len(edges) - 1:
            box = np.full(edges[level], fill, "<i2")
            part = values[tuple(slice(o, o + n) for o, n in zip(origin, edges[level]))]
            box[tuple(slice(n) for n in part.shape)] = part
            return bytes(pack.encode(box.tobytes())) if pack else box.tobytes()
        inner, checksum, start = edges[level + 1], checksums[level], starts[level]
        places = list(itertools.product(*(range(a // b) for a, b in zip(edges[level], inner))))
        size = 16 * len(places) + 4 * checksum
        data, where = bytearray(size if start else 0), {}
        for i in random.permutation(len(places)):
            one = encode(level + 1, [o + p * n for o, p, n in zip(origin, places[i], inner)])
            if one is not None:
                data += bytes(int(random.integers(0, 5)))
                where[i] = (len(data), len(one))
                data += one
        table = b"".join(struct.pack("<QQ", *where.get(i, (2**64 - 1,) * 2)) for i in range(len(places)))
        table += struct.pack("<I", crc32c(table)) if checksum else b""
        return table + data[size:] if start else bytes(data) + table

    for place in itertools.product(*(range(-(-n // e)) for n, e in zip(shape, edges[0]))):
        data = encode(0, [p * e for p, e in zip(place, edges[0])])
        if data is not None:
            file = path + "/c/" + "/".join(map(str, place))
            os.makedirs(os.path.dirname(file), exist_ok=True)
            open(file, "wb").write(data)

two, three = [(8, 16, 48), (4, 16, 16), (4, 8, 16)], [(8, 32, 48), (8, 16, 24), (4, 16, 12), (2, 4, 12)]
make("two", two, [True, True], [False, False])
make("two-zstd", two, [True, False], [True, False], nc.Zstd(3), {"name": "zstd", "configuration": {"level": 3, "checksum": False}})
make("three-blosc", three, [False, True, True], [False, True, False], nc.Blosc("lz4", 5, 1), {"name": "blosc", "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 2, "blocksize": 0}})
make("one-in-one", [(8, 16, 48), (8, 16, 48), (4, 8, 16)], [True, True], [False, True])
make("all-there", two, [False, False], [False, False], absent=0)
`

// Crops of shards in shards equal another implementation's, through cat and through a mount.
func TestCropsOfNestedShardsEqualReference(t *testing.T) {
	for _, path := range stores(t, makeNested) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			d := cropsOf(path, append(smallCrops, "--jitter")...)
			requireCrops(t, d, smallOrder())
			ref, s := newReference(t, d), smallOrder()
			m := mountDataset(t, d, s, "--memory", "1MiB")
			for w := range s.Workers {
				requireFile(t, ref.data(s, w), m.path("worker-%d.npy", w))
			}
		})
	}
}

// takeApart writes each shard in the objects of an array as a separate array, which is then sharded
// once.
const takeApart = `
import itertools, json, os, struct, sys
path, out = sys.argv[1:]
doc = json.load(open(path + "/zarr.json"))
outer, = doc["codecs"]
c, edges = outer["configuration"], doc["chunk_grid"]["configuration"]["chunk_shape"]
counts = [a // b for a, b in zip(edges, c["chunk_shape"])]
places = list(itertools.product(*map(range, counts)))
size = 16 * len(places) + 4 * (len(c["index_codecs"]) - 1)
for directory, _, names in os.walk(path + "/c"):
    for name in names:
        data = open(os.path.join(directory, name), "rb").read()
        index = data[:size] if c["index_location"] == "start" else data[-size:]
        at = [int(x) for x in os.path.relpath(os.path.join(directory, name), path + "/c").split("/")]
        for i, place in enumerate(places):
            offset, n = struct.unpack_from("<QQ", index, 16 * i)
            if offset < 2**64 - 1:
                file = out + "/c/" + "/".join(str(a * m + p) for a, m, p in zip(at, counts, place))
                os.makedirs(os.path.dirname(file), exist_ok=True)
                open(file, "wb").write(data[offset : offset + n])
doc["codecs"], doc["chunk_grid"]["configuration"]["chunk_shape"] = c["codecs"], c["chunk_shape"]
json.dump(doc, open(out + "/zarr.json", "w"))
`

// zarrita reads one level of shards. When taken apart, an array of two levels has the same elements
// as before. zarrita does not support an index at the start of a shard.
func TestZarritaReadsSameElementsInUnnestedShards(t *testing.T) {
	node, modules := nodeWith(t, "zarrita")
	interpreter := python(t)
	for _, name := range []string{"two", "two-zstd", "all-there"} {
		path, apart := store(t, makeNested, name), t.TempDir()
		output(t, interpreter, "-c", takeApart, path, apart)
		own := toolOK(t, "cat", path, "--format", "zarr", "--crop", "time=13")
		want := output(t, node, "-e", wholeByZarrita, modules, apart)
		require.Greater(t, len(own), len(want))
		requireSameBytes(t, want, own[len(own)-len(want):], "%s", name)
	}
}

// Indexes without checksums may contain anything, at each level. What points outside the index's
// own shard is not a brick, and no brick in another object or outside of it is read.
func TestBogusIndexesOfNestedShardsAreErrors(t *testing.T) {
	const absent = 1<<64 - 1
	const shards, bricks = 6, 2 // per object, and per shard
	for name, entry := range map[string][2]uint64{
		"behind the object":     {1 << 40, 100},
		"offset near 2⁶⁴":       {absent - 10, 100},
		"size near 2⁶⁴":         {10, absent - 10},
		"only half absent":      {absent, 10},
		"the other half absent": {10, absent},
		"no bytes":              {10, 0},
		"over the object's end": {900, 1 << 14},
		"in another shard":      {2000, 1024},
	} {
		for _, level := range []string{"outer", "inner"} {
			t.Run(level+": "+name, func(t *testing.T) {
				t.Parallel()
				path := store(t, makeNested, "all-there")
				object := filepath.Join(path, "c", "1", "1", "0")
				b, err := os.ReadFile(object)
				require.NoError(t, err)
				outer := b[len(b)-16*shards:]
				index := outer
				if level == "inner" { // of the first shard
					offset, size := binary.LittleEndian.Uint64(outer), binary.LittleEndian.Uint64(outer[8:])
					index = b[offset+size-16*bricks : offset+size]
				}
				require.NotEmpty(t, index)
				for i := 0; i < len(index); i += 16 {
					binary.LittleEndian.PutUint64(index[i:], entry[0])
					binary.LittleEndian.PutUint64(index[i+8:], entry[1])
				}
				require.NoError(t, os.WriteFile(object, b, 0o644))
				r := bounded(t, append([]string{"cat", path, "--format", "zarr", "--memory", fmt.Sprint(hostileMemory)}, smallCrops...)...)
				require.NotZero(t, r.code)
				require.Contains(t, r.stderr, "c/1/1/0")
			})
		}
	}
}

// An outer index may claim that an inner shard is where the outer index itself, or another shard,
// is. What is read there is not an index, or not a brick, and is an error if a checksum or a size
// shows that.
func TestOverlappingShardsAreReadAsStored(t *testing.T) {
	path := store(t, makeNested, "all-there")
	object := filepath.Join(path, "c", "0", "0", "0")
	b, err := os.ReadFile(object)
	require.NoError(t, err)
	outer := b[len(b)-16*6:]
	copy(outer, outer[16:32]) // two shards become one
	require.NoError(t, os.WriteFile(object, b, 0o644))
	requireCrops(t, cropsOf(path, smallCrops...), smallOrder())
	binary.LittleEndian.PutUint64(outer, 0)
	binary.LittleEndian.PutUint64(outer[8:], uint64(len(b))) // an object inside itself
	require.NoError(t, os.WriteFile(object, b, 0o644))
	r := bounded(t, slices.Concat([]string{"cat", path, "--format", "zarr", "--memory", fmt.Sprint(hostileMemory)}, smallCrops)...)
	require.NotZero(t, r.code)
	require.Contains(t, r.stderr, "c/0/0/0")
}
