package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

const pythonPackage = "../examples/python"

// TestPythonPackageTestsPass runs them with the best interpreter available. If it has no
// torch or numpy, the tests that need them are skipped, and so is this one, with their output.
func TestPythonPackageTestsPass(t *testing.T) {
	serve.Tier(t, serve.CI)
	needFUSE(t)
	interpreter := python(t)
	for _, modules := range [][]string{{"torch", "numpy"}, {"numpy"}} {
		if path := pythonWith(modules...); path != "" {
			interpreter = path
			break
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), mountLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, interpreter, "-W", "error::ResourceWarning", "-m", "unittest", "discover", "-v", "-s", "tests", "-t", ".")
	cmd.Dir = pythonPackage
	cmd.Env = environment(filepath.Join(scratch, "tmp"))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Regexp(t, `Ran [5-9]\d tests`, string(out))
	if bytes.Contains(out, []byte("skipped=")) {
		missing(t, "some of the Python package's tests were skipped: no Python 3 imports torch and numpy")
	}
}

// The records are the ones given by the offsets, byte for byte, with windows of any size.
func TestPythonReturnsRecordsOfEveryFormat(t *testing.T) {
	for _, f := range formats {
		t.Run(f.name, func(t *testing.T) {
			m := mountDataset(t, makeDataset(t, f, codecs[0], 5, 3), usual())
			data := m.read("epoch-0/worker-0-of-1%s", f.ext)
			offsets := splitOffsets(m.read("epoch-0/worker-0-of-1.offsets"))
			last := len(offsets) - 1
			for _, window := range []string{"1", "1000", "4190208"} {
				out := script(t, python(t), `
import sys
import lsiofs, lsiofs.stream
lsiofs.stream.WINDOW = int(sys.argv[3])
data = lsiofs.open(sys.argv[2])
stream = data.epoch(0).stream()
held = list(stream)
places = stream.offsets()
assert len(held) == len(stream) and [len(r) for r in held] == [b - a for a, b in zip(places, places[1:])]
assert [bytes(r) for r in lsiofs.Stream(sys.argv[1], 17)] == held[17:]
assert sys.argv[4].startswith(data.format), data.format
if data.format != "npy":
    assert len(list(stream.samples())) == len(held)
for record in held:
    sys.stdout.buffer.write(record)
`, m.path("epoch-0/worker-0-of-1%s", f.ext), m.dir, window, f.name)
				requireSameBytes(t, data[offsets[0]:offsets[last]], out, "%s", f.name)
			}
		})
	}
}

func TestPythonReturnsArraysOfFixedRecords(t *testing.T) {
	m := mountDataset(t, plain(t, "fixed", 4), usual())
	data := m.read("epoch-0/worker-0-of-1.bin")
	out := script(t, python(t, "numpy"), `
import sys
import lsiofs, lsiofs.stream
dtype = [("head", ">u4"), ("rest", "u1", 92)]
stream = lsiofs.Stream(sys.argv[1])
for lsiofs.stream.WINDOW in 1, 10000, 1 << 22:
    sizes = [len(b) for b in stream.arrays(7, dtype)]
    assert set(sizes[:-1]) == {7} and sum(sizes) == len(stream), sizes
rest = b"".join(b.tobytes() for b in lsiofs.Stream(sys.argv[1], 5).arrays(7, dtype))
every = b"".join(b.tobytes() for b in stream.arrays(7, dtype))
assert every[5 * 96 :] == rest
sys.stdout.buffer.write(every)
`, m.path("epoch-0/worker-0-of-1.bin"))
	requireSameBytes(t, data, out, "all batches")
}

