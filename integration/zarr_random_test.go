package integration

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// drawnStores is how many stores are drawn.
var drawnStores = flag.Int("drawn-stores", 24, "Zarr stores that are drawn at random")

// makeDrawn draws stores of any shape, type and codec, and for each of them flags of crops. Those
// of version 2 are written by zarr-python, those of version 3 from the specification.
//
//	ROOT/17/flags.json, ROOT/17/s.zarr/a, ROOT/17/s.zarr/b, …
const makeDrawn = `
import itertools, json, os, random, struct, sys
import numcodecs as nc
import numpy as np
import zarr

sys.path.insert(0, "reference")
from stored import crc32c

root, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
NAMES = ["time", "level", "y", "x"]
TYPES = "|b1 |i1 |u1 <i2 <u2 >i2 >u2 <i4 >i4 <u4 >u4 <i8 >i8 <u8 >u8 <f2 >f2 <f4 >f4 <f8 >f8 <c8 >c8 <c16 >c16 <M8[h] >M8[ns] <m8[s] |S3 |S7 <U2 >U3".split()
one = lambda n: r.randrange(n) == 0

def values(dtype, shape):
    dtype, n = np.dtype(dtype), int(np.prod(shape))
    g = np.random.default_rng(r.getrandbits(32))
    if dtype.kind == "U":
        return np.array(["".join(chr(65 + x) for x in g.integers(0, 26, g.integers(0, dtype.itemsize // 4 + 1))) for _ in range(n)], dtype).reshape(shape)
    if dtype.kind == "S":
        return g.integers(65, 90, (n, dtype.itemsize)).astype("u1").reshape(-1).view(dtype).reshape(shape)
    if dtype.kind in "Mm":
        return g.integers(-10**6, 10**6, shape).astype("i8").view(dtype.newbyteorder("="))
    if dtype.kind == "c":
        return (g.normal(size=shape) + 1j * g.normal(size=shape)).astype(dtype)
    if dtype.kind == "f":
        v = g.normal(size=shape)
        v.flat[:: 7] = g.choice([0.0, -0.0, np.inf, -np.inf, np.nan])
        return v.astype(dtype)
    if dtype.kind == "b":
        return g.integers(0, 2, shape).astype(bool)
    if one(3):
        return (np.arange(n).reshape(shape) % 120 + g.integers(0, 3, shape)).astype(dtype)
    bounds = np.iinfo(dtype)
    return g.integers(bounds.min, bounds.max, shape, dtype=dtype.newbyteorder("="), endpoint=True).astype(dtype)

def fill_of(dtype):
    dtype = np.dtype(dtype)
    if dtype.kind in "Mm":
        return None
    if dtype.kind in "SU":
        return dtype.type("ab") if dtype.kind == "U" else b"xy"
    if dtype.kind == "b":
        return bool(one(2))
    if dtype.kind == "f":
        return r.choice([0, 1.5, -2, float("nan"), float("inf"), float("-inf")])
    if dtype.kind == "c":
        return 0
    bounds = np.iinfo(dtype)
    return r.choice([0, 1, int(bounds.min), int(bounds.max)])

def compressor():
    return r.choice([
        None, nc.Zlib(r.randrange(10)), nc.GZip(1), nc.Zstd(r.choice([-3, 1, 9])), nc.LZ4(), nc.BZ2(1),
        nc.Blosc(r.choice(["lz4", "lz4hc", "blosclz", "zlib", "zstd"]), r.randrange(10), r.choice([-1, 0, 1, 2]), r.choice([0, 0, 128, 256, 1000, 4096])),
        nc.Blosc(r.choice(["lz4", "zstd", "blosclz"]), 5, r.choice([1, 2]), r.choice([0, 128])),
    ])

def filters(dtype):
    dtype, text = np.dtype(dtype), dtype
    if dtype.kind in "iu" and one(3):
        return [nc.Delta(text)]
    if one(5):
        return [nc.Shuffle(dtype.itemsize)]
    if dtype.kind == "f" and dtype.itemsize > 2 and one(3):
        return [nc.Quantize(2, text)]
    return None

def version2(group, name, v, chunks, dtype, dims, named):
    fill, filtered = fill_of(dtype), filters(dtype)
    if one(6):
        fill = None
    a = group.create_dataset(name, shape=v.shape, chunks=chunks, dtype=dtype, fill_value=fill, compressor=compressor(), filters=filtered,
        order=r.choice("CF"), dimension_separator=r.choice("./"), overwrite=True)
    a[...] = v
    if named:
        a.attrs["_ARRAY_DIMENSIONS"] = dims
    if fill is not None:
        path = os.path.join(group.store.path, name)
        for d, _, names in os.walk(path):
            for x in names:
                if not x.startswith(".") and one(6):
                    os.remove(os.path.join(d, x))

def chain_of(dtype, dims, brick):
    chain = []
    if dims > 1 and one(3):
        order = list(range(dims))
        r.shuffle(order)
        chain.append({"name": "transpose", "configuration": {"order": order}})
    big = one(4)
    chain.append({"name": "bytes", "configuration": {"endian": "big" if big else "little"}} if dtype.itemsize > 1 or one(2) else {"name": "bytes"})
    packers = []
    for _ in range(r.choice([0, 1, 1, 1, 2])):
        kind = r.choice(["gzip", "zstd", "blosc", "blosc", "crc32c"])
        if kind == "gzip":
            packers.append(nc.GZip(2).encode)
            chain.append({"name": "gzip", "configuration": {"level": 2}})
        elif kind == "zstd":
            packers.append(nc.Zstd(3).encode)
            chain.append({"name": "zstd", "configuration": {"level": 3, "checksum": False}})
        elif kind == "crc32c":
            packers.append(lambda b: bytes(b) + struct.pack("<I", crc32c(bytes(b))))
            chain.append({"name": "crc32c"})
        else:
            cname, shuffle, block = r.choice(["lz4", "lz4hc", "blosclz", "zlib", "zstd"]), r.choice([0, 1, 2]), r.choice([0, 128, 512])
            # Numbers of dtype's size make c-blosc take it as the size of its elements.
            packers.append(lambda b: nc.Blosc(cname, 5, shuffle, block).encode(np.frombuffer(bytes(b), dtype) if dtype.kind != "b" and len(b) % dtype.itemsize == 0 else bytes(b)))
            chain.append({"name": "blosc", "configuration": {"cname": cname, "clevel": 5, "shuffle": ["noshuffle", "shuffle", "bitshuffle"][shuffle], "typesize": dtype.itemsize, "blocksize": block}})
    def encode(box):
        for codec in chain[:1]:
            if codec["name"] == "transpose":
                box = box.transpose(codec["configuration"]["order"])
        data = np.ascontiguousarray(box).astype(dtype.newbyteorder(">" if big else "<")).tobytes()
        for pack in packers:
            data = bytes(pack(data))
        return data
    return chain, encode

def version3(path, v, chunks, dtype, dims, named):
    dtype, shape = np.dtype(dtype).newbyteorder("="), v.shape
    v = v.astype(dtype)
    fill = fill_of(dtype)
    text = fill if not isinstance(fill, float) or np.isfinite(fill) else "NaN" if np.isnan(fill) else "Infinity" if fill > 0 else "-Infinity"
    sharded = not one(3)
    each = [r.randrange(1, 4) if sharded else 1 for _ in shape]
    edges = [b * n for b, n in zip(chunks, each)]
    chain, encode = chain_of(dtype, len(shape), chunks)
    start, checksum, big = one(2), one(2), one(4)
    index = [{"name": "bytes", "configuration": {"endian": "big" if big else "little"}}] + [{"name": "crc32c"}] * checksum
    shard = {"name": "sharding_indexed", "configuration": {"chunk_shape": chunks, "codecs": chain, "index_codecs": index, "index_location": "start" if start else "end"}}
    if not start and one(2):
        del shard["configuration"]["index_location"]
    keys = {"name": r.choice(["default", "v2"])}
    separator = "/" if keys["name"] == "default" else "."
    if one(2):
        separator = r.choice("./")
        keys["configuration"] = {"separator": separator}
    os.makedirs(path)
    doc = {
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": dtype.name, "fill_value": text, "codecs": [shard] if sharded else chain,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": edges}}, "chunk_key_encoding": keys, "attributes": {},
    }
    if named:
        doc["dimension_names"] = dims
    json.dump(doc, open(path + "/zarr.json", "w"))

    def brick(place):
        box = np.full(chunks, fill, dtype)
        part = v[tuple(slice(i * b, (i + 1) * b) for i, b in zip(place, chunks))]
        box[tuple(slice(n) for n in part.shape)] = part
        return encode(box)

    for place in itertools.product(*(range(-(-n // e)) for n, e in zip(shape, edges))):
        if one(8):
            continue
        file = path + "/" + separator.join((["c"] if keys["name"] == "default" else []) + [str(i) for i in place])
        os.makedirs(os.path.dirname(file), exist_ok=True)
        if not sharded:
            open(file, "wb").write(brick(place))
            continue
        places = list(itertools.product(*map(range, each)))
        size, data, where = 16 * len(places) + 4 * checksum, bytearray(), {}
        data += bytes(size if start else 0)
        for i in r.sample(range(len(places)), len(places)):
            at = [p * n + q for p, n, q in zip(place, each, places[i])]
            if all(a * b < n for a, b, n in zip(at, chunks, shape)) and not one(7):
                data += bytes(r.randrange(5))
                packed = brick(at)
                where[i] = (len(data), len(packed))
                data += packed
        table = b"".join(struct.pack(">QQ" if big else "<QQ", *where.get(i, (2**64 - 1,) * 2)) for i in range(len(places)))
        table += struct.pack("<I", crc32c(table)) if checksum else b""
        open(file, "wb").write(table + data[size:] if start else data + table)

def crops(dims, shape, named):
    """Flags of crops of an array, of at most some hundred of them."""
    parts = {"--crop": [], "--stride": [], "--step": [], "--wrap": []}
    selects, total = [], 1
    for dim, n in zip(dims, shape):
        begin, end, wraps = 0, n, named and one(4)
        if wraps:
            parts["--wrap"].append(dim)
        elif named and n > 1 and one(4):
            begin = r.randrange(n)
            end = r.randrange(begin + 1, n + 1)
            if one(6):
                chosen = r.sample(range(n), r.randrange(1, n + 1))
                selects += ["--select", dim + "=" + ",".join(map(str, chosen))]
                continue
            selects += ["--select", "%s=%d:%d" % (dim, begin, end)]
        k = r.randrange(1, 4) if one(3) else 1
        c = r.randrange(1, (end - begin - 1) // k + 2)
        s = r.randrange(1, max(2, n // 2)) if not one(3) else (c - 1) * k + 1
        while total * (-(-n // s)) > 400:
            s += 1
        total *= -(-n // s)
        put = lambda flag, x: parts[flag].append("%s=%d" % (dim, x) if named else str(x))
        put("--crop", c)
        put("--stride", s)
        put("--step", k)
    if not parts["--crop"]:  # a crop is asked for
        return crops(dims, shape, named)
    flags = selects
    for flag, list_of in parts.items():
        if list_of:
            flags += [flag, ",".join(list_of)]
    if one(3):
        flags += ["--edge", "cover"]
    if one(2):
        flags += ["--jitter"]
    if one(4):
        flags += ["--missing", "skip"]
    return flags

for i in range(count):
    r = random.Random(seed * 1000003 + i)
    base = os.path.join(root, str(i))
    path = base + "/s.zarr"
    three, named, dims = one(2), not one(6), NAMES[r.randrange(4):]
    types = [t for t in TYPES if np.dtype(t).kind not in "cMmSU"] if three else TYPES
    while True:
        shape = [r.choice([1, 2, 3, 5, 7, 8, 13, 16, 17, 31]) for _ in dims]
        if np.prod(shape) <= 6000:
            break
    edges = lambda shape: [r.choice([1, 2, 3, 4, 8, n, n, max(1, n // 2), n + r.randrange(4)]) if n < 1000 else n for n in shape]
    group = None
    if three:
        os.makedirs(path)
        json.dump({"zarr_format": 3, "node_type": "group", "attributes": {}}, open(path + "/zarr.json", "w"))
    else:
        group = zarr.open_group(path, mode="w")
    fields, stack = r.choice([1, 1, 2, 3]) if named else 1, one(3)
    dtype = r.choice(types)
    for k in range(fields):
        own = list(range(len(dims)))
        if k and not stack:
            own = [d for d in own if not one(4)] or own
            dtype = r.choice(types)
        name = "abc"[k]
        of = [shape[d] for d in own]
        while True:
            chunks = edges(of)
            if np.prod([-(-n // c) for n, c in zip(of, chunks)]) <= 300:
                break
        args = values(dtype, of), chunks, dtype, [dims[d] for d in own], named
        if three:
            version3(path + "/" + name, *args)
        else:
            version2(group, name, *args)
    flags = ["--array", ",".join(("n%d=" % k if one(3) else "") + "abc"[k] for k in range(fields))] + crops(dims, shape, named)
    if stack and fields > 1:
        flags.append("--stack")
    json.dump(flags, open(base + "/flags.json", "w"))
`

