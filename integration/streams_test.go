package integration

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

var (
	draws    = flag.Int("draws", 1, "random settings for each format in the comparison with the reference")
	drawSeed = flag.Uint64("drawseed", serve.DefaultSeed(), "seed of those settings and their datasets")
)

// kinds are the three files of a stream: the flag of `cat`, and the extension.
var kinds = []struct {
	name string
	flag []string
	ext  func(d dataset) string
}{
	{"data", nil, func(d dataset) string { return d.ext }},
	{"ids", []string{"--ids"}, func(dataset) string { return ".ids" }},
	{"offsets", []string{"--offsets"}, func(dataset) string { return ".offsets" }},
}

// allDatasets calls f for every format with every compression.
func allDatasets(t *testing.T, f func(t *testing.T, d dataset)) {
	for _, format := range formats {
		for _, codec := range codecs {
			t.Run(format.name+codec.ext, func(t *testing.T) {
				f(t, makeDataset(t, format, codec, 9, *drawSeed))
			})
		}
	}
	lc0Datasets(t, f)
}

// allFormats calls f for every format once, with the compressions in rotation, so that each occurs,
// too. It is for properties that the comparison of streams has shown for every pair. In nightly
// runs it is allDatasets.
func allFormats(t *testing.T, f func(t *testing.T, d dataset)) {
	if serve.Runs(serve.Night) {
		allDatasets(t, f)
		return
	}
	for i := range max(len(formats), len(codecs)) {
		format, codec := formats[i%len(formats)], codecs[i%len(codecs)]
		t.Run(format.name+codec.ext, func(t *testing.T) {
			f(t, makeDataset(t, format, codec, 9, *drawSeed))
		})
	}
	lc0Datasets(t, f)
}

// lc0Datasets calls f for games as single files, and for tars of games, some of which are damaged.
func lc0Datasets(t *testing.T, f func(t *testing.T, d dataset)) {
	t.Run("lc0", func(t *testing.T) { f(t, lc0Games(t, *drawSeed)) })
	t.Run("lc0-tar", func(t *testing.T) { f(t, lc0Tars(t, *drawSeed)) })
}

// everyShuffle returns every shuffle once, with settings that a person would choose.
func everyShuffle() []settings {
	var all []settings
	for i, shuffle := range []string{"none", "reservoir", "block", "full"} {
		s := usual()
		s.Shuffle, s.Epoch, s.Workers = shuffle, uint64(i), 1+i
		all = append(all, s)
	}
	return all
}

// draw returns random settings, often edge cases.
func draw(r *rand.Rand, records int) settings {
	groups := []int{1, 1, 2, 3}[r.IntN(4)]
	s := settings{
		Seed: r.Uint64(), Epoch: r.Uint64N(5), Shuffle: []string{"none", "reservoir", "reservoir", "block", "full"}[r.IntN(5)],
		ShuffleSize: []int{0, 1, r.IntN(records), r.IntN(records), records, records * 2}[r.IntN(6)],
		Groups:      groups, Lanes: groups * (1 + r.IntN(6)),
		ChunkBytes: []int{1, 1000 + r.IntN(5000), 1 << 20}[r.IntN(3)], ChunkRecords: []int{1, 1 + r.IntN(20), 1000}[r.IntN(3)],
		Workers: []int{1, 1 + r.IntN(8), records + 5}[min(2, r.IntN(20)/9)], Batch: []int{1, 1 + r.IntN(9), records}[min(2, r.IntN(20)/9)],
		Deal: []string{"interleaved", "interleaved", "contiguous"}[r.IntN(3)],
		Tail: []string{"keep", "drop", "pad"}[r.IntN(3)],
	}
	if groups > 1 && s.Deal == "contiguous" {
		s.Tail = "keep" // the others could not be resumed, and are refused
	}
	if r.IntN(2) == 0 {
		s = s.part([]string{"0..0.9", "0.9..1", "0.25..0.5", "0.123456789..0.987654321", "0..0.000000001"}[r.IntN(5)], splitUnits[r.IntN(3)], r.Uint64N(3))
	}
	if r.IntN(3) == 0 {
		s = s.of([]string{"1/2", "1/3", "1/39"}[r.IntN(3)], r.Uint64N(3))
	}
	return s
}

func TestStreamsEqualTheReferenceThroughCatAndThroughTheMount(t *testing.T) {
	datasets := 0
	allDatasets(t, func(t *testing.T, d dataset) {
		ref := newReference(t, d)
		records := len(ref.g(usual()))
		r := rand.New(rand.NewPCG(*drawSeed, 2))
		all := everyShuffle()
		// In smaller tiers there are fewer shuffles for each dataset. They rotate with the format
		// and the codec, so that each format and each codec has all of them.
		n := datasets + datasets/len(codecs)
		first, second := all[n%len(all)], all[(n+1)%len(all)]
		switch {
		case !serve.Runs(serve.CI):
			all = []settings{first}
		case !serve.Runs(serve.Night):
			all = []settings{first, second}
		}
		datasets++
		if serve.Runs(serve.CI) {
			for range *draws {
				all = append(all, draw(r, records))
			}
		}
		for i, s := range all {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Logf("settings %+v; again: go test ./integration -run '%s' -draws %d -drawseed %d", s, t.Name(), *draws, *drawSeed)
				from := r.IntN(len(ref.g(s)) + 1)
				someWorkers := r.Perm(s.Workers)[:min(s.Workers, 4)]
				requireCatEquals(t, d, ref, s, someWorkers[0], from)
				requireMountEquals(t, d, ref, s, someWorkers, from)
			})
		}
	})
}

