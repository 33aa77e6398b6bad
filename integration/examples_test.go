package integration

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// targets returns a JSONL dataset of {"x": [...], "y": n}, with n from 0 on.
func targets(t *testing.T, records int) dataset {
	t.Helper()
	d := dataset{name: "targets", dir: t.TempDir(), ext: ".jsonl"}
	for shard := range 4 {
		var b bytes.Buffer
		for n := shard * records / 4; n < (shard+1)*records/4; n++ {
			fmt.Fprintf(&b, `{"x": [%d, %d], "y": %d}`+"\n", n%7, n%3, n)
		}
		require.NoError(t, os.WriteFile(filepath.Join(d.dir, fmt.Sprintf("%d.jsonl", shard)), b.Bytes(), 0o644))
	}
	return d
}

func TestExampleTorchResumesOnOtherRanksWithEveryRecordOnce(t *testing.T) {
	serve.Tier(t, serve.CI)
	interpreter := python(t, "torch")
	const records, batch = 240, 4
	s := usual()
	s.Batch, s.Tail = batch, "drop"
	m := mountDataset(t, targets(t, records), s)
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	save := filepath.Join(dir, "model.pt")
	train := func(ranks int, more ...string) {
		t.Helper()
		meet := freePort(t)
		args := append([]string{"../examples/torch/train.py", m.dir, "--batch", fmt.Sprint(batch), "--log", log, "--save", save}, more...)
		var group errgroup.Group
		for rank := range ranks {
			cmd := exec.CommandContext(t.Context(), interpreter, args...)
			cmd.Env = append(environment(filepath.Join(scratch, "tmp")), fmt.Sprintf("RANK=%d", rank), fmt.Sprintf("WORLD_SIZE=%d", ranks), "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+meet)
			group.Go(func() error {
				if out, err := cmd.CombinedOutput(); err != nil {
					return fmt.Errorf("%w: %s", err, out)
				}
				return nil
			})
		}
		require.NoError(t, group.Wait())
	}
	// Two ranks of two workers each, interrupted after 7 steps of 8 records …
	train(2, "--loader-workers", "2", "--steps", "7", "--save-every", "3")
	// … and continued with one rank of three workers, to the end of the next epoch.
	train(1, "--loader-workers", "3", "--epochs", "2")

	b, err := os.ReadFile(log)
	require.NoError(t, err)
	trained := map[string][]string{}
	for line := range strings.Lines(string(b)) {
		if targets, is := strings.CutPrefix(line, "trained on "); is {
			words := strings.Fields(targets)
			require.Len(t, words, 2+batch)
			trained[words[0]] = append(trained[words[0]], words[2:]...)
		}
	}
	for epoch, min := range map[string]int{"0": records - 3*batch, "1": records - 3*batch} {
		seen := slices.Clone(trained[epoch])
		slices.Sort(seen)
		require.Len(t, slices.Compact(seen), len(trained[epoch]), "no record twice in epoch %s", epoch)
		require.GreaterOrEqual(t, len(trained[epoch]), min, "none left out but by --tail drop")
	}
	require.NotEqual(t, trained["0"], trained["1"])
}

// freePort returns a port of 127.0.0.1 for one server of the test. It is also bound here, without
// listening, so that nothing else gets it before the server starts.
func freePort(t *testing.T) string {
	t.Helper()
	held, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(held) })
	// Servers set this, too: two sockets with this option may be bound to a port if one of them
	// listens.
	require.NoError(t, unix.SetsockoptInt(held, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
	require.NoError(t, unix.Bind(held, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	at, err := unix.Getsockname(held)
	require.NoError(t, err)
	return strconv.Itoa(at.(*unix.SockaddrInet4).Port)
}

func TestExamplePythonSamplesGroupsLikeStream(t *testing.T) {
	d := plain(t, "tar", 9)
	s := usual()
	m := mountDataset(t, d, s)
	out := output(t, python(t), "../examples/python/samples.py", m.path("worker-0.tar"))
	require.Equal(t, len(newReference(t, d).ids(s, 0)), bytes.Count(out, []byte("\n")), "one sample a record")
}

func TestExampleTorchImagesLearnsLabelsOfImageFolder(t *testing.T) {
	serve.Tier(t, serve.CI)
	interpreter := python(t, "torch")
	needFUSE(t)
	dir := t.TempDir()
	output(t, interpreter, "../examples/torch/images.py", "make", dir)
	out := string(output(t, interpreter, "../examples/torch/images.py", "train", dir, "--epochs", "3"))
	require.Contains(t, out, "classes: 0 circle, 1 cross, 2 stripes\n")
	last := regexp.MustCompile(`epoch 2: (\d+) of 360 right`).FindStringSubmatch(out)
	require.NotNil(t, last, out)
	right, err := strconv.Atoi(last[1])
	require.NoError(t, err)
	require.Greater(t, right, 300, "a guess is right 120 times")
}

func TestExamplePythonRecordsReadsInRandomOrder(t *testing.T) {
	m := mountDataset(t, plain(t, "jsonl", 4), usual())
	data := m.read("epoch-0/worker-0-of-1.jsonl")
	offsets := splitOffsets(m.read("epoch-0/worker-0-of-1.offsets"))
	out := output(t, python(t), "../examples/python/records.py", m.path("epoch-0/worker-0-of-1.jsonl"), "17", "3", "100")
	want := slices.Concat(data[offsets[17]:offsets[18]], data[offsets[3]:offsets[4]], data[offsets[100]:offsets[101]])
	requireSameBytes(t, want, out, "records 17, 3 and 100")
}

func TestExampleNodePrintsMembersOfStream(t *testing.T) {
	node, modules := nodeWith(t, "tar-stream")
	m := mountDataset(t, plain(t, "tar", 9), usual())
	r := command(t, []string{"NODE_PATH=" + modules}, nil, node, "../examples/node/samples.js", m.path("worker-0.tar"))
	require.Zero(t, r.code, r.stderr)
	sizes := shell(t, `tar -tvf "$1" | awk '/^-/ { print $3 }'`, m.path("worker-0.tar"))
	var got bytes.Buffer
	for line := range strings.Lines(string(r.stdout)) {
		fmt.Fprintln(&got, strings.TrimSpace(line[strings.LastIndex(line, " "):]))
	}
	require.Equal(t, string(sizes), got.String())
}

func TestExampleTokensLearns(t *testing.T) {
	serve.Tier(t, serve.CI)
	interpreter := python(t, "numpy")
	dir := t.TempDir()
	output(t, interpreter, "../examples/tokens/train.py", "prepare", "../README.md", dir)
	m := mountAt(t, dataset{name: "tokens", dir: filepath.Join(dir, "*.bin"), ext: ".bin"}, t.TempDir(), "--format", "fixed", "--record-bytes", "130", "--stride-bytes", "128")
	out := output(t, interpreter, "../examples/tokens/train.py", "train", m.dir, dir, "--epochs", "3")
	losses := regexp.MustCompile(`loss ([0-9.]+)`).FindAllStringSubmatch(string(out), -1)
	require.Len(t, losses, 3, "%s", out)
	first, err := strconv.ParseFloat(losses[0][1], 64)
	require.NoError(t, err)
	last, err := strconv.ParseFloat(losses[2][1], 64)
	require.NoError(t, err)
	require.Less(t, first, 4.4, "less than of a guess among a hundred characters")
	require.Less(t, last, 0.9*first)
}

func TestExamplesInCAndNodeReadByOffsets(t *testing.T) {
	program := filepath.Join(t.TempDir(), "records")
	output(t, need(t, "cc"), "-Wall", "-Wextra", "-Werror", "-O2", "-o", program, "../examples/c/records.c")
	m := mountDataset(t, plain(t, "tfrecord", 4), usual())
	for _, stream := range []string{"worker-1", "epoch-0/worker-0-of-1", "epoch-0/worker-999-of-1000"} {
		data := m.read("%s.tfrecord", stream)
		sum := uint64(0)
		for _, b := range data {
			sum += uint64(b)
		}
		want := fmt.Sprintf("%d %d %d\n", len(m.read("%s.ids", stream))/16, len(data), sum)
		files := []string{m.path("%s.tfrecord", stream), m.path("%s.offsets", stream)}
		require.Equal(t, want, string(output(t, program, files...)))
		require.Equal(t, want, string(output(t, need(t, "node"), append([]string{"../examples/node/records.js"}, files...)...)))
	}
}
