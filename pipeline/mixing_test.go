package pipeline

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/stream"
)

// makeSource writes shards of numbered lines, some of them compressed.
func makeSource(t testing.TB, name string, shards, records int, packed func(shard int) bool) string {
	dir := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.Mkdir(dir, 0o755))
	for shard := range shards {
		var b bytes.Buffer
		for i := range records {
			fmt.Fprintf(&b, "{\"of\": %q, \"n\": %d, \"pad\": \"%0*d\"}\n", name, shard*records+i, 1+(i*7919+shard)%200, 0)
		}
		file, data := fmt.Sprintf("s%d.jsonl", shard), b.Bytes()
		if packed(shard) {
			var z bytes.Buffer
			w := gzip.NewWriter(&z)
			_, err := w.Write(data)
			require.NoError(t, err)
			require.NoError(t, w.Close())
			file, data = file+".gz", z.Bytes()
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), data, 0o644))
	}
	return dir
}

func never(int) bool          { return false }
func always(int) bool         { return true }
func every2(i int) bool       { return i%2 == 1 }
func million(w uint64) uint64 { return w * 1_000_000 }

// mixSpec mixes three sources: one plain, one partly compressed, and a tiny one that is entirely
// compressed.
func mixSpec(t testing.TB) spec.Spec {
	s := testSpec(t, "")
	s.Mix.Sources = []spec.Source{
		{Name: "web", Weight: million(70), Dataset: makeSource(t, "web", 4, 250, never)},
		{Name: "a-1", Weight: million(20), Dataset: makeSource(t, "a", 3, 100, every2)},
		{Name: "a", Weight: million(10), Dataset: makeSource(t, "tiny", 1, 3, always)},
	}
	return s
}

