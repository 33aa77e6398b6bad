package integration

import (
	"archive/tar"
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// growing is a directory in which shards arrive, and the run over it.
type growing struct {
	t      *testing.T
	data   dataset
	runDir string
	r      *rand.Rand
	shards int
}

func newGrowing(t *testing.T) *growing {
	t.Helper()
	return &growing{
		t: t, data: dataset{name: "growing", dir: t.TempDir(), ext: ".tar", flags: []string{"--format", "tar"}},
		runDir: filepath.Join(t.TempDir(), "run"), r: rand.New(rand.NewPCG(*drawSeed, 23)),
	}
}

// arrive adds a shard to the directory as a writer should: under another name first.
func (g *growing) arrive() {
	g.t.Helper()
	s := formatNamed("tar").make(g.r, g.shards)
	temporary := filepath.Join(g.data.dir, "next.tmp")
	require.NoError(g.t, os.WriteFile(temporary, s.bytes, 0o644))
	require.NoError(g.t, os.Rename(temporary, filepath.Join(g.data.dir, fmt.Sprintf("training.%d.tar", g.shards))))
	g.shards++
}

// flags returns the flags of a node, which has its own index directory.
func (g *growing) flags(s settings, index string, more ...string) []string {
	return slices.Concat(s.flags(), []string{"--grow", "--run", g.runDir, "--index-dir", index, "--min-new", "1shards", "--settle", "200ms"}, more)
}

// next makes a mount advance to the next epoch.
func next(t *testing.T, m *mount) (epoch struct {
	Epoch      int    `json:"epoch"`
	Snapshot   string `json:"snapshot"`
	NewRecords int    `json:"new_records"`
}) {
	t.Helper()
	require.NoError(t, json.Unmarshal(toolOK(t, "next", m.dir, "--wait", "--json"), &epoch))
	return epoch
}

// alone returns a snapshot as a dataset: its shards in a separate directory.
func (g *growing) alone(snapshot string) dataset {
	g.t.Helper()
	d := g.data
	d.dir = g.t.TempDir()
	text := string(output(g.t, "zcat", g.file(snapshot)))
	for _, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n")[1:] {
		name := strings.SplitN(line, " ", 4)[3]
		require.NoError(g.t, os.Link(filepath.Join(g.data.dir, name), filepath.Join(d.dir, name)))
	}
	return d
}

func (g *growing) file(snapshot string) string {
	return filepath.Join(g.runDir, "snapshots", snapshot+".gz")
}

// Two nodes train for six epochs from a directory that a writer fills, and get the same bytes. Both
// are killed, and resume with other numbers of workers. Every epoch is exactly its snapshot, as cat
// and the reference read it.
func TestTwoNodesTrainFromGrowingDirectory(t *testing.T) {
	serve.Tier(t, serve.CI)
	t.Parallel() // a shard is taken a second after it has arrived
	g := newGrowing(t)
	g.arrive()
	s := usual()
	indexes := []string{t.TempDir(), t.TempDir()}
	points := []string{t.TempDir(), t.TempDir()}
	nodes := make([]*mount, 2)
	for i := range nodes {
		nodes[i] = mountAt(t, g.data, points[i], g.flags(s, indexes[i])...)
	}
	for epoch := range 6 {
		if epoch > 0 {
			require.Equal(t, epoch, next(t, nodes[epoch%2]).Epoch, "one of them begins it")
			require.Equal(t, epoch, next(t, nodes[1-epoch%2]).Epoch, "and the other joins")
		}
		g.arrive() // for the next epoch, while this one is read
		s.Epoch = uint64(epoch)
		var about struct {
			Fingerprint string `json:"fingerprint"`
		}
		require.NoError(t, json.Unmarshal(nodes[0].read("epoch-%d/dataset.json", epoch), &about))
		ref := newReference(t, g.alone(about.Fingerprint))
		for w := range s.Workers {
			want := ref.data(s, w)
			for i := range nodes {
				requireSameBytes(t, want, nodes[i].read("epoch-%d/worker-%d-of-%d.tar", epoch, w, s.Workers), "node %d, epoch %d, worker %d", i, epoch, w)
			}
			flags := slices.Concat([]string{"cat", g.data.dir}, g.data.flags, s.flags(), []string{"--snapshot", g.file(about.Fingerprint), "--epoch", fmt.Sprint(epoch), "--worker", fmt.Sprint(w)})
			requireSameBytes(t, want, toolOK(t, flags...), "cat of the snapshot of epoch %d", epoch)
		}
		if epoch != 1 && epoch != 3 {
			continue
		}
		for i := range nodes { // both stop somewhere in the epoch, and resume with other workers
			var came []string
			for w := range s.Workers {
				came = append(came, nodes[i].take(g.data, w, 3+w)...)
			}
			saved := filepath.Join(t.TempDir(), "ckpt.json")
			require.NoError(t, os.WriteFile(saved, nodes[i].read("checkpoint"), 0o600))
			nodes[i].kill()
			detach(points[i])
			workers := 2 + epoch + i
			nodes[i] = mountAt(t, g.data, points[i], "--grow", "--run", g.runDir, "--index-dir", indexes[i], "--min-new", "1shards", "--settle", "200ms",
				"--resume", saved, "--workers", fmt.Sprint(workers))
			for w := range workers {
				came = append(came, splitIDs(nodes[i].read("worker-%d.ids", w))...)
			}
			requireTiles(t, ref.g(s), came)
		}
	}
}

