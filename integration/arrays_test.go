package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// makeArrays makes NumPy write shards of one kind, in all format versions. One of them is
// compressed, one has no rows. argv: the directory, the dtype, the shape of a row.
const makeArrays = `
import gzip, os, sys
import numpy as np
from numpy.lib import format

directory, dtype, shape = sys.argv[1], np.dtype(eval(sys.argv[2])), eval(sys.argv[3])
random = np.random.default_rng(1)

def fill(a):
    if a.dtype.names:
        for name in a.dtype.names:
            fill(a[name])
    else:
        a[...] = random.integers(0, 2**15, a.shape).astype(a.dtype)

for i, (rows, version) in enumerate([(40, 1), (0, 1), (61, 2), (7, 3), (90, 1), (33, 1)]):
    a = np.zeros((rows, *shape), dtype)
    fill(a)
    path = os.path.join(directory, "part-%d.npy" % i)
    with gzip.open(path + ".gz", "wb") if i == 5 else open(path, "wb") as f:
        format.write_array(f, a, (version, 0))
`

// readArrays makes NumPy read a mount and compare every row of every stream with the row of its ID,
// using only the definition of IDs (pipeline/order/SELECTION.md), and compare the arrays of the
// Python package with both. argv: the dataset, the mount, the number of workers.
const readArrays = `
import gzip, hashlib, io, json, os, sys
import numpy as np

import lsiofs

directory, mount, workers = sys.argv[1], sys.argv[2], int(sys.argv[3])
rows = {}
for name in sorted(os.listdir(directory)):
    raw = open(os.path.join(directory, name), "rb").read()
    shard = np.load(io.BytesIO(gzip.decompress(raw) if name.endswith(".gz") else raw))
    prefix = hashlib.sha256(b"lsiofs/1 shard " + name.encode()).digest()[:8]
    for ordinal, row in enumerate(shard):
        rows[prefix + ordinal.to_bytes(8, "big")] = row
kind = json.load(open(mount + "/dataset.json"))["format"]["kind"]
assert kind.startswith(repr(np.lib.format.dtype_to_descr(shard.dtype)) + " ("), kind

def same(a, b):
    return repr(a.tolist()) == repr(b.tolist())

def check(stream):
    path = mount + "/" + stream
    loaded, mapped = np.load(path + ".npy"), np.load(path + ".npy", mmap_mode="r")
    assert isinstance(mapped, np.memmap)
    assert loaded.dtype == mapped.dtype == shard.dtype and loaded.shape[1:] == mapped.shape[1:] == shard.shape[1:]
    raw = open(path + ".npy", "rb").read()
    offsets = np.fromfile(path + ".offsets", "<u8")
    ids = open(path + ".ids", "rb").read()
    batches = list(lsiofs.Stream(path + ".npy").arrays(7))
    assert sum(len(b) for b in batches) == len(loaded) and all(same(b, loaded[7 * i : 7 * i + 7]) for i, b in enumerate(batches))
    assert len(loaded) == len(mapped) == len(offsets) - 1 == len(ids) // 16, (len(loaded), len(offsets), len(ids))
    assert offsets[0] % 64 == 0 and offsets[-1] == len(raw) == os.stat(path + ".npy").st_size
    assert raw[:8] == b"\x93NUMPY\1\0"
    for i in range(len(loaded)):
        want = rows[ids[16 * i : 16 * i + 16]]
        assert same(loaded[i], want) and same(mapped[i], want), (stream, i)
        if shard.dtype.itemsize:
            one = np.frombuffer(raw[offsets[i] : offsets[i + 1]], shard.dtype).reshape(shard.shape[1:])
            assert same(one, want)
    return [ids[at : at + 16] for at in range(0, len(ids), 16)]

for place in ("worker-%d", "epoch-3/worker-%d-of-" + str(workers), "epoch-0/from-0/worker-%d-of-" + str(workers + 4)):
    seen = sum((check(place % w) for w in range(workers + 4 * ("from" in place))), [])
    assert len(seen) == len(rows) and set(seen) == set(rows), place
for m in (1, 100, len(rows) - 1, len(rows)):
    assert len(check("epoch-1/from-%d/worker-0-of-1" % m)) == len(rows) - m
print(len(rows))
`