// sourceLines are the records of a source's own order, for its first epochs.
func sourceLines(t testing.TB, s spec.Spec, source int, epochs uint64) (lines [][]byte) {
	o := s
	o.Dataset, o.Mix, o.Order.Length, o.IndexDir = s.Mix.Sources[source].Dataset, spec.Mix{}, 0, t.TempDir()
	o.Order.Seed = naiveKey("source", s.Order.Seed, 0, uint64(source))
	o.Deal, o.Read = spec.Default().Deal, spec.ReadScan
	d, err := Open(context.Background(), o, Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	for e := range epochs {
		set, err := d.Set(context.Background(), e, nil, o.Deal)
		require.NoError(t, err)
		lines = append(lines, slices.Collect(bytes.Lines(readFile(t, set, 0, stream.Data, 1<<20)))...)
	}
	return lines
}

// referenceOf is an epoch of a mixture, assembled from the sources' own streams.
func referenceOf(t testing.TB, s spec.Spec, weights []uint64, epoch, length uint64) (all [][]byte) {
	places := naiveMixture(s.Order.Seed, weights, epoch, length)
	lines, most := make([][][]byte, len(weights)), make([]uint64, len(weights))
	for _, p := range places {
		most[p[0]] = max(most[p[0]], p[1])
	}
	for m := range lines {
		records := uint64(len(sourceLines(t, s, m, 1)))
		lines[m] = sourceLines(t, s, m, most[m]/records+1)
	}
	for _, p := range places {
		all = append(all, lines[p[0]][p[1]])
	}
	return all
}

// dealt merges the streams of all workers again, for a batch of 1.
func dealt(t testing.TB, d *Dataset, epoch uint64, done []order.Done, deal spec.Assignment) (all [][]byte) {
	set, err := d.Set(context.Background(), epoch, done, deal)
	require.NoError(t, err)
	of := make([][][]byte, deal.Workers)
	for w := range deal.Workers {
		of[w] = slices.Collect(bytes.Lines(readFile(t, set, w, stream.Data, 77_777)))
	}
	for k := 0; ; k++ {
		for w := range of {
			if k >= len(of[w]) {
				return all
			}
			all = append(all, of[w][k])
		}
	}
}

func TestAMixtureEqualsTheReference(t *testing.T) {
	weights := []uint64{million(70), million(20), million(10)}
	for _, shuffle := range []spec.Shuffle{spec.ShuffleReservoir, spec.ShuffleBlock, spec.ShuffleFull, spec.ShuffleNone} {
		s := mixSpec(t)
		s.Order.Shuffle, s.Order.Length = shuffle, 700
		want := [][][]byte{referenceOf(t, s, weights, 0, 700), referenceOf(t, s, weights, 1, 700)}
		for _, read := range []spec.Read{spec.ReadAuto, spec.ReadScan, spec.ReadSpool} {
			for _, memory := range []int64{1 << 20, 1 << 26} {
				t.Run(fmt.Sprint(shuffle, read, memory), func(t *testing.T) {
					s.Read, s.MemoryBytes = read, memory
					s.SpoolDir = t.TempDir()
					d := open(t, s)
					require.EqualValues(t, 700, d.Records())
					for epoch := range want {
						require.Equal(t, want[epoch], dealt(t, d, uint64(epoch), nil, s.Deal))
					}
				})
			}
		}
	}
}

func TestMixtureOfPlainSourcesIsGathered(t *testing.T) {
	s := mixSpec(t)
	s.Mix.Sources = s.Mix.Sources[:2]
	s.Mix.Sources[1].Dataset = makeSource(t, "plain", 2, 20, never)
	s.Read, s.Order.Length = spec.ReadGather, 1500
	weights := []uint64{million(70), million(20)}
	d := open(t, s)
	require.Equal(t, referenceOf(t, s, weights, 1, 1500), dealt(t, d, 1, nil, s.Deal))
}

func TestMixtureIsResumedByOtherWorkers(t *testing.T) {
	s := mixSpec(t)
	s.Order.Length = 1000
	d := open(t, s)
	whole := dealt(t, d, 3, nil, s.Deal)
	done := []order.Done{{Batch: 1, Consumed: []uint64{10, 30, 20}}}
	var left [][]byte
	for p, line := range whole {
		if uint64(p/3) >= done[0].Consumed[p%3] {
			left = append(left, line)
		}
	}
	deal := s.Deal
	deal.Workers = 5
	require.Equal(t, left, dealt(t, d, 3, done, deal))
}

func TestMixtureIsOneDatasetOfDirectories(t *testing.T) {
	s := mixSpec(t)
	s.Mix.Length = spec.MixAll
	d := open(t, s)
	require.Equal(t, []string{"a-1/s0.jsonl", "a-1/s1.jsonl.gz", "a-1/s2.jsonl", "a/s0.jsonl.gz", "web/s0.jsonl", "web/s1.jsonl", "web/s2.jsonl", "web/s3.jsonl"}, paths(d))
	require.EqualValues(t, 1303, d.Catalog().Records())
	sources := d.Sources()
	text := fmt.Sprintf("lsiofs/1 mixture jsonl\n70000000 1000 %s web\n20000000 300 %s a-1\n10000000 3 %s a\n", sources[0].Fingerprint, sources[1].Fingerprint, sources[2].Fingerprint)
	sum := sha256.Sum256([]byte(text))
	require.Equal(t, hex.EncodeToString(sum[:]), d.Fingerprint())
	set, err := d.Set(context.Background(), 0, nil, s.Deal)
	require.NoError(t, err)
	ids := map[[16]byte]int{}
	for w := range s.Deal.Workers {
		for id := range slices.Chunk(readFile(t, set, w, stream.IDs, 1<<16), 16) {
			ids[[16]byte(id)]++
		}
	}
	require.Len(t, ids, 1303, "of all sources, every record")
	tiny := sha256.Sum256([]byte("lsiofs/1 shard a/s0.jsonl.gz"))
	require.Greater(t, ids[[16]byte(append(tiny[:8:8], 0, 0, 0, 0, 0, 0, 0, 2))], 40, "a tiny source comes again and again")
	b, err := d.Describe()
	require.NoError(t, err)
	require.Contains(t, string(b), `"name": "a-1"`)
	require.Contains(t, string(b), `"length": `+fmt.Sprint(d.Records()))
}

func paths(d *Dataset) (list []string) {
	for i := range d.Catalog().Shards() {
		list = append(list, d.Catalog().Shard(i).Object.Path)
	}
	return list
}

func TestIndexOfMixtureIsReused(t *testing.T) {
	s := mixSpec(t)
	s.Order.Length = 512
	identity := func() string {
		d, err := Open(context.Background(), s, Options{})
		require.NoError(t, err)
		defer func() { require.NoError(t, d.Close()) }()
		return d.Catalog().Identity()
	}
	files := func() map[string]int64 {
		times := map[string]int64{}
		entries, err := os.ReadDir(s.IndexDir)
		require.NoError(t, err)
		for _, e := range entries {
			if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), ".index") {
				times[e.Name()] = info.ModTime().UnixNano()
			}
		}
		return times
	}
	first := identity()
	written := files()
	require.Len(t, written, 4)
	require.Equal(t, first, identity())
	require.Equal(t, written, files(), "none was written again")
	s.Mix.Sources[0].Weight++
	require.NotEqual(t, first, identity())
	d := open(t, s)
	s.Mix.Sources[0].Weight--
	before := open(t, s)
	require.Contains(t, d.Explain(before.Fingerprint()), "source web has the weight")
}

