package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// Games arrive while a model is trained on them. The training and the mount are killed. The
// resulting model equals, to the bit, that of another node that trains on the same epochs in one
// go: so no sample was lost or repeated, and all came in the same order.
func TestExampleLc0TrainsFromGrowingDirectory(t *testing.T) {
	serve.Tier(t, serve.CI)
	const batch, games = 4, 24
	for _, library := range []string{"numpy", "torch"} {
		t.Run(library, func(t *testing.T) {
			if library == "torch" {
				serve.Tier(t, serve.Night) // TestExampleLc0ResumesAfterStopsAndKillsWithEveryFrameOnce covers torch, too
			}
			t.Parallel() // they sleep most of the time
			interpreter := python(t, library, "numpy")
			made, _ := trainingGames(t, 6, games)
			d := dataset{name: "games", dir: t.TempDir(), flags: made.flags, ext: made.ext}
			arrive := func(from, to int) {
				t.Helper()
				for i := from; i < to; i++ {
					name := fmt.Sprintf("training.%d.gz", i)
					require.NoError(t, os.Rename(filepath.Join(made.dir, name), filepath.Join(d.dir, name)))
				}
			}
			dir, run := t.TempDir(), filepath.Join(t.TempDir(), "run")
			file := func(name string) string { return filepath.Join(dir, name) }
			flags := []string{"--grow", "--run", run, "--window", "12units", "--min-new", "8units", "--settle", "200ms"}
			point, index := t.TempDir(), t.TempDir()
			arrive(0, 3)
			m := startMount(t, d, point, append(flags, "--index-dir", index)...)
			m.requireLog("waiting: epoch 0 is not available yet: 3 of 8 new units")
			arrive(3, 8)
			require.NoError(t, m.waitUntilMounted())

			line := func(mnt string, more ...string) []string {
				l := slices.Concat([]string{"../examples/lc0/train.py", mnt, "--batch", fmt.Sprint(batch), "--epochs", "2"}, more)
				if library == "torch" {
					l = append(l, "--torch")
				}
				return l
			}
			env := []string{"OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1"} // sums in a fixed order
			var exited <-chan struct{}                                     // of the last program started
			start := func() *exec.Cmd {
				t.Helper()
				cmd := exec.Command(interpreter, line(m.dir, "--save", file("parts.npz"), "--save-every", "1", "--log", file("parts"))...)
				cmd.Env = append(environment(filepath.Join(scratch, "tmp")), env...)
				exited = launch(t, cmd)
				return cmd
			}
			steps := func(epoch string, n int) {
				t.Helper()
				until(t, exited, func() bool {
					b, _ := os.ReadFile(file("parts"))
					return strings.Count("\n"+string(b), "\n"+epoch+" ") >= n
				}, "step %d of epoch %s", n, epoch)
			}
			training := start()
			steps("0", 3)
			_ = training.Process.Kill()
			<-exited
			m.kill() // kill the mount, too
			detach(point)
			arrive(8, 12) // half of what epoch 1 needs
			m = mountAt(t, d, point, append(flags, "--index-dir", index)...)
			training = start() // finishes epoch 0, and waits
			m.until(func() bool {
				return strings.Contains(string(m.read("status")), "epoch 1 is not available yet: 4 of 8 new units")
			})
			arrive(12, games)
			steps("1", 2)
			_ = training.Process.Kill() // unless it has just ended
			<-exited
			training = start()
			<-exited
			require.Zero(t, training.ProcessState.ExitCode())

			other := mountAt(t, d, t.TempDir(), append(flags, "--index-dir", t.TempDir())...)
			r := command(t, env, nil, interpreter, line(other.dir, "--save", file("whole.npz"), "--log", file("whole"))...)
			require.Zero(t, r.code, r.stderr)
			script(t, interpreter, sameModel, file("whole.npz"), file("parts.npz"))

			log, err := os.ReadFile(file("whole"))
			require.NoError(t, err)
			trained := map[string][]string{}
			for step := range strings.Lines(string(log)) {
				words := strings.Fields(step)
				trained[words[0]] = append(trained[words[0]], words[1:]...)
			}
			require.Len(t, trained, 2)
			for epoch, seen := range trained {
				n := len(splitIDs(other.read("epoch-%s/worker-0-of-1.ids", epoch)))
				slices.Sort(seen)
				require.Len(t, slices.Compact(seen), n, "epoch %s has every frame once", epoch)
			}
		})
	}
}