func requireCatEquals(t *testing.T, d dataset, ref *reference, s settings, w, from int) {
	t.Helper()
	for _, kind := range kinds {
		args := append([]string{"cat", d.dir, "--epoch", fmt.Sprint(s.Epoch), "--worker", fmt.Sprintf("%d/%d", w, s.Workers), "--from", fmt.Sprint(from)}, d.flags...)
		args = append(args, withoutWorkers(s.flags())...)
		got := toolOK(t, append(args, kind.flag...)...)
		want := ref.ask(question{settings: s, Worker: w, From: from, Kind: kind.name})
		requireSameBytes(t, want, got, "cat of the %s of worker %d from %d", kind.name, w, from)
	}
}

func withoutWorkers(flags []string) []string {
	i := slices.Index(flags, "--workers")
	return slices.Concat(flags[:i], flags[i+2:])
}

func requireMountEquals(t *testing.T, d dataset, ref *reference, s settings, workers []int, from int) {
	t.Helper()
	m := mountDataset(t, d, s)
	for _, w := range workers {
		for _, kind := range kinds {
			ext := kind.ext(d)
			want := ref.ask(question{settings: s, Worker: w, Kind: kind.name})
			requireFile(t, want, m.path("worker-%d%s", w, ext))
			requireFile(t, want, m.path("epoch-%d/worker-%d-of-%d%s", s.Epoch, w, s.Workers, ext))

			want = ref.ask(question{settings: s, Worker: w, From: from, Kind: kind.name})
			requireFile(t, want, m.path("epoch-%d/from-%d/worker-%d-of-%d%s", s.Epoch, from, w, s.Workers, ext))
		}
	}
	// An epoch and a number of workers that were not mentioned before.
	s.Epoch, s.Workers = s.Epoch+1000, s.Workers+1
	requireFile(t, ref.data(s, 0), m.path("epoch-%d/worker-0-of-%d%s", s.Epoch, s.Workers, d.ext))
}

// requireFile reads a whole file, and first checks its size.
func requireFile(t *testing.T, want []byte, path string) {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.EqualValues(t, len(want), info.Size(), "size of %s in stat", path)
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	requireSameBytes(t, want, got, "%s", path)
}

// requireSameBytes compares without printing megabytes.
func requireSameBytes(t testing.TB, want, got []byte, format string, args ...any) {
	t.Helper()
	if bytes.Equal(want, got) {
		return
	}
	at := 0
	for at < len(want) && at < len(got) && want[at] == got[at] {
		at++
	}
	around := func(b []byte) []byte { return b[max(0, min(at, len(b))-60):min(len(b), at+60)] }
	require.Failf(t, "bytes differ", "%s: %d bytes, want %d; first difference at %d:\n got …%q…\nwant …%q…",
		fmt.Sprintf(format, args...), len(got), len(want), at, around(got), around(want))
}

func TestOffsetsSplitStreamIntoRecords(t *testing.T) {
	d := plain(t, "jsonl", 4)
	s := usual()
	m := mountDataset(t, d, s)
	data := m.read("worker-1.jsonl")
	offsets := splitOffsets(m.read("worker-1.offsets"))
	var lines [][]byte
	for i := range len(offsets) - 1 {
		lines = append(lines, data[offsets[i]:offsets[i+1]])
	}
	require.Equal(t, bytes.SplitAfter(data[:len(data)-1], []byte("\n"))[0], lines[0])
	require.Equal(t, len(bytes.SplitAfter(data, []byte("\n")))-1, len(lines))
	for _, line := range lines {
		require.Equal(t, byte('\n'), line[len(line)-1])
	}
	require.Equal(t, data, bytes.Join(lines, nil))
}

// One mount of each dataset shows all three, because a dataset, a mount and a reference are most of
// what each test would cost separately.
func TestEveryRecordComesExactlyOnceAndByReadsOfAnySize(t *testing.T) {
	serve.Tier(t, serve.CI)
	allDatasets(t, func(t *testing.T, d dataset) {
		s := usual()
		s.Workers, s.Batch = 5, 3
		ref, m := newReference(t, d), mountDataset(t, d, s)
		require.Equal(t, ref.fingerprint(), documentOf(t, m.read("checkpoint")).Dataset)
		requireEveryRecordOnce(t, d, m, s)
		requireReadsOfAnySize(t, ref.data(s, 1), m.path("worker-1%s", d.ext))
	})
}

// requireEveryRecordOnce checks the IDs of all workers.
func requireEveryRecordOnce(t *testing.T, d dataset, m *mount, s settings) {
	t.Helper()
	seen := map[string]int{}
	for w := range s.Workers {
		for _, id := range splitIDs(m.read("epoch-%d/worker-%d-of-%d.ids", s.Epoch, w, s.Workers)) {
			seen[id]++
		}
	}
	in := splitIDs(toolOK(t, append([]string{"cat", d.dir, "--shuffle", "none", "--worker", "0/1", "--ids"}, d.flags...)...))
	require.NotEmpty(t, in)
	require.Len(t, seen, len(in))
	for _, id := range in {
		require.Equal(t, 1, seen[id], "record %x", id)
	}
}

// requireReadsOfAnySize compares reads at random positions, also beyond the end, with a file's
// contents.
func requireReadsOfAnySize(t *testing.T, want []byte, path string) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	r := rand.New(rand.NewPCG(*drawSeed, 3))
	for range 150 {
		off := r.IntN(len(want) + 10)
		buf := make([]byte, 1+r.IntN([]int{16, 600, 70000}[r.IntN(3)]))
		n, err := f.ReadAt(buf, int64(off))
		if off+len(buf) > len(want) {
			require.ErrorIs(t, err, io.EOF)
		} else {
			require.NoError(t, err)
		}
		requireSameBytes(t, want[min(off, len(want)):min(off+len(buf), len(want))], buf[:n], "pread of %d at %d", len(buf), off)
	}
}
