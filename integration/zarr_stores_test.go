package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// makeVersion2 makes zarr-python write one array in many ways, a directory each. Every fifth object
// is removed if there is a fill value.
const makeVersion2 = `
import json, os, sys
import numcodecs as nc
import numpy as np
import zarr

sys.path.insert(0, "reference")
from stored import fletcher32

root, shape, chunks = sys.argv[1], (13, 21, 34), (5, 8, 16)
random = np.random.default_rng(5)

def values(dtype):
    dtype, n = np.dtype(dtype), int(np.prod(shape))
    if dtype.kind == "U":
        return np.array(["".join(chr(65 + x) for x in random.integers(0, 26, random.integers(0, 4))) for _ in range(n)], dtype).reshape(shape)
    if dtype.names or dtype.kind == "S":
        return random.integers(65, 90, (n, dtype.itemsize)).astype("u1").reshape(-1).view(dtype).reshape(shape)
    if dtype.kind in "Mm":
        return random.integers(0, 10**6, shape).astype("i8").view(dtype.newbyteorder("="))
    if dtype.kind == "c":
        return (random.normal(size=shape) + 1j * random.normal(size=shape)).astype(dtype)
    if dtype.kind == "f":
        return random.normal(size=shape).astype(dtype)
    return (random.integers(0, 2, shape) if dtype.kind == "b" else np.arange(n).reshape(shape) * 7 % 30011 + random.integers(0, 9, shape)).astype(dtype)

def make(name, dtype="<i2", fill=3, **more):
    path = os.path.join(root, name)
    a = zarr.open_array(path, mode="w", shape=shape, chunks=chunks, dtype=dtype, fill_value=fill, **more)
    a[...] = values(dtype)
    a.attrs["_ARRAY_DIMENSIONS"] = ["time", "y", "x"]
    files = sorted(os.path.join(d, x) for d, _, names in os.walk(path) for x in names if not x.startswith("."))
    for f in files[::5] if fill is not None else []:
        os.remove(f)

for cname in "lz4", "lz4hc", "blosclz", "zlib", "zstd", "snappy":
    for shuffle in 0, 1, 2:
        if cname in nc.blosc.list_compressors():
            make("blosc-%s-%d" % (cname, shuffle), compressor=nc.Blosc(cname, 5, shuffle))
make("blosc-small-blocks", compressor=nc.Blosc("zstd", 3, 1, 256))
for name, codec in dict(none=None, zlib=nc.Zlib(1), gzip=nc.GZip(1), zstd=nc.Zstd(3), lz4=nc.LZ4(), bz2=nc.BZ2(1)).items():
    make(name, compressor=codec)
make("slash", dimension_separator="/")
make("order-f", order="F")
make("order-f-none", order="F", compressor=None)
for dtype in "|b1 |i1 |u1 <u2 >i2 <i4 >u4 <i8 >u8 <f2 >f4 <f8 >f8 <c8 >c16".split():
    make("dtype-" + dtype.replace("<", "le-").replace(">", "be-").replace("|", ""), dtype, 1)
make("nan", "<f4", float("nan"))
make("inf", ">f8", float("-inf"))
make("no-fill", fill=None)
make("dates", "<M8[h]", None)
make("durations", ">m8[s]", None)
make("strings", "|S5", b"ab")
make("unicode", "<U3", "xy")
make("unicode-big", ">U3", "")
make("struct", [("a", "<i2"), ("b", ">f4"), ("c", "|S3")], None)
make("delta", filters=[nc.Delta("<i2")])
make("delta-narrow", "<i4", filters=[nc.Delta("<i4", "<i2")], compressor=nc.Zlib())
make("shuffle", "<i4", filters=[nc.Shuffle(4)], compressor=nc.Zlib())
make("fixed", "<f8", 0, filters=[nc.FixedScaleOffset(1000, 10, "<f8", "<i2")])
make("fixed-f4", "<f4", 0, filters=[nc.FixedScaleOffset(3, 100, "<f4", "<i4")])
make("quantize", "<f8", 0, filters=[nc.Quantize(2, "<f8")])
make("quantize-narrow", "<f8", 0, filters=[nc.Quantize(2, "<f8", "<f4")])
make("bitround", "<f4", 0, filters=[nc.BitRound(7)])
# As references to HDF5 and NetCDF have it.
make("hdf5", ">f4", 0, filters=[nc.Shuffle(4)], compressor=nc.Zlib(4))
make("hdf5-filters", ">i2", 0, filters=[nc.Shuffle(2), nc.Zlib(4)], compressor=None)
make("hdf5-double", "<f8", float("nan"), filters=[nc.Shuffle(8), nc.Zlib(1)], compressor=None)
make("hdf5-checksum", "<i4", -1, filters=[nc.Shuffle(4)], compressor=None)
path = root + "/hdf5-checksum/"
doc = json.load(open(path + ".zarray"))
doc["filters"].append({"id": "fletcher32"})
json.dump(doc, open(path + ".zarray", "w"))
for f in os.listdir(path):
    if not f.startswith("."):
        open(path + f, "ab").write(fletcher32(open(path + f, "rb").read()))
`

