package integration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// makePacked makes zarr-python write two hierarchies of packed arrays, with a different packing in
// each, and an array of version 3 that describes its packing in xarray's way.
const makePacked = `
import base64, json, os, struct, sys
import numpy as np
import zarr

root, random = sys.argv[1], np.random.default_rng(3)
for year, n, scale in (2018, 14, 0.01), (2019, 9, 0.025):
    group = zarr.open_group("%s/all/%d.zarr" % (root, year), mode="w")
    for name, dtype, fill, attributes in [
        ("short", "<i2", -32768, {"scale_factor": scale, "add_offset": 273.15}),
        ("big", ">i2", None, {"scale_factor": [scale], "_FillValue": 7, "missing_value": [8, 9, -1.0, 1e9]}),
        ("byte", "|i1", None, {"_Unsigned": "true", "_FillValue": -1, "scale_factor": 0.5}),
        ("count", ">u4", 0, {"add_offset": -1e6}),
        ("long", "<i8", 0, {"missing_value": 3, "scale_factor": 1e-3}),
        ("single", ">f4", float("nan"), {"missing_value": 0.0, "scale_factor": 1e38}),
        ("double", "<f8", 1e20, {"add_offset": 1e30}),
        ("half", "<f2", 5, {}),
        ("truth", "|b1", True, {"scale_factor": -2}),
    ]:
        kind = np.dtype(dtype).kind
        values = random.integers(0, 2 if kind == "b" else 12, (n, 12, 20)) if kind in "bu" else random.integers(-6, 12, (n, 12, 20))
        if kind == "f":
            values = values * np.where(random.random(values.shape) < 0.2, np.nan, 1.5) + np.where(random.random(values.shape) < 0.1, np.inf, 0)
        array = group.create_dataset(name, shape=values.shape, chunks=(3, 5, 6), dtype=dtype, fill_value=fill)
        with np.errstate(all="ignore"):
            array[...] = values.astype(dtype)
        array.attrs.update(attributes, _ARRAY_DIMENSIONS=["time", "y", "x"], units="K")
        if fill is not None:  # zarr-python leaves anything there
            os.remove("%s/all/%d.zarr/%s/1.1.1" % (root, year, name))

os.makedirs(root + "/v3/c/0")
json.dump({
    "zarr_format": 3, "node_type": "array", "shape": [13, 6], "data_type": "float32", "fill_value": 2, "codecs": [{"name": "bytes", "configuration": {"endian": "big"}}],
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [7, 6]}}, "chunk_key_encoding": {"name": "default"}, "dimension_names": ["time", "x"],
    "attributes": {"_FillValue": base64.b64encode(struct.pack("<d", 12)).decode(), "scale_factor": 0.1},
}, open(root + "/v3/zarr.json", "w"))
open(root + "/v3/c/0/0", "wb").write(np.arange(42).astype(">f4").tobytes())
`

func packed(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(filepath.Dir(stores(t, makePacked)[0]), name)
}

// Elements of all types of numbers become those that NumPy computes, by attributes or by flags,
// also where bricks are absent.
func TestFloat32CropsEqualReference(t *testing.T) {
	crop := []string{"--crop", "time=3,y=5,x=6", "--stride", "time=1,y=3,x=4", "--as", "float32"}
	all := []string{"short", "big", "byte", "count", "long", "single", "double", "half", "truth"}
	cases := map[string][]string{
		"together":      slices.Concat([]string{"--array", strings.Join(all, ",")}, crop),
		"stacked":       slices.Concat([]string{"--array", "short,byte,double", "--stack", "--jitter"}, crop),
		"other scales":  slices.Concat([]string{"--array", "t=short,b=byte", "--scale", "t=3.7,b=0.1", "--offset", "-2"}, crop),
		"every second":  slices.Concat([]string{"--array", "big,long", "--step", "time=2,x=2"}, crop),
		"single places": {"--array", "big,half", "--crop", "time=2", "--select", "x=7,3,4", "--as", "float32"},
	}
	for _, name := range all {
		cases[name] = slices.Concat([]string{"--array", name}, crop)
	}
	for name, flags := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := smallOrder()
			s.Epoch = 1
			requireCrops(t, cropsOf(packed(t, "all"), flags...), s)
		})
	}
	t.Run("version 3", func(t *testing.T) {
		requireCrops(t, cropsOf(packed(t, "v3"), "--crop", "time=2,x=4", "--stride", "time=1,x=1", "--as", "float32"), smallOrder())
	})
	for kind, script := range map[string]string{"version 2": makeVersion2, "version 3": makeVersion3} {
		for _, path := range stores(t, script) {
			if name := filepath.Base(path); kind == "version 2" && (strings.Contains(name, "-c") || !strings.HasPrefix(name, "dtype-") && name != "blosc-small-blocks" && name != "order-f" && name != "nan") {
				continue
			}
			t.Run(kind+", "+filepath.Base(path), func(t *testing.T) {
				t.Parallel()
				requireCrops(t, cropsOf(path, append(smallCrops, "--as", "float32", "--scale", "0.3")...), smallOrder())
			})
		}
	}
}

