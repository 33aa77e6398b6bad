package integration

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// trainingGames makes games of frames that can be trained on, each with its own number in the field
// visits.
func trainingGames(t testing.TB, version uint32, games int) (d dataset, frames int) {
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(uint64(version), 9))
	float := func(f []byte, at int, v float32) { binary.LittleEndian.PutUint32(f[at:], math.Float32bits(v)) }
	for i := range games {
		var game []byte
		for range 3 + r.IntN(12) {
			f := make([]byte, frameSizes[version])
			for b := range f[7440:8280] {
				f[7440+b] = byte(r.Uint32())
			}
			binary.LittleEndian.PutUint32(f, version)
			binary.LittleEndian.PutUint32(f[4:], 1)
			for move := range 1858 {
				float(f, 8+4*move, -1)
			}
			for range 20 {
				float(f, 8+4*r.IntN(1858), r.Float32())
			}
			for at := 8280; at < 8340; at += 4 {
				float(f, at, r.Float32())
			}
			for at := 8348; at+4 <= len(f) && at < 8360; at += 4 { // policy_kld, q_st, d_st
				float(f, at, r.Float32())
			}
			result := r.IntN(3) - 1
			float(f, 8308, float32(result))
			float(f, 8312, float32(1-result*result))
			binary.LittleEndian.PutUint32(f[8340:], uint32(frames))
			frames++
			game = append(game, f...)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("training.%d.gz", i)), gzipMember(game), 0o644))
	}
	return dataset{name: "games", dir: dir, flags: []string{"--format", "lc0", "--lc0-check"}, ext: ".bin"}, frames
}

// sameTensors compares the example's tensors of frames with the rows of a mount --as tensors:f4.
// argv: the example's directory, both streams, torch or not.
const sameTensors = `
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from batches import batches, tensors, torch_tensors

rows, at = np.load(sys.argv[3], mmap_mode="r"), 0
for frames in batches(sys.argv[2], 7):
    given = [tensors(frames)]
    if sys.argv[4] == "torch":
        given.append([t.numpy() for t in torch_tensors(frames)])
    want = rows[at : at + len(frames)]
    for made in given:
        for name, tensor in zip(("planes", "probabilities", "values"), made):
            assert tensor.dtype == np.float32 and tensor.shape == want[name].shape, (name, tensor.shape)
            assert np.array_equal(tensor, want[name], equal_nan=True), (name, at)
    at += len(frames)
assert at == len(rows) > 0, (at, len(rows))
`

func TestExampleLc0ComputesSameTensorsAsMount(t *testing.T) {
	serve.Tier(t, serve.CI)
	torch := python(t, "torch", "numpy")
	for _, version := range []uint32{6, 7} {
		d, _ := trainingGames(t, version, 6)
		frames := mountDataset(t, d, usual())
		rows := mountDataset(t, d, usual(), "--as", "tensors:f4")
		script(t, torch, sameTensors, "../examples/lc0", frames.path("epoch-3/worker-0-of-1.bin"), rows.path("epoch-3/worker-0-of-1.npy"), "torch")
	}
	// It refuses frames that it can't convert.
	m := mountAt(t, dataset{dir: filepath.Join(mixedGames(t, 1).dir, "training.30.gz")}, t.TempDir(), "--format", "lc0")
	r := command(t, nil, nil, python(t, "numpy"), "../examples/lc0/batches.py", m.path("worker-0.bin"))
	require.NotZero(t, r.code)
	require.Contains(t, r.stderr, "mount with --as tensors, which knows them all")
}

// sameModel checks that two models are equal to the bit. argv: their files.
const sameModel = `
import sys
import numpy as np
a, b = np.load(sys.argv[1]), np.load(sys.argv[2])
assert set(a.files) == set(b.files) == {"epoch", "samples", "planes", "moves", "results"}
for name in a.files:
    assert a[name].tobytes() == b[name].tobytes(), name
assert np.isfinite(a["planes"]).all() and a["epoch"] == 2 and a["samples"] == 0
`

// A model that was trained in one go and one whose training was stopped and killed are equal to the
// bit: so no sample was lost or repeated, and all came in the same order.
func TestExampleLc0ResumesAfterStopsAndKillsWithEveryFrameOnce(t *testing.T) {
	serve.Tier(t, serve.CI)
	d, frames := trainingGames(t, 6, 20)
	const batch = 8
	s := usual()
	s.Batch, s.Tail = batch, "drop"
	m := mountDataset(t, d, s)
	for _, library := range []string{"numpy", "torch"} {
		t.Run(library, func(t *testing.T) {
			interpreter := python(t, library, "numpy")
			dir := t.TempDir()
			file := func(name string) string { return filepath.Join(dir, name) }
			line := []string{"../examples/lc0/train.py", m.dir, "--batch", fmt.Sprint(batch), "--epochs", "2"}
			if library == "torch" {
				line = append(line, "--torch")
			}
			env := []string{"OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1"} // sums in a fixed order
			train := func(more ...string) {
				t.Helper()
				r := command(t, env, nil, interpreter, append(slices.Clone(line), more...)...)
				require.Zero(t, r.code, r.stderr)
			}
			train("--save", file("whole.npz"), "--log", file("log"))
			trained := map[string][]string{}
			log, err := os.ReadFile(file("log"))
			require.NoError(t, err)
			for step := range strings.Lines(string(log)) {
				words := strings.Fields(step)
				trained[words[0]] = append(trained[words[0]], words[1:]...)
			}
			require.Len(t, trained, 2)
			for epoch, seen := range trained {
				require.Len(t, seen, frames/batch*batch, "epoch %s", epoch)
				slices.Sort(seen)
				require.Len(t, slices.Compact(seen), frames/batch*batch, "epoch %s has no frame twice", epoch)
			}

			train("--save", file("parts.npz"), "--steps", "3")
			killed := exec.Command(interpreter, append(slices.Clone(line), "--save", file("parts.npz"), "--save-every", "1", "--log", file("killed"))...)
			killed.Env = append(environment(filepath.Join(scratch, "tmp")), env...)
			exited := launch(t, killed)
			until(t, exited, func() bool { // it is in the middle of training
				b, _ := os.ReadFile(file("killed"))
				return strings.Count(string(b), "\n") >= 2
			}, "two steps")
			require.NoError(t, killed.Process.Kill())
			<-exited
			train("--save", file("parts.npz"), "--save-every", "2")
			script(t, interpreter, sameModel, file("whole.npz"), file("parts.npz"))
		})
	}
}