func TestNumPyLoadsAndMapsEveryStreamWithTheRowsOfItsIDs(t *testing.T) {
	interpreter := python(t, "numpy")
	for _, kind := range []struct{ name, dtype, shape string }{
		{"float32 in three axes", "'<f4'", "(3, 5)"},
		{"one axis", "'<i8'", "()"},
		{"big-endian", "'>i2'", "(7,)"},
		{"bool", "'?'", "(100,)"},
		{"unicode", "'<U6'", "(2,)"},
		{"times", "'<M8[25s]'", "(2,)"},
		{"fields, a subarray of fields and padding", "np.dtype([('id', '<u4'), ('box', [('x', '<f4'), ('y', '>f8')], (2,)), ('tag', 'S3')], align=True)", "()"},
		{"titles and Latin-1", "[(('a title', 'é'), '<i2'), (\"it's\", '<f8', (2, 3))]", "(2,)"},
	} {
		t.Run(kind.name, func(t *testing.T) {
			d := dataset{name: "arrays", dir: t.TempDir(), ext: ".npy"}
			script(t, interpreter, makeArrays, d.dir, kind.dtype, kind.shape)
			s := usual()
			m := mountDataset(t, d, s)
			out := script(t, interpreter, readArrays, d.dir, m.dir, fmt.Sprint(s.Workers))
			require.Equal(t, "231\n", string(out))
			require.Contains(t, string(m.read("README")), fmt.Sprintf("numpy.load(%q, mmap_mode=\"r\")", m.path("worker-0.npy")))
		})
	}
}

func TestArraysWithoutRowsAreRefusedWithExplanation(t *testing.T) {
	interpreter := python(t, "numpy")
	for _, c := range []struct{ name, save, words string }{
		{"Fortran order", "np.save(path, np.asfortranarray(np.zeros((3, 4))))", "Fortran order"},
		{"objects", "np.save(path, np.array([{}, []], object), allow_pickle=True)", "Python objects"},
		{"objects in a field", "np.save(path, np.zeros(3, [('a', 'O'), ('b', 'i4')]), allow_pickle=True)", "Python objects"},
		{"no dimension", "np.save(path, np.float32(3))", "no dimension"},
		{"rows of no bytes", "np.save(path, np.zeros((3, 0)))", "rows have 0 bytes"},
		{"names that no Latin-1 has", "np.save(path, np.zeros(3, [('α', 'i4')]))", "rename them"},
		{"no header", "np.arange(1000, dtype='u2').tofile(path)", "--format fixed --record-bytes N"},
		{"a memory map without a header", "np.memmap(path, 'u2', 'w+', shape=(1000,))[:] = 7", "--format fixed --record-bytes N"},
		{"another kind", "np.save(path, np.zeros((3, 4), '>f8'))", "a.npy has '<f8' (4,), b.npy has '>f8' (4,)"},
		{"rows of another shape", "np.save(path, np.zeros((3, 4, 1)))", "a.npy has '<f8' (4,), b.npy has '<f8' (4, 1)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			program := "import sys\nimport numpy as np\nnp.save(sys.argv[1] + '/a.npy', np.zeros((3, 4)))\npath = sys.argv[1] + '/b.npy'\n" + c.save
			script(t, interpreter, program, dir)
			for _, policy := range []string{"fail", "skip"} {
				r := tool(t, "index", dir, "--on-corrupt", policy)
				require.Equal(t, exitDataset, r.code)
				require.Contains(t, r.stderr, "b.npy")
				require.Contains(t, r.stderr, c.words)
			}
		})
	}
}

func TestInspectShowsKindOfArrays(t *testing.T) {
	d := plain(t, "npy", 3)
	var said struct{ Format, Kind string }
	require.NoError(t, json.Unmarshal(toolOK(t, "inspect", d.dir, "--json"), &said))
	require.Equal(t, "npy", said.Format)
	require.Equal(t, "[('x', '<i4', (5,)), ('é', '|S7')] (3,)", said.Kind)
	require.Contains(t, string(toolOK(t, "inspect", d.dir)), "npy, "+said.Kind)
	require.NoError(t, os.Remove(filepath.Join(d.dir, "part-0/shard-0000.npy")))
	require.Contains(t, string(toolOK(t, "inspect", d.dir)), `npy, [ ('x','<i4',( 5 , )) , ('é','|S7'), ] (3,)`, "as the first shard writes it")
}