// Listing starts no epoch, whatever walks the mount, and an epoch that can't start yet does not
// exist.
func TestListingGrowingDirectoryStartsNoEpoch(t *testing.T) {
	g := newGrowing(t)
	g.arrive()
	m := mountAt(t, g.data, t.TempDir(), g.flags(usual(), t.TempDir())...)
	_, err := os.Open(m.path("epoch-1/worker-0-of-1.tar"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.Contains(t, string(m.read("status")), "epoch 1 is not available yet: 0 of 1 new shards")
	r := tool(t, "next", m.dir)
	require.Equal(t, 8, r.code)
	require.Contains(t, r.stderr, "epoch 1 is not available yet: 0 of 1 new shards: add --wait")
	g.arrive()
	m.until(func() bool { return strings.Contains(string(m.read("status")), "can begin now") })
	for _, walk := range []string{"ls -lR", "find", "du -a", "tar -cf /dev/null", "rsync -a --list-only"} {
		if _, err := exec.LookPath(strings.Fields(walk)[0]); err == nil {
			command(t, nil, nil, "sh", "-c", walk+" '"+m.dir+"' 2>&1")
		}
	}
	require.NoFileExists(t, filepath.Join(g.runDir, "epoch-1"))
	r = tool(t, "inspect", g.data.dir, "--grow", "--run", g.runDir, "--epoch", "1", "--index-dir", t.TempDir())
	require.Equal(t, 3, r.code, r.stderr)
	require.NoFileExists(t, filepath.Join(g.runDir, "epoch-1"), "a command that only looks")
	info, err := os.Stat(m.path("epoch-1/worker-0-of-1.tar"))
	require.NoError(t, err, "it could begin")
	require.Zero(t, info.Size())
	require.NoFileExists(t, filepath.Join(g.runDir, "epoch-1"), "a look at a file")
	m.read("epoch-1/worker-0-of-1.tar")
	require.FileExists(t, filepath.Join(g.runDir, "epoch-1"))
}

// A mount of an empty directory waits for its first shard. A checkpoint of another run is refused
// and has no effect.
func TestMountOfEmptyDirectoryWaitsAndRefusesOtherRun(t *testing.T) {
	g := newGrowing(t)
	m := startMount(t, g.data, t.TempDir(), g.flags(usual(), t.TempDir())...)
	m.requireLog("waiting: epoch 0 is not available yet: there are no records")
	require.NoDirExists(t, g.runDir)
	g.arrive()
	require.NoError(t, m.waitUntilMounted())
	saved := filepath.Join(t.TempDir(), "ckpt.json")
	require.NoError(t, os.WriteFile(saved, m.read("checkpoint"), 0o600))
	other := filepath.Join(t.TempDir(), "other")
	r := tool(t, "cat", g.data.dir, "--grow", "--run", other, "--resume", saved, "--index-dir", t.TempDir())
	require.NotZero(t, r.code)
	require.Contains(t, r.stderr, "there is no run in "+other)
	require.NoDirExists(t, other)
}

// With --hold the shards of an epoch can be deleted; without it, reading them then is an error.
func TestDeletedShardsWithAndWithoutHold(t *testing.T) {
	serve.Tier(t, serve.CI)
	for _, hold := range []bool{true, false} {
		t.Run(fmt.Sprint(hold), func(t *testing.T) {
			g := newGrowing(t)
			g.arrive()
			g.arrive()
			var more []string
			if hold {
				more = []string{"--hold"}
			}
			index := t.TempDir()
			m := mountAt(t, g.data, t.TempDir(), g.flags(usual(), index, more...)...)
			want := newReference(t, g.alone(fingerprintOf(t, m))).data(usual(), 0)
			require.NoError(t, os.Remove(filepath.Join(g.data.dir, "training.1.tar")))
			m.end() // it may have the shard open
			m = mountAt(t, g.data, t.TempDir(), g.flags(usual(), index, more...)...)
			got, err := os.ReadFile(m.path("worker-0.tar"))
			if hold {
				require.NoError(t, err)
				requireSameBytes(t, want, got, "held")
				return
			}
			require.ErrorIs(t, err, syscall.EIO)
			require.Contains(t, string(m.read("status")), "training.1.tar")
		})
	}
}

// Ctrl-C or SIGTERM while next waits for an epoch ends it with the documented code. It has started
// nothing, and the following one waits as if it had not run.
func TestNextCanBeInterruptedWhileWaiting(t *testing.T) {
	g := newGrowing(t)
	g.arrive()
	m := mountAt(t, g.data, t.TempDir(), g.flags(usual(), t.TempDir())...)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		cmd := exec.Command(lsiofs, "next", m.dir, "--wait")
		cmd.Env = environment(t.TempDir())
		stderr, err := cmd.StderrPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		defer func() { _ = cmd.Process.Kill() }()
		said := bufio.NewReader(stderr)
		line, err := said.ReadString('\n')
		require.NoError(t, err)
		require.Contains(t, line, "waiting: epoch 1 is not available yet: 0 of 1 new shards")
		require.NoError(t, cmd.Process.Signal(signal))
		rest, err := io.ReadAll(said)
		require.NoError(t, err)
		require.Error(t, cmd.Wait())
		require.Equal(t, 130, cmd.ProcessState.ExitCode())
		require.Equal(t, "lsiofs: interrupted\n", string(rest))
		require.NoFileExists(t, filepath.Join(g.runDir, "epoch-1"))
	}
	g.arrive()
	require.Equal(t, 1, next(t, m).Epoch)
}

func fingerprintOf(t *testing.T, m *mount) string {
	t.Helper()
	var about struct {
		Fingerprint string `json:"fingerprint"`
	}
	require.NoError(t, json.Unmarshal(m.read("dataset.json"), &about))
	return about.Fingerprint
}

// cat --follow writes one archive over all epochs, and its progress file has its position.
func TestFollowWritesOneStream(t *testing.T) {
	t.Parallel() // a shard is taken a second after it has arrived
	g := newGrowing(t)
	g.arrive()
	s := usual()
	s.Workers = 1
	progress := filepath.Join(t.TempDir(), "progress.json")
	out, err := os.Create(filepath.Join(t.TempDir(), "out.tar"))
	require.NoError(t, err)
	defer func() { require.NoError(t, out.Close()) }()
	cmd := exec.Command(lsiofs, slices.Concat([]string{"cat", g.data.dir}, g.data.flags, g.flags(s, t.TempDir(), "--follow", "--progress-file", progress))...)
	cmd.Env, cmd.Stdout = environment(t.TempDir()), out
	exited := launch(t, cmd)
	var want []byte
	for epoch := range 3 {
		if epoch > 0 {
			g.arrive()
		}
		until(t, exited, func() bool {
			_, err := os.Stat(filepath.Join(g.runDir, fmt.Sprintf("epoch-%d", epoch)))
			return err == nil
		}, "epoch %d", epoch)
		var record struct {
			Snapshot string `json:"snapshot"`
			Records  int    `json:"records"`
		}
		b, err := os.ReadFile(filepath.Join(g.runDir, fmt.Sprintf("epoch-%d", epoch)))
		require.NoError(t, err)
		line, _, _ := bytes.Cut(b, []byte("\n"))
		require.NoError(t, json.Unmarshal(line, &record))
		s.Epoch = uint64(epoch)
		want = append(want, bytes.TrimSuffix(newReference(t, g.alone(record.Snapshot)).data(s, 0), make([]byte, 1024))...)
		until(t, exited, func() bool {
			b, err := os.ReadFile(progress)
			return err == nil && strings.TrimSpace(string(b)) == fmt.Sprintf(`{"epoch": %d, "samples": %d}`, epoch, record.Records)
		}, "all of epoch %d", epoch)
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	<-exited
	require.Equal(t, 130, cmd.ProcessState.ExitCode())
	got, err := os.ReadFile(out.Name())
	require.NoError(t, err)
	require.Equal(t, tarNames(t, want), tarNames(t, got))
	r := tool(t, "cat", g.data.dir, "--follow")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.stderr, "add --grow")
}

// tarNames returns the members of an archive whose end may be missing, without the prefix that the
// equal-key rule adds to a name.
func tarNames(t *testing.T, b []byte) (names []string) {
	t.Helper()
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return names
		}
		require.NoError(t, err)
		name := h.Name
		if rest, found := strings.CutPrefix(name, "dup-0/"); found {
			name = rest
		}
		names = append(names, name)
	}
}
