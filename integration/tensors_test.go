package integration

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

// frameSizes are the sizes of lc0's frames by version.
var frameSizes = map[uint32]int{3: 8276, 4: 8292, 5: 8308, 6: lc0FrameBytes, 7: 8396}

// anyFrame returns a frame of random bytes, except those that identify it.
func anyFrame(r *rand.Rand, version, format uint32) []byte {
	f := make([]byte, frameSizes[version])
	for i := range f {
		f[i] = byte(r.Uint32())
	}
	binary.LittleEndian.PutUint32(f, version)
	if version >= 5 {
		binary.LittleEndian.PutUint32(f[4:], format)
	}
	if at, old := map[uint32]int{3: 8275, 4: 8275, 5: 8279}[version]; old {
		f[at] = []byte{255, 0, 1}[r.IntN(3)] // the result
	}
	return f
}

// mixedGames returns games of all versions and input formats, as single files and in a tar.
func mixedGames(t testing.TB, seed uint64) dataset {
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(seed, 7))
	var tarred bytes.Buffer
	w := tar.NewWriter(&tarred)
	n := 0
	for version := uint32(3); version <= 7; version++ {
		for _, format := range []uint32{1, 2, 3, 4, 5, 132, 133} {
			if version < 5 && format > 1 {
				continue
			}
			for i := range 2 {
				var game []byte
				for range 1 + r.IntN(3) {
					game = append(game, anyFrame(r, version, format)...)
				}
				packed, name := gzipMember(game), fmt.Sprintf("training.%d.gz", n)
				if n++; i == 0 {
					require.NoError(t, os.WriteFile(filepath.Join(dir, name), packed, 0o644))
					continue
				}
				require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(packed))}))
				_, err := w.Write(packed)
				require.NoError(t, err)
			}
		}
	}
	require.NoError(t, w.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "games.tar"), tarred.Bytes(), 0o644))
	return dataset{name: "lc0-mixed", dir: dir, flags: []string{"--format", "lc0"}, ext: ".npy"}
}

