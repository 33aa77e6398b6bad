package integration

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// wholeByZarrita writes all elements of an array to stdout, little-endian and in C order.
const wholeByZarrita = `
(async () => {
  const [modules, path] = process.argv.slice(1);
  const zarr = await import(modules + '/zarrita/dist/src/index.js');
  const { default: FileSystemStore } = await import(modules + '/@zarrita/storage/dist/src/fs.js');
  const array = await zarr.open(new FileSystemStore(path), { kind: 'array' });
  const { data, shape, stride } = await zarr.get(array);
  const out = new data.constructor(data.length);
  const copy = (dim, from, to) => {
    if (dim === shape.length) { out[to] = data[from]; return; }
    for (let i = 0; i < shape[dim]; i++) copy(dim + 1, from + i * stride[dim], to * shape[dim] + i);
  };
  copy(0, 0, 0);
  process.stdout.write(Buffer.from(out.buffer, out.byteOffset, out.byteLength));
})().catch((e) => { console.error(e); process.exit(1); });
`

// zarrita is a third program that reads Zarr. For version 3 it is the only other one; otherwise we
// would depend on our own test writer's understanding of the format. It does not support an index
// at the start of a shard.
func TestZarritaReadsSameElements(t *testing.T) {
	node, modules := nodeWith(t, "zarrita")
	read := 0
	for version, make := range map[string]string{"version 2": makeVersion2, "version 3": makeVersion3} {
		for _, path := range stores(t, make) {
			name := filepath.Base(path)
			if version == "version 2" && !zarritaReads[name] || name == "start" || name == "start-no-checksum" {
				continue
			}
			read++
			t.Run(version+", "+name, func(t *testing.T) {
				t.Parallel()
				// One crop is all of it.
				own := toolOK(t, "cat", path, "--format", "zarr", "--crop", "time=13")
				want := output(t, node, "-e", wholeByZarrita, modules, path)
				require.Greater(t, len(own), len(want))
				requireSameBytes(t, want, own[len(own)-len(want):], "%s", name)
			})
		}
	}
	require.Equal(t, 15+len(zarritaReads), read)
}

// zarritaReads are arrays of version 2 that it can read: it has no filters, and few compressors.
var zarritaReads = map[string]bool{
	"blosc-lz4-1": true, "blosc-zstd-1": true, "blosc-zstd-2": true, "blosc-blosclz-2": true, "blosc-small-blocks": true,
	"none": true, "zlib": true, "gzip": true, "zstd": true, "slash": true, "order-f": true,
	"dtype-be-i2": true, "dtype-le-u2": true, "dtype-be-f8": true, "dtype-u1": true, "nan": true, "inf": true,
}

// What NumPy maps is what zarr-python has at the places named in worker-W.crops.npy, for fields of
// several arrays and cubes, which move in each epoch. Each position occurs once per epoch.
func TestNumPyMapsSameElementsAsZarrPythonAtOrigins(t *testing.T) {
	var dir string
	for _, path := range stores(t, makeSeveral) {
		dir = filepath.Dir(path)
	}
	d := cropsOf(filepath.Join(dir, "all"), "--array", "t=a/t2m,o=oro,level", "--crop", "time=3,y=5,x=6", "--stride", "time=2,y=3,x=4", "--jitter")
	m := mountDataset(t, d, smallOrder())
	out := script(t, python(t, "numpy", "zarr", "numcodecs"), `
import sys
import numpy as np, zarr
mount, root = sys.argv[1:]
cubes = [zarr.open_group("%s/%d.zarr" % (root, year), "r") for year in (2018, 2019)]
rows_of, origins = [], set()
for epoch in range(3):
    rows = []
    for w in range(2):
        name = "%s/epoch-%d/worker-%d-of-2" % (mount, epoch, w)
        a, where = np.load(name + ".npy", mmap_mode="r"), np.load(name + ".crops.npy", mmap_mode="r")
        assert isinstance(a, np.memmap) and a.dtype["t"].shape == (3, 5, 6) and a.dtype["level"].shape == (3, 3, 5, 6)
        assert where.dtype == "<i8" and where.shape == (len(a), 5)
        for record, (cube, row, time, y, x) in zip(a, where.tolist()):
            t, yx = slice(time, time + 3), (slice(y, y + 5), slice(x, x + 6))
            g = cubes[cube]
            assert (record["t"] == g["a/t2m"][(t,) + yx]).all()
            assert (record["o"] == g["oro"][yx]).all()
            assert (record["level"] == g["level"][(t, slice(None)) + yx]).all()
            rows.append((cube, row))
            origins.add((cube, time, y, x))
    rows_of.append(sorted(rows))
assert rows_of[0] == rows_of[1] == rows_of[2] and len(set(rows_of[0])) == len(rows_of[0])
print(len(rows_of[0]), len(origins) > len(rows_of[0]))
`, m.dir, filepath.Join(dir, "all"))
	require.Equal(t, "120 True\n", string(out))
}

// Node reads records by their offsets, and uses zarrita to read their origins.
func TestNodeReadsCropsByOffsetAndVerifiesOrigins(t *testing.T) {
	node, modules := nodeWith(t, "zarrita")
	path := store(t, makeVersion3, "sharded-blosc-zstd")
	m := mountDataset(t, cropsOf(path, append(smallCrops, "--jitter")...), smallOrder())
	out := output(t, node, "-e", `
(async () => {
  const [modules, path, worker] = process.argv.slice(1), fs = require('fs');
  const zarr = await import(modules + '/zarrita/dist/src/index.js');
  const { default: FileSystemStore } = await import(modules + '/@zarrita/storage/dist/src/fs.js');
  const array = await zarr.open(new FileSystemStore(path), { kind: 'array' });
  const numbers = (b) => new BigInt64Array(b.buffer.slice(b.byteOffset, b.byteOffset + b.length));
  const offsets = numbers(fs.readFileSync(worker + '.offsets'));
  const npy = fs.readFileSync(worker + '.crops.npy');
  const crops = numbers(npy.subarray(10 + npy.readUInt16LE(8))); // rows of cube, row, time, y, x
  const fd = fs.openSync(worker + '.npy');
  let same = 0;
  for (let i = offsets.length - 2; i >= 0; i--) {
    const record = Buffer.alloc(Number(offsets[i + 1] - offsets[i]));
    if (fs.readSync(fd, record, 0, record.length, offsets[i]) !== record.length) throw new Error('short read');
    const at = [...crops.subarray(5 * i + 2, 5 * i + 5)].map(Number), count = [4, 10, 9];
    const { data } = await zarr.get(array, at.map((o, d) => zarr.slice(o, o + count[d])));
    if (record.equals(Buffer.from(data.buffer, data.byteOffset, data.byteLength))) same++;
  }
  console.log(offsets.length - 1, same);
})().catch((e) => { console.error(e); process.exit(1); });
`, modules, path, m.path("worker-1"))
	require.Equal(t, "48 48\n", string(out))
}