// For any store, and any crops of it, all workers read what another program reads, from the start
// and from the middle.
func TestRandomStoresEqualReference(t *testing.T) {
	root := t.TempDir()
	out, err := exec.Command(python(t, "numpy", "zarr", "numcodecs"), "-B", "-c", makeDrawn, root, fmt.Sprint(*drawSeed), fmt.Sprint(*drawnStores)).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for i := range *drawnStores {
		var flags []string
		b, err := os.ReadFile(filepath.Join(root, fmt.Sprint(i), "flags.json"))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(b, &flags))
		dice := rand.New(rand.NewPCG(*drawSeed, 5000+uint64(i)))
		s := settings{
			Seed: dice.Uint64() >> 1, Epoch: uint64(dice.IntN(3)), Shuffle: []string{"none", "full", "block", "reservoir"}[dice.IntN(4)],
			ShuffleSize: 1 + dice.IntN(60), Lanes: []int{1, 2, 4, 8}[dice.IntN(4)], Groups: 1, ChunkBytes: 1 << (8 + dice.IntN(12)), ChunkRecords: 1 + dice.IntN(9),
			Workers: 1 + dice.IntN(3), Batch: 1 + dice.IntN(3), Deal: "interleaved", Tail: []string{"keep", "drop", "pad"}[dice.IntN(3)],
		}
		memory := []string{"1MiB", "64MiB", "1GiB"}[dice.IntN(3)]
		t.Run(fmt.Sprintf("%d %s", i, strings.Join(flags, " ")), func(t *testing.T) {
			t.Parallel()
			d := cropsOf(filepath.Join(root, fmt.Sprint(i), "s.zarr"), flags...)
			args := slices.Concat([]string{"cat", d.dir, "--memory", memory, "--epoch", fmt.Sprint(s.Epoch)}, d.flags, s.flags())
			r := tool(t, append(args, "--worker", "0")...)
			if strings.Contains(r.stderr, "crops are left out") { // with --missing skip, and nothing is left
				require.Contains(t, flags, "skip")
				return
			}
			ref := newReference(t, d)
			total := len(ref.g(s))
			for w := range s.Workers {
				from := 0
				if w > 0 {
					from = dice.IntN(total + 1)
				}
				r := tool(t, append(args, "--worker", fmt.Sprint(w), "--from", fmt.Sprint(from))...)
				require.Zero(t, r.code, "%s\n%+v\n-drawseed %d draws it again", r.stderr, s, *drawSeed)
				requireSameBytes(t, ref.ask(question{settings: s, Worker: w, From: from, Kind: "data"}), r.stdout, "worker %d from %d of %+v", w, from, s)
			}
		})
	}
}