// readTensors makes the row of every frame of a dataset with NumPy, as lczero-training's
// chunkparser.py and lc0's reader.cc do, and compares them with those of streams, by their IDs.
// argv: the dataset, the planes' type, streams.
const readTensors = `
import gzip, hashlib, os, sys, tarfile
import numpy as np

SIZES = {3: 8276, 4: 8292, 5: 8308, 6: 8356, 7: 8396}
directory, element, streams = sys.argv[1], sys.argv[2], sys.argv[3:]

def upgraded(frame):
    """The parts of a frame: input format, policy, planes, flags, values as of version 7, as 4 bytes each."""
    version = frame[:4].view("<u4")[0]
    if version < 5:
        frame = np.concatenate([frame[:4], np.array([1], "<u4").view("u1"), frame[4:]])
    values, given = np.zeros(29, "<u4"), np.ascontiguousarray(frame[8280:]).view("<u4")
    values[: len(given)] = given
    if version < 6:
        values[7:] = 0
        result = np.int8(frame[8279].astype("i1"))
        values[7:9] = np.array([result, 1 if result == 0 else 0], "<f4").view("<u4")
        values[12:15] = np.array([np.nan] * 3, "<f4").view("<u4")
    if version < 7:
        values[19] = 0
    return frame[4:8].view("<u4")[0], frame[8:7440], frame[7440:8272], frame[8272:8280], values

def row(frame):
    form, policy, bits, flags, v = upgraded(frame)
    planes = np.zeros((112, 64), "f4")
    planes[:104] = np.unpackbits(bits).reshape(104, 64)
    if form == 1:
        planes[104:109] = flags[:5, None]
    else:
        lowest_first = np.unpackbits(flags[:5, None], axis=1, bitorder="little")
        planes[104, :8], planes[104, 56:] = lowest_first[0], lowest_first[2]
        planes[105, :8], planes[105, 56:] = lowest_first[1], lowest_first[3]
        if form == 2:
            planes[108] = flags[4]
        else:
            planes[108, 56:] = lowest_first[4]
    planes[109] = flags[5] if element == "u1" else flags[5] / np.float32(99 if form <= 3 else 100)
    planes[110] = form in (132, 133) and flags[6] >= 128
    planes[111] = 1
    nan = np.array([np.nan], "<f4").view("<u4")[0]
    values = np.array([v[7], v[8], v[6], v[1], v[3], v[5], v[9], v[10], v[11], v[12], v[13], v[14], v[0], v[2], v[4], v[18], v[19], nan], "<u4")
    return planes.astype("<" + element).tobytes() + policy.tobytes() + values.tobytes()

def games(path):
    if path.endswith(".tar"):
        with tarfile.open(path) as t:
            for m in t:
                yield gzip.decompress(t.extractfile(m).read())
    else:
        yield gzip.decompress(open(path, "rb").read())

rows = {}
for folder, _, names in os.walk(directory):
    for name in names:
        path = os.path.join(folder, name)
        prefix = hashlib.sha256(b"lsiofs/1 shard " + os.path.relpath(path, directory).encode()).digest()[:8]
        ordinal = 0
        for game in games(path):
            frames = np.frombuffer(game, "u1").reshape(-1, SIZES[game[0]])
            for frame in frames:
                rows[prefix + ordinal.to_bytes(8, "big")] = row(frame)
                ordinal += 1

seen = []
for stream in streams:
    mapped = np.load(stream + ".npy", mmap_mode="r")
    ids = open(stream + ".ids", "rb").read()
    offsets = np.fromfile(stream + ".offsets", "<u8")
    n = len(mapped)
    assert len(ids) == 16 * n and len(offsets) == n + 1, (len(ids), len(offsets), n)
    assert mapped["planes"].shape == (n, 112, 8, 8) and mapped["planes"].dtype == np.dtype("<" + element)
    assert mapped["probabilities"].shape == (n, 1858) and mapped["values"].shape == (n, 6, 3)
    size = len(next(iter(rows.values())))
    assert mapped.dtype.itemsize == size == {"u1": 14672, "f2": 21840, "f4": 36176}[element]
    assert offsets[0] % 64 == 0 and (np.diff(offsets) == size).all() and offsets[-1] == os.stat(stream + ".npy").st_size
    raw = open(stream + ".npy", "rb").read()
    assert raw[:8] == b"\x93NUMPY\1\0" and len(raw) == offsets[-1]
    for i in range(n):
        id = ids[16 * i : 16 * i + 16]
        want = rows[id]
        assert raw[offsets[i] : offsets[i + 1]] == want == mapped[i].tobytes(), (stream, i)
        seen.append(id)
    with open(stream + ".npy", "rb", 0) as f: # reads that begin and end in the middle of rows
        random = np.random.default_rng(1)
        for _ in range(40):
            at, count = random.integers(0, len(raw)), random.integers(1, 3 * size)
            assert os.pread(f.fileno(), count, at) == raw[at : at + count], (stream, at, count)
        for at in range(0, min(len(raw), 4 * size), 4096 + 1):
            assert os.pread(f.fileno(), 4096 + 1, at) == raw[at : at + 4096 + 1]
assert len(seen) == len(set(seen))
print(len(seen), len(rows))
`

var elements = []string{"u1", "f2", "f4"}

