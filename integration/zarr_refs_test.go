package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// makeReferences makes h5py write two HDF5 files in the way netCDF4 is stored, and writes
// references to their chunks, in both versions of the format, with all ways to name a file.
const makeReferences = `
import base64, json, os, sys
import h5py
import numpy as np

root = sys.argv[1]
shape, random = (13, 21, 34), np.random.default_rng(8)

def attributes(d, names=("time", "y", "x")):
    for x, name in zip(d.dims, names):
        x.label = name
    d.attrs["units"] = "K"

def make(path):
    with h5py.File(path, "w") as f:
        attributes(f.create_dataset("zlib", data=random.normal(size=shape).astype(">f4"), chunks=(5, 8, 16), compression="gzip", shuffle=True))
        attributes(f.create_dataset("in/group/sum", data=random.integers(-9999, 9999, shape).astype("<i2"), chunks=(4, 21, 11), compression="gzip", shuffle=True, fletcher32=True))
        attributes(f.create_dataset("shuffled", data=random.integers(0, 10**6, shape).astype(">i8"), chunks=(5, 8, 16), shuffle=True))
        attributes(f.create_dataset("raw", data=random.normal(size=shape).astype(">f8"), chunks=(5, 8, 16)))
        attributes(f.create_dataset("whole", data=random.integers(0, 99, shape).astype("u1")))
        holes = f.create_dataset("holes", shape, ">i4", chunks=(5, 8, 16), compression="gzip", fillvalue=-7)
        holes[3:9, 4:12, 10:30] = random.integers(0, 99, (6, 8, 20))
        attributes(holes)
        attributes(f.create_dataset("time", data=np.arange(13.0), chunks=(6,)), ["time"])

def references(path, url, inline):
    refs = {".zgroup": '{"zarr_format": 2}'}
    def visit(name, d):
        if isinstance(d, h5py.Group):
            refs[name + "/.zgroup"] = '{"zarr_format": 2}'
            return
        chunks = d.chunks or d.shape
        filters = [{"id": "shuffle", "elementsize": d.dtype.itemsize}] * bool(d.shuffle)
        compressor = {"id": "zlib", "level": d.compression_opts} if d.compression else None
        if d.fletcher32:  # as newer versions of kerchunk write it
            filters, compressor = filters + [compressor, {"id": "fletcher32"}], None
        refs[name + "/.zarray"] = json.dumps({
            "zarr_format": 2, "shape": d.shape, "chunks": chunks, "dtype": d.dtype.str, "order": "C", "compressor": compressor,
            "filters": filters or None, "fill_value": d.fillvalue.item(),
        })
        refs[name + "/.zattrs"] = json.dumps({"_ARRAY_DIMENSIONS": [x.label for x in d.dims], "units": "K"})
        if d.chunks is None:
            refs[name + "/" + ".".join("0" * d.ndim)] = [url, d.id.get_offset(), d.id.get_storage_size()]
            return
        for i in range(d.id.get_num_chunks()):
            c = d.id.get_chunk_info(i)
            key = name + "/" + ".".join(str(a // b) for a, b in zip(c.chunk_offset, chunks))
            refs[key] = [url, c.byte_offset, c.size]
            if c.size < inline:
                with open(path, "rb") as f:
                    f.seek(c.byte_offset)
                    refs[key] = "base64:" + base64.b64encode(f.read(c.size)).decode()
    with h5py.File(path, "r") as f:
        f.visititems(visit)
    return refs

def write(name, document):
    with open(os.path.join(root, name), "w") as f:
        json.dump(document, f)

make(root + "/relative.h5")
make(root + "/absolute.h5")
write("relative.json", {"version": 1, "templates": {"u": "./relative"}, "refs": references(root + "/relative.h5", "{{u}}.h5", 1000)})
write("absolute.json", references(root + "/absolute.h5", "file://" + root + "/absolute.h5", 0))
`

// makeZips makes zarr-python write a ZipStore, and others archive its directory.
const makeZips = `
import os, sys, zipfile
import numcodecs as nc
import numpy as np
import zarr

root, shape, random = sys.argv[1], (13, 21, 34), np.random.default_rng(9)

def fill(store):
    g = zarr.open_group(store, mode="w")
    for name, compressor in dict(blosc=nc.Blosc("lz4"), none=None, zlib=nc.Zlib()).items():
        a = g.create_dataset(name, shape=shape, chunks=(5, 8, 16), dtype=">i2", compressor=compressor, fill_value=3)
        a[:, :16] = random.integers(0, 99, (13, 16, 34))
        a.attrs["units"] = "K"
        a.attrs["_ARRAY_DIMENSIONS"] = ["time", "y", "x"]  # written twice: two members have one name

store = zarr.ZipStore(root + "/store.zip", mode="w")
fill(store)
store.close()
os.makedirs(root + "/other")
for name, method in dict(compressed=zipfile.ZIP_DEFLATED, packed=zipfile.ZIP_STORED).items():
    fill(zarr.DirectoryStore(root + "/other/%s.zarr" % name))
    with zipfile.ZipFile(root + "/other/%s.zip" % name, "w", method) as z:
        for at, _, files in os.walk(root + "/other/%s.zarr" % name):
            for file in files:
                full = os.path.join(at, file)
                z.write(full, os.path.relpath(full, root + "/other/%s.zarr" % name))
`