// makeVersion3 writes arrays of version 3 from the specification, with bricks by numcodecs: a
// directory each. The bricks of a shard are in any order, with gaps, and some are absent.
const makeVersion3 = `
import itertools, json, os, struct, sys
import numcodecs as nc
import numpy as np

sys.path.insert(0, "reference")
from stored import crc32c

root, random = sys.argv[1], np.random.default_rng(6)
CODECS = {
    "none": (None, []), "gzip": (nc.GZip(2), [{"name": "gzip", "configuration": {"level": 2}}]), "zstd": (nc.Zstd(3), [{"name": "zstd", "configuration": {"level": 3}}]),
    "blosc": (nc.Blosc("lz4", 5, 1), [{"name": "blosc", "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 0}}]),
    "blosc-zstd": (nc.Blosc("zstd", 3, 2, 512), [{"name": "blosc", "configuration": {"cname": "zstd", "clevel": 3, "shuffle": "bitshuffle", "typesize": 2, "blocksize": 512}}]),
}

def make(name, codec="none", dtype="<i2", shape=(13, 37, 50), brick=(4, 8, 16), each=(2, 2, 3), start=False, checksum=True, transpose=None, separator="/", inner_checksum=False, big=False, fill=9):
    path, dtype = os.path.join(root, name), np.dtype(dtype)
    values = (random.integers(0, 4000, shape) + np.arange(np.prod(shape)).reshape(shape)).astype(dtype)
    edges = [b * n for b, n in zip(brick, each)]
    pack, inner = CODECS[codec]
    chain = [{"name": "transpose", "configuration": {"order": transpose}}] if transpose else []
    chain += [{"name": "bytes", "configuration": {"endian": "big" if big else "little"}}] + inner + [{"name": "crc32c"}] * inner_checksum
    index = [{"name": "bytes", "configuration": {"endian": "little"}}] + [{"name": "crc32c"}] * checksum
    sharded = tuple(edges) != tuple(brick)
    shard = {"name": "sharding_indexed", "configuration": {"chunk_shape": brick, "codecs": chain, "index_codecs": index, "index_location": "start" if start else "end"}}
    os.makedirs(path)
    json.dump({
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": dtype.name, "fill_value": fill, "codecs": [shard] if sharded else chain,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": edges}}, "chunk_key_encoding": {"name": "default", "configuration": {"separator": separator}},
        "dimension_names": ["time", "y", "x"],
    }, open(path + "/zarr.json", "w"))

    def encode(place):
        box = np.full(brick, fill, dtype)
        part = values[tuple(slice(i * b, (i + 1) * b) for i, b in zip(place, brick))]
        box[tuple(slice(n) for n in part.shape)] = part
        data = (box.transpose(transpose) if transpose else box).astype(dtype.newbyteorder(">" if big else "<")).tobytes()
        data = bytes(pack.encode(data)) if pack else data
        return data + struct.pack("<I", crc32c(data)) if inner_checksum else data

    for place in itertools.product(*(range(-(-n // e)) for n, e in zip(shape, edges))):
        if random.random() < 0.1:
            continue
        file = path + "/" + separator.join(["c"] + [str(i) for i in place])
        os.makedirs(os.path.dirname(file), exist_ok=True)
        if not sharded:
            open(file, "wb").write(encode(place))
            continue
        places = list(itertools.product(*map(range, each)))
        size = 16 * len(places) + 4 * checksum
        data, where = bytearray(size if start else 0), {}
        for i in random.permutation(len(places)):
            at = [p * n + q for p, n, q in zip(place, each, places[i])]
            if all(a * b < n for a, b, n in zip(at, brick, shape)) and random.random() < 0.85:
                data += bytes(int(random.integers(0, 5)))
                packed = encode(at)
                where[i] = (len(data), len(packed))
                data += packed
        table = b"".join(struct.pack("<QQ", *where.get(i, (2**64 - 1,) * 2)) for i in range(len(places)))
        table += struct.pack("<I", crc32c(table)) if checksum else b""
        data = table + data[size:] if start else data + table
        open(file, "wb").write(data)

for codec in CODECS:
    make("sharded-" + codec, codec)
    make("plain-" + codec, codec, each=(1, 1, 1), separator="." if codec == "zstd" else "/")
make("start", "blosc", "<i4", start=True)
make("no-checksum", "zstd", checksum=False)
make("inner-checksum", "zstd", inner_checksum=True)
make("start-no-checksum", "none", "<f4", start=True, checksum=False)
make("transposed", "blosc-zstd", transpose=[2, 0, 1])
make("big-endian", "gzip", "<f8", big=True)
make("one-brick", "zstd", each=(8, 8, 8))
`