func TestStreamsOfTensorsAreTheRowsThatNumPyMakesOfTheFrames(t *testing.T) {
	serve.Tier(t, serve.CI)
	interpreter := python(t, "numpy")
	d := mixedGames(t, *drawSeed)
	for i, element := range elements {
		s := usual()
		s.Workers = 3
		m := mountDataset(t, d, s, "--as", "tensors:"+element)
		check := func(leftOut int, streams ...string) {
			t.Helper()
			for i := range streams {
				streams[i] = m.path("%s", streams[i])
			}
			out := script(t, interpreter, readTensors, append([]string{d.dir, element}, streams...)...)
			var read, all int
			_, err := fmt.Sscan(string(out), &read, &all)
			require.NoError(t, err)
			require.Equal(t, all-leftOut, read)
		}
		check(0, "worker-0", "worker-1", "worker-2")
		check(0, "epoch-1/worker-0-of-1")
		check(10, "epoch-7/from-10/worker-0-of-2", "epoch-7/from-10/worker-1-of-2")
		// The same bytes without a mount, and all of them after a restore.
		cat := toolOK(t, append([]string{"cat", d.dir, "--as", "tensors:" + element, "--worker", "1/3", "--epoch", "1", "--from", "5"}, append(s.flags(), d.flags...)...)...)
		requireSameBytes(t, m.read("epoch-1/from-5/worker-1-of-3.npy"), cat, "cat")
		require.NoError(t, os.WriteFile(m.path("checkpoint"), fmt.Appendf(nil, `{"epoch": 0, "samples": %d}`, 7+i), 0o644))
		check(7+i, "worker-0", "worker-1", "worker-2")
		m.end()
	}
}

// Which frames come, and in which order, does not depend on how they are presented; nor does a
// checkpoint.
func TestTensorsComeInTheOrderOfTheirFrames(t *testing.T) {
	d := lc0Games(t, *drawSeed)
	s := usual()
	s.Workers = 2
	split := []string{"--split", "0..0.7"}
	frames := mountDataset(t, d, s, split...)
	tensors := mountDataset(t, d, s, append(split, "--as", "tensors")...)
	compare := func() {
		t.Helper()
		for w := range 2 {
			ids := frames.read("worker-%d.ids", w)
			requireSameBytes(t, ids, tensors.read("worker-%d.ids", w), "IDs")
			rows, bin := tensors.read("worker-%d.npy", w), frames.read("worker-%d.bin", w)
			at := splitOffsets(tensors.read("worker-%d.offsets", w))
			require.Len(t, at, len(ids)/16+1)
			for i := range len(ids) / 16 {
				require.Equal(t, bin[i*lc0FrameBytes+8:][:7432], rows[at[i]+112*64:][:7432], "the policy of row %d", i)
			}
		}
	}
	compare()
	// Reading rows counts exactly the same records as reading frames.
	ids := len(tensors.read("worker-1.ids")) / 16
	require.Greater(t, ids, 4)
	f, err := os.Open(tensors.path("worker-1.npy"))
	require.NoError(t, err)
	at := splitOffsets(tensors.read("worker-1.offsets"))
	b := make([]byte, at[3]+100) // three rows and a part of the fourth
	_, err = f.Read(b)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	saved := tensors.read("checkpoint")
	var document struct {
		Done []struct{ Consumed []int }
	}
	require.NoError(t, json.Unmarshal(saved, &document))
	require.GreaterOrEqual(t, last(document.Done).Consumed[1], 3)
	require.NoError(t, os.WriteFile(frames.path("checkpoint"), saved, 0o644))
	require.NoError(t, os.WriteFile(tensors.path("checkpoint"), saved, 0o644))
	require.Less(t, len(tensors.read("worker-1.ids"))/16, ids)
	compare()
}