func TestSplitOfMixtureUsesSourceNames(t *testing.T) {
	s := mixSpec(t)
	s.Mix.Sources = s.Mix.Sources[:2]
	s.Order.Split.Part = spec.Part{From: 0, To: 600_000_000}
	s.Mix.Length = spec.MixAll
	d := open(t, s)
	other := s
	other.Order.Split.Part = spec.Part{From: 600_000_000, To: 1_000_000_000}
	rest := open(t, other)
	sum := uint64(0)
	seen := map[string]bool{}
	for _, x := range []*Dataset{d, rest} {
		mine := map[string]bool{}
		for _, line := range dealt(t, x, 0, nil, s.Deal) {
			mine[string(line)] = true
			require.False(t, seen[string(line)], "in both parts")
		}
		for line := range mine {
			seen[line] = true
		}
		for _, m := range x.Sources() {
			sum += m.Records
		}
	}
	require.EqualValues(t, 1300, sum)
	require.Len(t, seen, 1300)
}

// Sources whose shards have the same names are split independently of each other: otherwise copies of
// a record would always be in the same part.
func TestSourcesWithTheSameShardsAreSplitDifferently(t *testing.T) {
	lines := makeSource(t, "lines", 4, 100, never)
	s := testSpec(t, "")
	s.Mix.Sources = []spec.Source{{Name: "a", Weight: million(1), Dataset: lines}, {Name: "b", Weight: million(1), Dataset: lines}}
	s.Mix.Length = spec.MixAll
	s.Order.Split.Part = spec.Part{From: 0, To: 500_000_000}
	d := open(t, s)
	g, release := d.acquire()
	defer release()
	a, b := g.mixing.sources[0], g.mixing.sources[1]
	require.Equal(t, a.all, b.all)
	differ := 0
	for record := range a.all {
		if a.part.Has(record) != b.part.Has(record) {
			differ++
		}
	}
	require.Positive(t, differ)
}

func TestMixtureByBytesSharesBytes(t *testing.T) {
	s := testSpec(t, "")
	large := filepath.Join(t.TempDir(), "large")
	require.NoError(t, os.Mkdir(large, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(large, "s.jsonl"), []byte(strings.Repeat("{\"large\": \""+strings.Repeat("x", 2000)+"\"}\n", 500)), 0o644))
	small := filepath.Join(t.TempDir(), "small")
	require.NoError(t, os.Mkdir(small, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(small, "s.jsonl"), []byte(strings.Repeat("{\"small\": 1}\n", 1700)), 0o644))
	s.Mix = spec.Mix{By: spec.MixByBytes, Sources: []spec.Source{{Name: "large", Weight: million(1), Dataset: large}, {Name: "small", Weight: million(1), Dataset: small}}}
	s.Order.Length = 50_000
	d := open(t, s)
	bytesOf := map[byte]int{}
	for _, line := range dealt(t, d, 0, nil, s.Deal) {
		bytesOf[line[2]] += len(line)
	}
	require.InEpsilon(t, bytesOf['l'], bytesOf['s'], 0.02)
}

