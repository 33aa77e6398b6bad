package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// makeTogether writes arrays whose rows belong together: images, numbers of classes, and structured
// rows of exactly 64 bytes.
const makeTogether = `
import os, sys
import numpy as np

directory = sys.argv[1]
random = np.random.default_rng(3)
for sub in "xs", "deep/ys", "zs":
    os.makedirs(os.path.join(directory, sub))
for i, rows in enumerate([40, 0, 61, 7, 90]):
    np.save(directory + "/xs/x-%d.npy" % i, random.integers(0, 2**15, (rows, 3, 5)).astype("<f4"))
    np.save(directory + "/deep/ys/y-%d.npy" % i, random.integers(0, 2**15, rows).astype(">i2"))
    np.save(directory + "/zs/z-%d.npy" % i, np.array([(k, [k + i] * 7) for k in range(rows)], [("a", "<i8"), ("b", "<i8", 7)]))
np.save(directory + "/alone.npy", np.zeros(5))
`

// readTogether makes NumPy and torch read a stream and compare each field of each record with the
// arrays' row of its ID. argv: the dataset, a stream without its extension.
const readTogether = `
import hashlib, sys
import numpy as np
import torch

import lsiofs

directory, path = sys.argv[1:3]
rows = {}
for i in range(5):
    x, y, z = (np.load(directory + "/" + f % i) for f in ("xs/x-%d.npy", "deep/ys/y-%d.npy", "zs/z-%d.npy"))
    prefix = hashlib.sha256(b"lsiofs/1 shard xs/x-%d.npy" % i).digest()[:8]
    for ordinal in range(len(x)):
        rows[prefix + ordinal.to_bytes(8, "big")] = x[ordinal], y[ordinal], z[ordinal]
loaded, mapped = np.load(path + ".npy"), np.load(path + ".npy", mmap_mode="r")
assert isinstance(mapped, np.memmap) and loaded.dtype.itemsize == 192 and loaded.dtype.names == ("image", "label", "z"), loaded.dtype
ids = open(path + ".ids", "rb").read()
images, labels = mapped["image"], mapped["label"]
assert images.shape == (len(mapped), 3, 5) and images.dtype == "<f4" and labels.dtype == ">i2"
tensors = torch.from_numpy(loaded["image"])
batches = list(lsiofs.Stream(path + ".npy").arrays(7))
assert sum(len(b) for b in batches) == len(loaded) == len(ids) // 16
for i in range(len(loaded)):
    image, label, z = rows[ids[16 * i : 16 * i + 16]]
    assert (images[i] == image).all() and labels[i] == label and loaded["z"][i] == z
    assert (tensors[i].numpy() == image).all() and (batches[i // 7]["image"][i % 7] == image).all()
raw = np.fromfile(path + ".npy", "u1")[-192 * len(loaded) :].reshape(-1, 192)
assert not raw[:, 60:64].any() and not raw[:, 66:128].any()
print(len(loaded))
`

func together(t *testing.T) dataset {
	t.Helper()
	d := dataset{name: "together", dir: t.TempDir(), ext: ".npy", flags: []string{"--array", "image=xs/x-*.npy", "--array", "label=deep/ys/*.npy", "--array", "z=zs/z-{0..4}.npy"}}
	script(t, python(t, "numpy"), makeTogether, d.dir)
	return d
}

func TestArraysThatAreReadTogetherGiveTheirRowsAsFieldsToNumPyAndTorch(t *testing.T) {
	serve.Tier(t, serve.CI)
	interpreter := python(t, "numpy", "torch")
	d, s := together(t), usual()
	m := mountDataset(t, d, s)
	out := script(t, interpreter, readTogether, d.dir, m.path("epoch-2/worker-0-of-1"))
	require.Equal(t, "198\n", string(out))
	script(t, interpreter, readTogether, d.dir, m.path("worker-1"))
	var said struct {
		Format struct {
			Kind   string
			Arrays []struct{ Name, Pattern string }
		}
	}
	require.NoError(t, json.Unmarshal(m.read("dataset.json"), &said))
	require.Equal(t, "[('image', '<f4', (3, 5)), ('', '|V4'), ('label', '>i2'), ('', '|V62'), ('z', [('a', '<i8'), ('b', '<i8', (7,))])] ()", said.Format.Kind)
	require.Len(t, said.Format.Arrays, 3)
	toolOK(t, append([]string{"verify", d.dir}, d.flags...)...)
}

func TestStreamsOfSeveralArraysEqualReference(t *testing.T) {
	d := together(t)
	ref := newReference(t, d)
	r := rand.New(rand.NewPCG(*drawSeed, 5))
	for i, s := range []settings{usual(), draw(r, 198), draw(r, 198)} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Logf("settings %+v", s)
			left := len(ref.g(s))
			requireCatEquals(t, d, ref, s, r.IntN(s.Workers), r.IntN(left+1))
			requireMountEquals(t, d, ref, s, []int{r.IntN(s.Workers)}, r.IntN(left+1))
		})
	}
	var said struct{ Fingerprint string }
	require.NoError(t, json.Unmarshal(toolOK(t, append([]string{"inspect", d.dir, "--json"}, d.flags...)...), &said))
	require.Equal(t, string(ref.ask(question{settings: usual(), Kind: "fingerprint"})), said.Fingerprint)
	for _, read := range []string{"scan", "gather", "auto"} {
		args := append([]string{"cat", d.dir, "--read", read, "--memory", "1MiB"}, d.flags...)
		want := ref.ask(question{settings: usual(), Kind: "data", Worker: 0})
		requireSameBytes(t, want, toolOK(t, append(args, usual().flags()...)...), "%s", read)
	}
}