// makeSeveral makes zarr-python write two hierarchies with arrays of several kinds, and lists of
// origins in them.
const makeSeveral = `
import sys
import numpy as np
import zarr

root, random = sys.argv[1], np.random.default_rng(2)
for year, n in (2018, 14), (2019, 9):
    group = zarr.open_group("%s/all/%d.zarr" % (root, year), mode="w")
    for name, shape, dims, dtype, chunks in [
        ("a/t2m", (n, 12, 20), ["time", "y", "x"], "<f4", (3, 5, 6)),
        ("wind", (n, 12, 20), ["time", "y", "x"], "<f4", (1, 12, 20)),
        ("oro", (12, 20), ["y", "x"], ">i2", (5, 7)),
        ("level", (n, 3, 12, 20), ["time", "level", "y", "x"], "u1", (2, 3, 4, 8)),
    ]:
        array = group.create_dataset(name, shape=shape, chunks=chunks, dtype=dtype)
        array[...] = random.integers(0, 250, shape).astype(dtype)
        array.attrs["_ARRAY_DIMENSIONS"] = dims
origin = lambda: (random.integers(0, 6), random.integers(0, 7), random.integers(0, 11))
np.save(root + "/list.npy", np.array([(cube,) + origin() for cube in (0, 1) for _ in range(20)], "<i8"))
np.save(root + "/apart.npy", np.array([(cube, origin(), origin()[1:]) for cube in (1, 0) for _ in range(20)], [("cube", "<i8"), ("t", "<i8", (3,)), ("o", "<i8", (2,))]))
`

// made has a function for each script, which runs it once for all tests.
var made sync.Map

// stores returns the directories that a script makes, once for all tests, which must not change
// them.
func stores(t *testing.T, make string) (paths []string) {
	t.Helper()
	interpreter := python(t, "numpy", "zarr", "numcodecs")
	f, _ := made.LoadOrStore(make, sync.OnceValues(func() (string, error) {
		dir, err := os.MkdirTemp(scratch, "zarr-")
		if err != nil {
			return "", err
		}
		if out, err := exec.Command(interpreter, "-B", "-c", make, dir).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w: %s", err, out)
		}
		return dir, nil
	}))
	dir, err := f.(func() (string, error))()
	require.NoError(t, err)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		paths = append(paths, filepath.Join(dir, e.Name()))
	}
	return paths
}

// store returns a copy of one of them for the test.
func store(t *testing.T, make, name string) string {
	t.Helper()
	for _, path := range stores(t, make) {
		if filepath.Base(path) == name {
			own := filepath.Join(t.TempDir(), name)
			require.NoError(t, os.CopyFS(own, os.DirFS(path)))
			return own
		}
	}
	require.Fail(t, "there is no such store", name)
	return ""
}