// described returns the directory in which a script makes files that describe hierarchies.
func described(t *testing.T, make string) string {
	t.Helper()
	python(t, "numpy", "zarr", "numcodecs", "h5py")
	return filepath.Dir(stores(t, make)[0])
}

func TestCropsByReferencesEqualHDF5Files(t *testing.T) {
	dir := described(t, makeReferences)
	for _, array := range []string{"zlib", "in/group/sum", "shuffled", "raw", "whole", "holes", "zlib,whole,h=holes"} {
		for _, name := range []string{"relative.json", "absolute.json", "*.json"} {
			t.Run(name+", "+array, func(t *testing.T) {
				t.Parallel()
				flags := append([]string{"--array", array, "--jitter"}, smallCrops...)
				requireCrops(t, cropsOf(filepath.Join(dir, name), flags...), smallOrder())
			})
		}
	}
}

func TestCropsOfZipFileEqualThoseOfItsMembers(t *testing.T) {
	dir := described(t, makeZips)
	for _, array := range []string{"blosc", "none", "zlib"} {
		for _, name := range []string{"store.zip", "other/packed.zip"} {
			t.Run(name+", "+array, func(t *testing.T) {
				t.Parallel()
				requireCrops(t, cropsOf(filepath.Join(dir, name), append([]string{"--array", array}, smallCrops...)...), smallOrder())
			})
		}
	}
	r := tool(t, slices.Concat([]string{"cat", filepath.Join(dir, "other/compressed.zip"), "--format", "zarr", "--array", "blosc"}, smallCrops)...)
	require.NotZero(t, r.code)
	require.Contains(t, r.stderr, "compressed.zip/.zgroup is compressed in the zip file (deflate), so it can't be read in place: write the zip file without compression")
}

// Chunks without a reference, or not in the zip file, are absent like missing files.
func TestCropsThatNeedUnreferencedChunkAreExcluded(t *testing.T) {
	for name, array := range map[string]string{
		filepath.Join(described(t, makeReferences), "relative.json"): "holes", filepath.Join(described(t, makeZips), "store.zip"): "zlib",
	} {
		requireCrops(t, cropsOf(name, append([]string{"--array", array, "--missing", "skip"}, smallCrops...)...), smallOrder())
	}
}

// Coordinates, attributes and whatever else a mount shows are read through references, too.
func TestMountOfReferencesShowsSameAsMountOfDirectory(t *testing.T) {
	dir := described(t, makeReferences)
	d := cropsOf(filepath.Join(dir, "relative.json"), append([]string{"--array", "zlib"}, smallCrops...)...)
	s := smallOrder()
	ref := newReference(t, d)
	m := mountDataset(t, d, s)
	for w := range s.Workers {
		requireFile(t, ref.data(s, w), m.path("worker-%d.npy", w))
	}
	times := m.read("coords/time.npy")
	require.Len(t, times, 128+13*8)
	var info struct {
		Zarr struct {
			Cubes  []struct{ Path string }
			Fields []struct{ Attributes map[string]any }
		}
	}
	require.NoError(t, json.Unmarshal(m.read("dataset.json"), &info))
	require.Equal(t, "relative.json", info.Zarr.Cubes[0].Path)
	require.Equal(t, "K", info.Zarr.Fields[0].Attributes["units"])
}

