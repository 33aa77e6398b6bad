package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// cropsOf returns a dataset of crops of a store.
func cropsOf(path string, flags ...string) dataset {
	return dataset{name: filepath.Base(path), dir: path, ext: ".npy", flags: append([]string{"--format", "zarr"}, flags...)}
}

var smallCrops = []string{"--crop", "time=4,y=10,x=9", "--stride", "time=3,y=7,x=8"}

// smallOrder has several chunks of crops, and lanes.
func smallOrder() settings {
	s := usual()
	s.Shuffle, s.ShuffleSize, s.ChunkBytes, s.ChunkRecords, s.Workers = "block", 20, 1<<20, 4, 2
	return s
}

// requireCrops compares what cat writes of a dataset with the reference, and both fingerprints.
func requireCrops(t *testing.T, d dataset, s settings) {
	t.Helper()
	ref := newReference(t, d)
	for w := range s.Workers {
		want := ref.data(s, w)
		require.Greater(t, len(want), 128, "there are crops")
		args := slices.Concat([]string{"cat", d.dir, "--worker", fmt.Sprint(w), "--epoch", fmt.Sprint(s.Epoch)}, d.flags, s.flags())
		requireSameBytes(t, want, toolOK(t, args...), "%s, worker %d", d.name, w)
	}
	var described struct {
		Fingerprint string `json:"fingerprint"`
	}
	require.NoError(t, json.Unmarshal(toolOK(t, slices.Concat([]string{"inspect", d.dir, "--json"}, d.flags)...), &described))
	require.Equal(t, ref.fingerprint(), described.Fingerprint)
}

func TestCropsOfStoresByOtherProgramsEqualReference(t *testing.T) {
	for name, script := range map[string]string{"version 2": makeVersion2, "version 3": makeVersion3} {
		for _, path := range stores(t, script) {
			t.Run(name+", "+filepath.Base(path), func(t *testing.T) {
				t.Parallel()
				requireCrops(t, cropsOf(path, smallCrops...), smallOrder())
			})
		}
	}
}

func TestEveryWayToCutCropsEqualsReference(t *testing.T) {
	var dir string
	for _, path := range stores(t, makeSeveral) {
		dir = filepath.Dir(path)
	}
	crop := []string{"--crop", "time=3,y=5,x=6"}
	stride := []string{"--stride", "time=1,y=3,x=4"}
	for name, flags := range map[string][]string{
		"one":             slices.Concat([]string{"--array", "wind"}, crop, stride),
		"stacked":         slices.Concat([]string{"--array", "a/t2m,wind", "--stack"}, crop, stride),
		"several":         slices.Concat([]string{"--array", "t=a/t2m,w=wind,o=oro,level"}, crop, stride),
		"jitter":          slices.Concat([]string{"--array", "t=a/t2m,o=oro", "--jitter", "--seed", "3"}, crop, stride),
		"wrap and jitter": slices.Concat([]string{"--array", "t=a/t2m,o=oro,level", "--jitter", "--wrap", "x"}, crop, stride),
		"cover":           slices.Concat([]string{"--array", "wind", "--edge", "cover"}, crop),
		"step":            slices.Concat([]string{"--array", "wind,oro", "--step", "time=2,x=3"}, crop, stride),
		"regions":         slices.Concat([]string{"--array", "wind,oro", "--select", "time=2:", "--select", "x=3:17"}, crop, stride),
		"places":          slices.Concat([]string{"--array", "level", "--select", "level=2,0"}, crop, stride),
		"places of other": slices.Concat([]string{"--array", "wind,level", "--select", "level=1"}, crop, stride),
		"region of other": slices.Concat([]string{"--array", "wind,level", "--select", "level=1:3"}, crop, stride),
		"whole":           {"--array", "level", "--crop", "time=2"},
		"list":            slices.Concat([]string{"--array", "t=a/t2m,o=oro", "--crops", dir + "/list.npy"}, crop),
		"list apart":      slices.Concat([]string{"--array", "t=a/t2m,o=oro", "--crops", dir + "/apart.npy"}, crop),
		"moved list":      slices.Concat([]string{"--array", "t=a/t2m,o=oro", "--crops", dir + "/list.npy", "--jitter", "--stride", "time=2,y=2,x=2"}, crop),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := smallOrder()
			s.Epoch = 2
			requireCrops(t, cropsOf(filepath.Join(dir, "all"), flags...), s)
		})
	}
}