func TestArraysThatDoNotBelongTogetherAreRefusedByName(t *testing.T) {
	serve.Tier(t, serve.CI)
	interpreter := python(t, "numpy")
	for name, c := range map[string]struct {
		change string
		flags  []string
		words  []string
	}{
		"fewer rows":         {"np.save('zs/z-2.npy', np.load('zs/z-2.npy')[:60])", nil, []string{"xs/x-2.npy has 61 rows", "zs/z-2.npy has 60"}},
		"a file less":        {"os.remove('deep/ys/y-4.npy')", nil, []string{"5 files", "xs/x-4.npy", "has 4", "deep/ys/y-3.npy"}},
		"no file at all":     {"", []string{"--array", "a=xs/*.npy", "--array", "b=none/*.npy"}, []string{"--array b: no file matches none/*.npy"}},
		"a truncated file":   {"os.truncate('deep/ys/y-0.npy', 150)", nil, []string{"deep/ys/y-0.npy", "40 rows of 2 bytes"}},
		"another kind":       {"np.save('zs/z-3.npy', np.zeros(7))", nil, []string{"xs/x-3.npy has", "'<f8'"}},
		"Fortran order":      {"np.save('xs/x-0.npy', np.asfortranarray(np.zeros((40, 3, 5), '<f4')))", nil, []string{"xs/x-0.npy", "Fortran order"}},
		"compressed":         {"import gzip; gzip.open('xs/q.npy.gz', 'wb').write(open('xs/x-0.npy', 'rb').read())", []string{"--array", "a=xs/*.gz", "--array", "b=xs/*.gz"}, []string{"xs/q.npy.gz is compressed"}},
		"a missing number":   {"os.remove('zs/z-3.npy')", nil, []string{"zs/z-3.npy is missing"}},
		"one array":          {"", []string{"--array", "a=xs/*.npy"}, []string{"--array", "2 to 64"}},
		"an impossible name": {"", []string{"--array", "a b=xs/*.npy", "--array", "c=xs/*.npy"}, []string{`"a b"`}},
		"a name twice":       {"", []string{"--array", "a=xs/*.npy", "--array", "a=xs/*.npy"}, []string{"--array a is given twice"}},
		"another format":     {"", []string{"--array", "a=xs/*.npy", "--array", "b=xs/*.npy", "--format", "tar"}, []string{"--array needs --format npy"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := together(t)
			script(t, interpreter, "import os, sys\nimport numpy as np\nos.chdir(sys.argv[1])\n"+c.change, d.dir)
			if c.flags != nil {
				d.flags = c.flags
			}
			policies := []string{"fail"}
			if name == "fewer rows" || name == "a file less" || name == "compressed" { // these are refused even with skip
				policies = append(policies, "skip")
			}
			for _, policy := range policies {
				r := tool(t, append([]string{"index", d.dir, "--on-corrupt", policy}, d.flags...)...)
				require.NotZero(t, r.code, policy)
				for _, words := range c.words {
					require.Contains(t, r.stderr, words, policy)
				}
			}
		})
	}
}

func TestChangedArrayFileFailsReadsAndIsIndexedAgain(t *testing.T) {
	d, s := together(t), usual()
	m := mountDataset(t, d, s)
	path := filepath.Join(d.dir, "zs/z-2.npy")
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	b[len(b)-1] ^= 1
	require.NoError(t, os.WriteFile(path, b, 0o644))
	_, err = os.ReadFile(m.path("epoch-0/worker-0-of-1.npy"))
	require.True(t, errors.Is(err, syscall.EIO), "%v", err)
	require.Contains(t, string(m.read("status")), "zs/z-2.npy")

	ref := newReference(t, d)
	requireSameBytes(t, ref.data(s, 0), toolOK(t, append(append([]string{"cat", d.dir, "--worker", "0/3"}, d.flags...), withoutWorkers(s.flags())...)...), "indexed anew")
}

func TestCheckpointOfSeveralArraysResumes(t *testing.T) {
	d, s := together(t), usual()
	ref := newReference(t, d)
	m := mountDataset(t, d, s)
	require.NoError(t, os.WriteFile(m.path("checkpoint"), []byte(`{"epoch": 0, "samples": 77}`), 0o644))
	saved := filepath.Join(t.TempDir(), "ckpt.json")
	require.NoError(t, os.WriteFile(saved, m.read("checkpoint"), 0o644))
	want := ref.ask(question{settings: s, Worker: 1, From: 77, Kind: "data"})
	requireFile(t, want, m.path("worker-1.npy"))
	got := toolOK(t, append([]string{"cat", d.dir, "--worker", "1/3", "--resume", saved}, d.flags...)...)
	requireSameBytes(t, want, got, "resumed")
	alone := tool(t, "cat", d.dir, "--format", "npy", "--resume", saved)
	require.NotZero(t, alone.code)
}