// A mount has them too, with any size of memory, and dataset.json contains what was applied. A
// checkpoint fits only these crops.
func TestFloat32MountsReportAppliedConversion(t *testing.T) {
	d := cropsOf(packed(t, "all"), "--array", "short,byte", "--crop", "time=3,y=5,x=6", "--as", "float32")
	ref, s := newReference(t, d), smallOrder()
	for _, memory := range []string{"1MiB", "64MiB"} {
		m := mountDataset(t, d, s, "--memory", memory)
		for w := range s.Workers {
			requireFile(t, ref.data(s, w), m.path("worker-%d.npy", w))
		}
		var got struct {
			Zarr struct {
				As     string           `json:"as"`
				Fields []map[string]any `json:"fields"`
			} `json:"zarr"`
		}
		require.NoError(t, json.Unmarshal(m.read("dataset.json"), &got))
		require.Equal(t, "float32", got.Zarr.As)
		for k, want := range []string{
			`{"dtype": "<f4", "fill_value": "NaN", "attributes": {"units": "K", "_ARRAY_DIMENSIONS": ["time", "y", "x"]},
				"stored": {"dtype": "<i2", "scale": 0.01, "offset": 273.15, "missing": [-32768]}}`,
			`{"dtype": "<f4", "fill_value": 0, "attributes": {"units": "K", "_ARRAY_DIMENSIONS": ["time", "y", "x"]},
				"stored": {"dtype": "|u1", "scale": 0.5, "offset": 0, "missing": [255]}}`,
		} {
			some := map[string]any{}
			for _, name := range []string{"dtype", "fill_value", "attributes", "stored"} {
				some[name] = got.Zarr.Fields[k][name]
			}
			b, err := json.Marshal(some)
			require.NoError(t, err)
			require.JSONEq(t, want, string(b))
		}
		saved := filepath.Join(t.TempDir(), "ckpt.json")
		require.NoError(t, os.WriteFile(saved, m.read("checkpoint"), 0o644))
		r := tool(t, slices.Concat([]string{"cat", d.dir, "--resume", saved}, d.flags[:len(d.flags)-2])...)
		require.NotZero(t, r.code)
		require.Contains(t, r.stderr, "another dataset")
	}
	text := string(toolOK(t, append([]string{"inspect", d.dir}, d.flags...)...))
	require.Contains(t, text, "<f4 of <i2 × 0.01 + 273.15, NaN for -32768")
	require.Contains(t, text, "<f4 of |u1 × 0.5, NaN for 255")
}

func TestImpossibleConversionsAreRefusedWithExplanation(t *testing.T) {
	numbers := packed(t, "all")
	dates := store(t, makeVersion2, "dates")
	for _, c := range []struct{ path, flags, says string }{
		{dates, "--crop time=4 --as float32", "dates: array .: its elements are of type '<M8[h]', and --as float32 is for whole numbers"},
		{numbers, "--array short --crop time=4 --as tensors", "--as tensors:u1 needs --format lc0"},
		{numbers, "--array short --crop time=4 --scale 2", "--scale and --offset need --as float32"},
		{numbers, "--array short --crop time=4 --as float32 --scale byte=2", "--scale names byte: --array does not name that array"},
		{numbers, "--array short --crop time=4 --as float32 --scale 0", "--scale (0) must not be 0"},
		{numbers, "--array short --crop time=4 --as float32 --offset much", `"much" is not a number`},
	} {
		r := tool(t, slices.Concat([]string{"cat", c.path, "--format", "zarr"}, bytesFields(c.flags))...)
		require.NotZero(t, r.code, c.flags)
		require.Contains(t, r.stderr, c.says, c.flags)
	}
}