func TestInvalidMixturesAreRefusedWithExplanation(t *testing.T) {
	lines := makeSource(t, "lines", 2, 100, never)
	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.Mkdir(text, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(text, "s.txt"), []byte("a\nb\n"), 0o644))
	empty := t.TempDir()
	for words, sources := range map[string][]spec.Source{
		"must be of one format: a has jsonl, b has lines": {{Name: "a", Weight: 1, Dataset: lines}, {Name: "b", Weight: 1, Dataset: text}},
		"source b: ":                      {{Name: "a", Weight: 1, Dataset: lines}, {Name: "b", Weight: 1, Dataset: empty}},
		"a mixture of 1 must have":        {{Name: "a", Weight: 1, Dataset: lines}},
		"two sources are named a":         {{Name: "a", Weight: 1, Dataset: lines}, {Name: "a", Weight: 1, Dataset: lines}},
		"source b has 200 records, fewer": {{Name: "a", Weight: 1, Dataset: lines}, {Name: "b", Weight: 1000, Dataset: lines}},
		`"B!" is not a name of a source`:  {{Name: "a", Weight: 1, Dataset: lines}, {Name: "B!", Weight: 1, Dataset: lines}},
		"the weight of source b (0)":      {{Name: "a", Weight: 1, Dataset: lines}, {Name: "b", Dataset: lines}},
	} {
		s := testSpec(t, "")
		s.Mix.Sources = sources
		_, err := Open(context.Background(), s, Options{})
		require.ErrorContains(t, err, words)
	}
	s := testSpec(t, "")
	s.Mix.Sources = []spec.Source{{Name: "a", Weight: 1, Dataset: lines}, {Name: "b", Weight: 1, Dataset: lines}}
	s.Order.Sample.Of = 2
	_, err := Open(context.Background(), s, Options{})
	require.ErrorContains(t, err, "--sample can't be combined with --mix")
}

func TestNoWorkerIsStarvedOfASource(t *testing.T) {
	s := mixSpec(t)
	s.Order.Length = 10_240
	d := open(t, s)
	for _, workers := range []uint64{2, 16, 64} {
		deal := s.Deal
		deal.Workers = workers
		set, err := d.Set(context.Background(), 0, nil, deal)
		require.NoError(t, err)
		for w := range workers {
			counts := map[string]float64{}
			n := 0.0
			for id := range slices.Chunk(readFile(t, set, w, stream.IDs, 1<<18), 16) {
				counts[string(id[:8])]++
				n++
			}
			tiny := sha256.Sum256([]byte("lsiofs/1 shard a/s0.jsonl.gz"))
			require.InDelta(t, 0.1*n, counts[string(tiny[:8])], 6*0.3*1.1*sqrt(n), "worker %d of %d", w, workers)
		}
	}
}

func sqrt(x float64) float64 {
	r := x
	for range 60 {
		r = (r + x/r) / 2
	}
	return r
}

func TestMixtureSharesMatchItsPositions(t *testing.T) {
	s := mixSpec(t)
	s.Order.Length = 1000
	d := open(t, s)
	places := naiveMixture(s.Order.Seed, []uint64{million(70), million(20), million(10)}, 2, 1000)
	done := []order.Done{{Batch: 1, Consumed: []uint64{10, 300, 0}}, {Batch: 1, Consumed: []uint64{5}}}
	for n := range len(done) + 1 {
		want := make([]uint64, 3)
		left := 5
		for i, p := range places {
			switch {
			case n > 0 && uint64(i/3) < done[0].Consumed[i%3]:
				want[p[0]]++
			case n > 1 && left > 0:
				want[p[0]]++
				left--
			}
		}
		counts, exact, err := d.Shared(2, done[:n])
		require.NoError(t, err)
		require.True(t, exact)
		require.Equal(t, want, counts)
	}
}
