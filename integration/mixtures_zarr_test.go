package integration

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// yearsOf mixes a directory of two stores with one of the stores.
func yearsOf(t *testing.T, mixed []string, flags ...string) dataset {
	t.Helper()
	dir := filepath.Join(filepath.Dir(stores(t, makeSeveral)[0]), "all")
	return mixtureOf(t, cropsOf("", flags...), mixed, "years=0.6", dir, "last-1=0.35", filepath.Join(dir, "2019.zarr"))
}

// catOf returns what cat writes of a worker's stream.
func catOf(t *testing.T, d dataset, s settings, w int, more ...string) []byte {
	t.Helper()
	return toolOK(t, slices.Concat([]string{"cat", "--worker", fmt.Sprint(w), "--epoch", fmt.Sprint(s.Epoch)}, d.flags, s.flags(), more)...)
}

// requireMixedCrops compares what cat writes of all workers with the reference: records, IDs,
// offsets and origins.
func requireMixedCrops(t *testing.T, d dataset, ref *reference, s settings) {
	t.Helper()
	for w := range s.Workers {
		for kind, flags := range map[string][]string{"data": nil, "ids": {"--ids"}, "offsets": {"--offsets"}, "crops": {"--origins"}} {
			want := ref.ask(question{settings: s, Worker: w, Kind: kind})
			require.Greater(t, len(want), 128, "there are crops")
			requireSameBytes(t, want, catOf(t, d, s, w, flags...), "%s of worker %d", kind, w)
		}
	}
	var described struct {
		Fingerprint string `json:"fingerprint"`
	}
	require.NoError(t, json.Unmarshal(toolOK(t, slices.Concat([]string{"inspect", "--json"}, d.flags, withoutWorkers(s.flags()))...), &described))
	require.Equal(t, string(ref.ask(question{settings: s, Kind: "fingerprint"})), described.Fingerprint)
}

// Crops of a mixture are those of the second implementation, however they are cut: what moves in
// each epoch depends on the mixture's seed and on the record's ID, which has the source's name.
func TestMixturesOfCropsAreThoseOfTheReference(t *testing.T) {
	crop := []string{"--crop", "time=3,y=5,x=6"}
	stride := []string{"--stride", "time=1,y=3,x=4"}
	list := filepath.Join(filepath.Dir(stores(t, makeSeveral)[0]), "list.npy")
	for name, c := range map[string]struct {
		length string
		flags  []string
	}{
		"jitter":    {"700", slices.Concat([]string{"--array", "t=a/t2m,w=wind,o=oro", "--jitter"}, crop, stride)},
		"stacked":   {"all", slices.Concat([]string{"--array", "a/t2m,wind", "--stack"}, crop, stride)},
		"converted": {"first", slices.Concat([]string{"--array", "level,oro", "--as", "float32", "--scale", "0.5", "--wrap", "x", "--stride", "time=1,y=2,x=4"}, crop)},
		"skipped":   {"300", slices.Concat([]string{"--array", "wind", "--missing", "skip"}, crop, stride)},
		"list":      {"256", slices.Concat([]string{"--array", "t=a/t2m,o=oro", "--crops", list, "--jitter", "--stride", "time=2,y=2,x=2"}, crop)},
	} {
		t.Run(name, func(t *testing.T) {
			d := yearsOf(t, []string{"--mix-length", c.length}, c.flags...)
			if name == "list" { // it numbers the stores of each source
				dir := filepath.Join(filepath.Dir(list), "all")
				d = mixtureOf(t, cropsOf("", c.flags...), []string{"--mix-length", c.length}, "b=1", dir, "a=2.5", dir)
			}
			ref := newReference(t, d)
			for i, shuffle := range []string{"block", "full", "none", "reservoir"} {
				s := smallOrder()
				s.Shuffle, s.Epoch, s.Seed = shuffle, uint64(i), 77
				if i == 1 {
					s = s.part("0.1..1", "record", 3)
				}
				requireMixedCrops(t, d, ref, s)
			}
		})
	}
}

// Crops of a mixture are the same through a mount, with any size of memory, and an epoch that is
// resumed with other numbers of workers continues as the reference says.
func TestMixturesOfCropsThroughMountsAreThoseOfTheReference(t *testing.T) {
	dice := rand.New(rand.NewPCG(*drawSeed, 31))
	flags := []string{"--array", "t=a/t2m,o=oro", "--jitter", "--crop", "time=3,y=5,x=6", "--stride", "time=1,y=3,x=4"}
	d := yearsOf(t, []string{"--mix-length", "400"}, flags...)
	ref := newReference(t, d)
	for i, shuffle := range []string{"block", "full"} {
		t.Run(shuffle, func(t *testing.T) {
			s := smallOrder()
			s.Shuffle, s.Seed = shuffle, dice.Uint64()>>1
			m := mountDataset(t, d, s, "--memory", []string{"1MiB", "64MiB"}[i])
			for epoch := range uint64(3) {
				s.Epoch = epoch
				for w := range s.Workers {
					base := fmt.Sprintf("epoch-%d/worker-%d-of-%d", epoch, w, s.Workers)
					for kind, ext := range map[string]string{"data": ".npy", "ids": ".ids", "offsets": ".offsets", "crops": ".crops.npy"} {
						requireFile(t, ref.ask(question{settings: s, Worker: w, Kind: kind}), m.path("%s%s", base, ext))
					}
				}
			}
			m.end()
			resumeThreeTimes(t, dice, d, ref, s)
		})
	}
}

// Arrays that are read together are mixed like any other records.
func TestMixturesOfArraysThatAreReadTogether(t *testing.T) {
	serve.Tier(t, serve.CI)
	a, b := together(t), together(t)
	dice := rand.New(rand.NewPCG(*drawSeed, 32))
	d := mixtureOf(t, a, []string{"--mix-length", "500"}, "x=0.6", a.dir, "y=0.4", b.dir)
	ref := newReference(t, d)
	for _, s := range append(fiveOrders(), usual().part("0.1..1", "record", 3)) {
		t.Run(s.Shuffle+" "+s.Split, func(t *testing.T) {
			requireMountEquals(t, d, ref, s, []int{0, s.Workers - 1}, 17)
		})
	}
	resumeThreeTimes(t, dice, d, ref, usual())
}