// Two ranks of two workers take some steps, three ranks of one worker resume from their state, and
// one rank without workers takes the rest.
func TestPythonTorchDatasetResumesWithOtherRanksAndWorkers(t *testing.T) {
	serve.Tier(t, serve.CI)
	interpreter := python(t, "torch")
	const records, batch = 240, 4
	s := usual()
	s.Batch = batch
	m := mountDataset(t, targets(t, records), s)
	out := script(t, interpreter, `
import itertools, json, sys
import lsiofs
from torch.utils.data import DataLoader

data, batch = lsiofs.open(sys.argv[1]), int(sys.argv[2])
saved = json.dumps(data.state_dict(0))
for ranks, workers, steps in (2, 2, 7), (3, 1, 5), (1, 0, None):
    data.load_state_dict(json.loads(saved))
    samples = data.position.samples
    datasets = [data.torch(lambda sample: sample["y"], rank=rank, ranks=ranks) for rank in range(ranks)]
    loaders = [iter(DataLoader(d, batch_size=batch, num_workers=workers)) for d in datasets]
    for _ in itertools.count() if steps is None else range(steps):
        batches = [next(loader, None) for loader in loaders]
        if batches[0] is None:
            break
        for b in batches:
            print(*[int(y) for y in b], sep="\n")
        samples += batch * ranks
    saved = json.dumps(data.state_dict(samples))
`, m.dir, fmt.Sprint(batch))
	var want bytes.Buffer
	for line := range bytes.Lines(m.read("epoch-0/worker-0-of-1.jsonl")) {
		var record struct{ Y int }
		require.NoError(t, json.Unmarshal(line, &record))
		fmt.Fprintln(&want, record.Y)
	}
	require.Equal(t, want.String(), string(out), "the order of the epoch, whoever read it")
}

// venv makes a virtual environment and returns its bin directory.
func venv(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "venv")
	r := command(t, nil, nil, python(t, "venv", "ensurepip"), "-m", "venv", dir)
	require.Zero(t, r.code, r.stderr)
	return filepath.Join(dir, "bin")
}

// installed is the environment of a program that has the package only through pip.
var installed = []string{"PYTHONPATH=", "LSIOFS_COMMAND=", "PIP_DISABLE_PIP_VERSION_CHECK=1"}

func TestPipInstallsPythonPackageFromSourceOffline(t *testing.T) {
	serve.Tier(t, serve.CI)
	source, bin := filepath.Join(t.TempDir(), "source"), venv(t)
	output(t, "cp", "-r", pythonPackage, source) // because pip leaves files behind
	r := command(t, installed, nil, filepath.Join(bin, "pip"), "install", "--no-index", source)
	require.Zero(t, r.code, r.stderr)
	d := targets(t, 8)
	program := "import lsiofs, sys\nwith lsiofs.mount(sys.argv[1]) as data: print(len(list(data.epoch(0).samples())))"
	// Without the command the error describes how to get it; with it in PATH it works.
	r = command(t, append(installed, "PATH="+bin), nil, filepath.Join(bin, "python"), "-c", program, d.dir)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "CommandNotFound: the command lsiofs is not found: install a wheel that includes it")
	needFUSE(t)
	require.NoError(t, os.Symlink(lsiofs, filepath.Join(bin, "lsiofs")))
	r = command(t, append(installed, "PATH="+bin), nil, filepath.Join(bin, "python"), "-c", program, d.dir)
	require.Zero(t, r.code, r.stderr)
	require.Equal(t, "8\n", string(r.stdout))
	// An editable install, for developers.
	r = command(t, installed, nil, filepath.Join(bin, "pip"), "install", "--no-index", "-e", source)
	require.Zero(t, r.code, r.stderr)
	r = command(t, installed, nil, filepath.Join(bin, "python"), "-c", "import lsiofs; print(lsiofs.__file__)")
	require.Equal(t, filepath.Join(source, "src/lsiofs/__init__.py")+"\n", string(r.stdout), r.stderr)
}