// Streams of all orders through real mounts, for several epochs, read with any size of memory.
func TestCropsThroughMountsEqualReference(t *testing.T) {
	paths := stores(t, makeVersion3)
	dice := rand.New(rand.NewPCG(*drawSeed, 14))
	for i, shuffle := range []string{"none", "full", "block", "reservoir"} {
		path := paths[(i*5+3)%len(paths)]
		t.Run(shuffle+" of "+filepath.Base(path), func(t *testing.T) {
			s := smallOrder()
			s.Shuffle, s.Seed = shuffle, dice.Uint64()>>1
			d := cropsOf(path, append(smallCrops, "--jitter")...)
			ref := newReference(t, d)
			m := mountDataset(t, d, s, "--memory", []string{"1MiB", "64MiB"}[i%2], "--io", []string{"auto", "pread"}[i/2])
			for epoch := range uint64(3) {
				s.Epoch = epoch
				for w := range s.Workers {
					base := fmt.Sprintf("epoch-%d/worker-%d-of-%d", epoch, w, s.Workers)
					requireFile(t, ref.data(s, w), m.path("%s.npy", base))
					for kind, ext := range map[string]string{"ids": "ids", "offsets": "offsets", "crops": "crops.npy"} {
						require.Equal(t, ref.ask(question{settings: s, Worker: w, Kind: kind}), m.read("%s.%s", base, ext))
					}
				}
			}
			resumeThreeTimes(t, dice, d, ref, s)
		})
	}
}

// cropsOrEIO reads a stream crop by crop: each must be EIO or right. It returns the number of
// failures.
func cropsOrEIO(t *testing.T, want []byte, cropBytes int, path string) (failed int) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	for off := len(want) % cropBytes; off < len(want); off += cropBytes {
		buf := make([]byte, cropBytes)
		if _, err := f.ReadAt(buf, int64(off)); err != nil {
			require.ErrorIs(t, err, syscall.EIO)
			failed++
			continue
		}
		requireSameBytes(t, want[off:off+cropBytes], buf, "%s at %d", path, off)
	}
	return failed
}

func TestNumPyAndTorchReadCrops(t *testing.T) {
	var path string
	for _, p := range stores(t, makeVersion3) {
		if filepath.Base(p) == "start" {
			path = p
		}
	}
	m := mountDataset(t, cropsOf(path, smallCrops...), smallOrder())
	out := script(t, python(t, "numpy", "torch", "zarr", "numcodecs"), `
import sys
import numpy as np, torch
sys.path.insert(0, "reference")
import cubes
whole = cubes.read(sys.argv[1]).values
places = {whole[t:t+4, y:y+10, x:x+9].tobytes() for t in range(10) for y in range(28) for x in range(42)}
a = np.load(sys.argv[2], mmap_mode="r")
assert a.shape[1:] == (4, 10, 9) and a.dtype == "<i4" and isinstance(a, np.memmap)
assert all(row.tobytes() in places for row in a)
print(torch.from_numpy(np.array(a)).shape[0])
`, path, m.path("worker-1.npy"))
	require.Equal(t, "48\n", string(out))
}

func TestUnsupportedStoresAreRefusedWithExplanation(t *testing.T) {
	for _, path := range stores(t, makeVersion3) {
		if filepath.Base(path) != "sharded-zstd" {
			continue
		}
		for flags, want := range map[string]string{
			"--crop t=4":                            "no dimension has this name: there are time=13, y=37, x=50",
			"--crop time=14":                        "a crop of time takes 14 elements, and 0:13 has 13: ask for shorter crops",
			"--crop 4,10":                           "--crop has 2 numbers, and array . has 3 dimensions (time=13, y=37, x=50)",
			"--crop time=4 --select y=40:":          "the region of y begins at 40, and there are 37 elements",
			"--crop time=4 --select y=4,99":         "there is no place 99",
			"--crop time=4 --array temperature":     "no array temperature",
			"--stride time=4":                       "--format zarr needs --crop",
			"--crop time=4,4":                       "name all dimensions, or none",
			"--crop time=4 --crops /nonexistent":    "--crops: open /nonexistent",
			"--crop time=4 --jitter --crops a":      "--jitter with --crops needs --stride",
			"--crop time=4 --wrap y --select y=1:9": "crops can't wrap around in a part of the dimension",
		} {
			r := tool(t, slices.Concat([]string{"cat", path, "--format", "zarr"}, bytesFields(flags))...)
			require.NotZero(t, r.code, flags)
			require.Contains(t, r.stderr, want, flags)
		}
	}
}

func bytesFields(text string) (list []string) {
	for _, b := range bytes.Fields([]byte(text)) {
		list = append(list, string(b))
	}
	return list
}