// If a referenced file or the zip file changes, crops are EIO or unchanged.
func TestChangedReferencedFileIsEIO(t *testing.T) {
	for name, file := range map[string]string{"absolute.json": "absolute.h5", "relative.json": "relative.h5", "store.zip": "store.zip"} {
		make, array := makeReferences, "raw"
		if strings.HasSuffix(name, ".zip") {
			make, array = makeZips, "none"
		}
		shared := described(t, make)
		for change, do := range changes {
			t.Run(name+", "+change, func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(t.TempDir(), "own")
				require.NoError(t, os.CopyFS(dir, os.DirFS(shared)))
				if name == "absolute.json" {
					b, err := os.ReadFile(filepath.Join(dir, name))
					require.NoError(t, err)
					require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(string(b), shared, dir)), 0o644))
				}
				d := cropsOf(filepath.Join(dir, name), "--array", array, "--crop", "time=2,y=3,x=4")
				s := smallOrder()
				ref := newReference(t, d)
				want := [][]byte{ref.data(s, 0), ref.data(s, 1)}
				m := mountDataset(t, d, s, "--memory", "1MiB")
				do(t, filepath.Join(dir, file))
				failed := 0
				for w := range want {
					bytes := 2 * 3 * 4 * 8
					if array == "none" {
						bytes = 2 * 3 * 4 * 2
					}
					failed += cropsOrEIO(t, want[w], bytes, m.path("worker-%d.npy", w))
				}
				m.requireAlive()
				if failed == 0 { // what is open stays as it was, whatever its name becomes
					require.Contains(t, []string{"removed", "replaced by one of the same size"}, change)
					return
				}
				require.Contains(t, string(m.read("status")), file)
			})
		}
	}
}

func TestUnreadableReferencesAreRefusedWithExplanation(t *testing.T) {
	dir := t.TempDir()
	array := `{"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "<i4", "order": "C", "compressor": null, "filters": null, "fill_value": 0}`
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.nc"), make([]byte, 12), 0o644))
	for i, c := range []struct{ document, want string }{
		{`{"version": 1, "refs": {".zarray": %[1]s, "0": ["/etc/passwd", 0, 8]}}`, `it refers to "/etc/passwd", which is not a file below the dataset's directory`},
		{`{".zarray": %[1]s, "0": ["../a.nc", 0, 8]}`, "not a file below the dataset's directory"},
		{`{".zarray": %[1]s, "0": ["s3://bucket/a.nc", 0, 8]}`, "references to a bucket or web server are read only if the reference file is there, too"},
		{`{".zarray": %[1]s, "0": ["a.nc", 8, 8]}`, "0: it refers to bytes [8, 16) of a.nc, which has 12"},
		{`{".zarray": %[1]s, "0": ["b.nc", 8, 8]}`, "0: the file b.nc, which it refers to, is not there"},
		{`{".zarray": %[1]s, "0": ["a.nc", 0, 4]}`, "it has 4 bytes, and a chunk has 8"},
		{`{".zarray": %[1]s, "0": ["a.nc", 0, 8]`, "it ends in the middle"},
		{`{"version": 1, "gen": [{"key": "0"}], "refs": {".zarray": %[1]s}}`, "template language"},
		{array, "name its directory"},
	} {
		name := fmt.Sprintf("%d.json", i)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(c.document, "%[1]s", array)), 0o644))
		r := tool(t, "cat", filepath.Join(dir, name), "--format", "zarr", "--crop", "2")
		require.NotZero(t, r.code, c.document)
		require.Contains(t, r.stderr, name, c.document)
		require.Contains(t, r.stderr, c.want, c.document)
	}
}

// Reference files and zip files in a bucket and at a web server give the same as on a disk. If a
// file is replaced there, crops are EIO or unchanged.
func TestReferenceAndZipFilesAreSameInBucketAndWebServer(t *testing.T) {
	for name, c := range map[string]struct {
		make, array, file string
		itemBytes         int
	}{"relative.json": {makeReferences, "zlib", "relative.h5", 4}, "store.zip": {makeZips, "blosc", "store.zip", 2}} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "train")
			require.NoError(t, os.CopyFS(dir, os.DirFS(described(t, c.make))))
			d := cropsOf(dir, append([]string{"--array", c.array}, smallCrops...)...)
			here, bucket, web := places(t, d)
			here.dir, bucket.dir, web.dir = filepath.Join(dir, name), bucket.dir+"/"+name, strings.Replace(web.dir, "list.txt", name, 1)
			s := smallOrder()
			ref := newReference(t, here.dataset)
			want := [][]byte{ref.data(s, 0), ref.data(s, 1)}
			for _, p := range []place{here, bucket, web} {
				for w := range want {
					args := slices.Concat([]string{"cat", p.dir, "--worker", fmt.Sprint(w)}, d.flags, s.flags())
					requireSameBytes(t, want[w], toolOK(t, args...), "%s, worker %d", p.dir, w)
				}
			}
			for _, p := range []place{bucket, web} {
				b, err := os.ReadFile(filepath.Join(dir, c.file))
				require.NoError(t, err)
				m := mountDataset(t, p.dataset, s, "--cache-size", "off")
				p.replace(c.file, flipped(b))
				failed := 0
				for w := range want {
					failed += cropsOrEIO(t, want[w], 4*10*9*c.itemBytes, m.path("worker-%d.npy", w))
				}
				require.NotZero(t, failed, p.shown)
				m.requireAlive()
			}
		})
	}
}