func TestTensorsAreShownWhereADatasetIs(t *testing.T) {
	d := mixedGames(t, *drawSeed)
	m := mountDataset(t, d, usual(), "--as", "tensors")
	type shown struct {
		Rows struct {
			As, Descr, Remark string
			Bytes             int `json:"row_bytes"`
		}
		Format  any
		Records int
		Bytes   int
		Stream  int `json:"stream_bytes"`
		Kind    string
	}
	var described, inspected shown
	require.NoError(t, json.Unmarshal(m.read("dataset.json"), &described))
	require.NoError(t, json.Unmarshal(toolOK(t, append([]string{"inspect", d.dir, "--json", "--as", "tensors"}, d.flags...)...), &inspected))
	require.Equal(t, "tensors:u1", described.Rows.As)
	require.Equal(t, 14672, described.Rows.Bytes)
	require.Equal(t, "[('planes', '|u1', (112, 8, 8)), ('probabilities', '<f4', (1858,)), ('values', '<f4', (6, 3))]", described.Rows.Descr)
	require.Contains(t, described.Rows.Remark, "undivided")
	require.Equal(t, "versions 3, 4, 5, 6, 7", described.Format.(map[string]any)["kind"])
	require.Equal(t, described.Records*14672, described.Bytes)
	require.Equal(t, described.Rows, inspected.Rows)
	require.Equal(t, described.Bytes, inspected.Stream)
	require.Equal(t, "versions 3, 4, 5, 6, 7", inspected.Kind)
	require.Contains(t, string(m.read("status")), " records, as tensors:u1\n")
	require.Contains(t, string(m.read("README")), "numpy.load(")
	script(t, python(t, "numpy"), `
import sys, lsiofs
data = lsiofs.open(sys.argv[1])
rows = list(data.epoch(0).arrays(4))
assert data.format == "lc0" and sum(map(len, rows)) == len(data)
assert rows[0].dtype.names == ("planes", "probabilities", "values") and rows[0]["planes"].shape == (4, 112, 8, 8)
assert len(next(data.epoch(0).samples())["probabilities"]) == 1858
`, m.dir)
	require.Contains(t, string(toolOK(t, append([]string{"inspect", d.dir, "--as", "tensors"}, d.flags...)...)), "tensors:u1, 14672 bytes each")
	r := tool(t, append([]string{"verify", d.dir, "--as", "tensors"}, d.flags...)...)
	require.Zero(t, r.code, r.stderr)
}

func TestTensorsThatCanNotBeAreRefusedInWords(t *testing.T) {
	mixed := mixedGames(t, *drawSeed)
	for _, c := range []struct {
		d    dataset
		as   string
		want string
		code int
	}{
		{mixed, "tensors:f8", "the elements of planes are of type u1, f2 or f4", 2},
		{mixed, "frames", "streams can be of tensors, tensors:u1, tensors:f2 or tensors:f4", 2},
		{dataset{dir: mixed.dir, flags: []string{"--format", "tar"}}, "tensors", `--as tensors:u1 needs --format lc0, not "tar"`, 2},
		{plain(t, "jsonl", 4), "tensors", "holds shards of format jsonl: --as tensors:u1 is for format lc0 only", 3},
	} {
		r := tool(t, append([]string{"inspect", c.d.dir, "--as", c.as}, c.d.flags...)...)
		require.Equal(t, c.code, r.code, r.stderr)
		require.Contains(t, r.stderr, c.want)
	}
	r := tool(t, "inspect", mixed.dir, "--format", "lc0") // as frames
	require.NotZero(t, r.code)
	require.Contains(t, r.stderr, "--as tensors")

	// A frame of an unknown input format is an error, but those before it are not.
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(*drawSeed, 8))
	game := append(anyFrame(random, 6, 1), anyFrame(random, 6, 77)...)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "training.1.gz"), gzipMember(game), 0o644))
	m := mountAt(t, dataset{dir: dir}, t.TempDir(), "--format", "lc0", "--as", "tensors", "--shuffle", "none")
	f, err := os.Open(m.path("epoch-0/worker-0-of-1.npy"))
	require.NoError(t, err)
	defer f.Close()
	at := splitOffsets(m.read("epoch-0/worker-0-of-1.offsets"))
	_, err = f.ReadAt(make([]byte, 10), int64(at[1]))
	require.ErrorContains(t, err, "input/output error")
	_, err = f.ReadAt(make([]byte, 10), int64(at[0]))
	if err != nil { // the kernel may have requested more than that
		require.ErrorContains(t, err, "input/output error")
	}
	status := string(m.read("status"))
	require.Contains(t, status, "training.1.gz: record 1: the frame's input format is 77")
	require.True(t, strings.Contains(status, "mount without --as"), status)
}