// requireWheelWorks installs a wheel that contains the command, and makes library and command read
// a dataset. Uninstalling it leaves no trace.
func requireWheelWorks(t *testing.T, wheel, version string) {
	t.Helper()
	bin := venv(t)
	r := command(t, installed, nil, filepath.Join(bin, "pip"), "install", "--no-index", "--no-deps", wheel)
	require.Zero(t, r.code, r.stderr)
	d := targets(t, 8)
	env := append(installed, "PATH="+os.Getenv("PATH"))
	r = command(t, env, nil, filepath.Join(bin, "lsiofs"), "cat", d.dir)
	require.Zero(t, r.code, r.stderr)
	require.Equal(t, 8, bytes.Count(r.stdout, []byte("\n")))
	r = command(t, env, nil, filepath.Join(bin, "python"), "-c", "import lsiofs; print(lsiofs.__version__, lsiofs.command())")
	require.Equal(t, version+" "+filepath.Join(bin, "lsiofs")+"\n", string(r.stdout), r.stderr)
	needFUSE(t)
	r = command(t, env, nil, filepath.Join(bin, "python"), "-c", "import lsiofs, sys\nwith lsiofs.mount(sys.argv[1]) as data: print(len(list(data.epoch(0).samples())))", d.dir)
	require.Zero(t, r.code, r.stderr)
	require.Equal(t, "8\n", string(r.stdout))
	target := filepath.Join(t.TempDir(), "target")
	r = command(t, installed, nil, filepath.Join(bin, "pip"), "install", "--no-index", "--no-deps", "--target", target, wheel)
	require.Zero(t, r.code, r.stderr)
	r = command(t, installed, nil, filepath.Join(bin, "pip"), "uninstall", "-y", "lsiofs")
	require.Zero(t, r.code, r.stderr)
	require.NoFileExists(t, filepath.Join(bin, "lsiofs"))
	r = command(t, []string{"LSIOFS_COMMAND=", "PYTHONPATH=" + target}, nil, filepath.Join(bin, "python"), "-c", "import lsiofs; print(lsiofs.command())")
	require.Equal(t, filepath.Join(target, "bin/lsiofs")+"\n", string(r.stdout), r.stderr)
}

func TestPythonPackageVersionsMatchPython(t *testing.T) {
	out := script(t, python(t), `
import sys
sys.path.insert(0, sys.argv[1])
import make_wheel
print(*map(make_wheel.python_version, ["v1.2.3", "v1.2.3-rc.1", "v1.2.3-beta2", "v1.2.3-test", "v0.0.1-a-b.7"]))
`, pythonPackage)
	require.Equal(t, "1.2.3 1.2.3rc1 1.2.3b2 1.2.3.dev0+test 0.0.1.dev0+a.b.7\n", string(out))
	for _, wrong := range []string{"1.2.3", "v1.2", "v1.2.3+x"} {
		r := command(t, nil, nil, python(t), filepath.Join(pythonPackage, "make_wheel.py"), "--command", lsiofs, "--arch", "amd64", "--version", wrong, "--licenses", "../LICENSE", t.TempDir())
		require.Equal(t, 1, r.code)
		require.Contains(t, r.stderr, "is no version")
	}
}

// Each page has at most 200 lines of at most 100 columns, and its programs are valid Python.
func TestPythonPagesAreShortAndTheirCodeParses(t *testing.T) {
	for _, page := range []string{pythonPackage + "/README.md", "../cmd/lsiofs/manual/python.md"} {
		b, err := os.ReadFile(page)
		require.NoError(t, err)
		lines := strings.Split(string(b), "\n")
		require.LessOrEqual(t, len(lines), 201, page)
		for _, line := range lines {
			if !strings.HasPrefix(line, "|") && !regexp.MustCompile(`pip install lsiofs-|https?:`).MatchString(line) {
				require.LessOrEqual(t, len([]rune(line)), 100, "%s: %s", page, line)
			}
		}
		programs := blocks(string(b), "python")
		require.NotEmpty(t, programs, page)
		for _, program := range programs {
			script(t, python(t), "import ast, sys; ast.parse(sys.argv[1])", program)
		}
	}
}
