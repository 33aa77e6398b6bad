package integration

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/serve"
)

var splitUnits = []string{"record", "shard", "unit"}

// idsOfWorkers returns the IDs of all worker files of a mount.
func idsOfWorkers(m *mount, s settings) []string {
	var ids []string
	for w := range s.Workers {
		ids = append(ids, splitIDs(m.read("worker-%d.ids", w))...)
	}
	return ids
}

// Whatever else differs, 0..0.9 and 0.9..1 share nothing and miss nothing.
func TestTwoPartsShareNothingAndMissNothing(t *testing.T) {
	serve.Tier(t, serve.CI)
	r := rand.New(rand.NewPCG(*drawSeed, 7))
	for _, name := range []string{"tar", "jsonl", "tfrecord"} {
		for _, c := range codecs {
			d := makeDataset(t, formatNamed(name), c, 12, *drawSeed)
			all := newReference(t, d).g(usual())
			by := splitUnits[r.IntN(3)]
			cut := []string{"0.9", "0.5", "0.123456789"}[r.IntN(3)]
			seed := r.Uint64()
			t.Run(fmt.Sprintf("%s cut at %s by %s", d.name, cut, by), func(t *testing.T) {
				var parts [][]string
				for i, part := range []string{"0.." + cut, cut + "..1"} {
					s := draw(r, len(all)).part(part, by, seed)
					s.Tail, s.Sample, s.SampleSeed = "keep", "", 0 // each epoch has all of the part
					t.Logf("settings %+v", s)
					// Little memory: what other parts leave out must not be waited for.
					m := mountDataset(t, d, s, "--memory", "1MiB", "--read", []string{"auto", "scan"}[i])
					parts = append(parts, idsOfWorkers(m, s))
					for w := range min(s.Workers, 3) {
						m.read("worker-%d%s", w, d.ext)
					}
					m.end()
				}
				requireTiles(t, all, parts...)
			})
		}
	}
}

func TestPartReadsAndResumesLikeAnyOrder(t *testing.T) {
	serve.Tier(t, serve.CI)
	r := rand.New(rand.NewPCG(*drawSeed, 8))
	for _, codec := range []codec{codecs[0], codecs[2]} {
		d := makeDataset(t, formatNamed("tar"), codec, 9, 7)
		ref := newReference(t, d)
		for _, by := range splitUnits {
			s := usual().part("0.2..0.8", by, 5)
			s.Seed = r.Uint64()
			t.Run(d.name+" by "+by, func(t *testing.T) { resumeThreeTimes(t, r, d, ref, s) })
		}
	}
}

func TestResumeTakesSplitFromFileAndRefusesOther(t *testing.T) {
	d := plain(t, "jsonl", 4)
	s := usual().part("0..0.7", "record", 3)
	m := mountDataset(t, d, s)
	m.take(d, 0, 5)
	require.JSONEq(t, `{"part": "0..0.7", "seed": 3, "by": "record"}`, string(m.checkpoint().Order["split"]))
	file := filepath.Join(t.TempDir(), "ckpt.json")
	shell(t, `cp "$1" "$2"`, m.path("checkpoint"), file)

	done := []taken{{Batch: 1, Consumed: []int{5, 0, 0}}}
	want := newReference(t, d).ask(question{settings: s, Worker: 2, Done: done, Kind: "data"})
	resumed := mountAt(t, d, t.TempDir(), "--resume", file)
	requireFile(t, want, resumed.path("worker-2.jsonl"))
	resumed.end()
	resumed = mountAt(t, d, t.TempDir(), "--resume", file, "--split", "0.0..0.70", "--split-seed", "3", "--split-by", "record")
	requireFile(t, want, resumed.path("worker-2.jsonl"))
	resumed.end()

	for _, flags := range [][]string{{"--split", "0..0.71"}, {"--split", "0..1"}, {"--split-seed", "4", "--split", "0..0.7"}, {"--split-by", "shard", "--split", "0..0.7"}} {
		_, err := tryMount(t, d, t.TempDir(), append(flags, "--resume", file)...)
		require.ErrorContains(t, err, flags[0]+" (", "%q differs from the file", flags)
	}
	// The document of one part does not fit the other.
	doc := m.checkpoint()
	doc.Order["split"] = json.RawMessage(`{"part": "0.7..1", "seed": 3, "by": "record"}`)
	require.Error(t, os.WriteFile(m.path("checkpoint"), doc.json(t), 0o644))
	require.Contains(t, m.status().LastRefusal.Reason, `order.split is {"part": "0.7..1", "seed": 3, "by": "record"} in the checkpoint`)
	delete(doc.Order, "split")
	require.Error(t, os.WriteFile(m.path("checkpoint"), doc.json(t), 0o644))
	require.Contains(t, m.status().LastRefusal.Reason, "order.split is the whole dataset in the checkpoint")
	// Short forms count the remaining records.
	left := len(newReference(t, d).g(s))
	require.Error(t, os.WriteFile(m.path("checkpoint"), fmt.Appendf(nil, `{"epoch": 1, "samples": %d}`, 1<<40), 0o644))
	m.restore(fmt.Appendf(nil, `{"epoch": 1, "samples": %d}`, left-1))
	s.Epoch = 1
	requireFile(t, newReference(t, d).ask(question{settings: s, Worker: 0, From: left - 1, Kind: "ids"}), m.path("worker-0.ids"))
}

func TestDatasetJSONAndInspectShowSplit(t *testing.T) {
	d := plain(t, "jsonl", 6)
	s := usual().part("0.9..1", "record", 1)
	ref := newReference(t, d)
	left := ref.g(s)
	bytes := 0
	for w := range s.Workers {
		bytes += len(ref.data(s, w))
	}
	type split struct {
		Part string
		Seed uint64
		By   string
	}
	var described struct {
		Records int
		Bytes   int
		Order   struct{ Split *split }
		Whole   struct{ Records int }
	}
	m := mountDataset(t, d, s)
	require.NoError(t, json.Unmarshal(m.read("dataset.json"), &described))
	require.Equal(t, len(left), described.Records)
	require.Equal(t, bytes, described.Bytes)
	require.Equal(t, &split{"0.9..1", 1, "record"}, described.Order.Split)
	require.Equal(t, len(ref.g(usual())), described.Whole.Records)
	m.end()

	args := slices.Concat([]string{"inspect", d.dir, "--json"}, s.flags())
	var inspected struct {
		Records      int   `json:"records"`
		StreamBytes  int   `json:"stream_bytes"`
		ChunkRecords any   `json:"chunk_records"`
		Split        split `json:"split"`
	}
	require.NoError(t, json.Unmarshal(toolOK(t, args...), &inspected))
	require.Equal(t, len(left), inspected.Records)
	require.Equal(t, bytes, inspected.StreamBytes)
	require.Equal(t, *described.Order.Split, inspected.Split)
	text := toolOK(t, slices.Concat([]string{"inspect", d.dir}, s.flags())...)
	require.Contains(t, string(text), "0.9..1 by record, seed 1, from ")

	// All of a dataset is not a split.
	m = mountDataset(t, d, usual().part("0..1", "shard", 9))
	require.NotContains(t, m.checkpoint().Order, "split")
	require.NotContains(t, string(m.read("dataset.json")), `"split"`)
	require.Equal(t, ref.g(usual()), splitIDs(m.read("epoch-0/worker-0-of-1.ids")))
}

func TestSplitThatLeavesNothingGivesEmptyStreams(t *testing.T) {
	serve.Tier(t, serve.CI)
	shuffle := 0
	allFormats(t, func(t *testing.T, d dataset) {
		s := usual().part("0..0.000000001", "shard", 0)
		s.Shuffle, s.Tail = []string{"none", "reservoir", "block", "full"}[shuffle%4], "pad"
		shuffle++
		empty := newReference(t, d).data(s, 0) // only what precedes and follows the records
		if d.ext == ".tar" {
			require.Equal(t, make([]byte, 1024), empty)
		}
		m := mountDataset(t, d, s)
		for w := range s.Workers {
			requireFile(t, empty, m.path("worker-%d%s", w, d.ext))
			require.Empty(t, m.read("worker-%d.ids", w))
			require.Len(t, m.read("epoch-7/worker-%d-of-3.offsets", w), 8)
		}
		require.Contains(t, string(m.read("dataset.json")), `"records": 0,`)
		require.Contains(t, string(m.read("dataset.json")), `"chunks": 0,`)
		m.requireLog(`--split 0\.\.0\.000000001 --split-by shard selects none of the dataset's `)
		m.restore([]byte(`{"epoch": 2, "samples": 0}`))
		requireFile(t, empty, m.path("worker-0%s", d.ext))
	})
}

func TestVerifyProvesOrderOfPart(t *testing.T) {
	d := makeDataset(t, formatNamed("jsonl"), codecs[1], 6, 7)
	for _, by := range splitUnits {
		s := usual().part("0.3..1", by, 4)
		var report struct {
			Order struct {
				Claims []struct {
					Problem string
					Records int
				}
			}
		}
		require.NoError(t, json.Unmarshal(toolOK(t, slices.Concat([]string{"verify", d.dir, "--order", "--json"}, s.flags())...), &report))
		require.Len(t, newReference(t, d).g(s), report.Order.Claims[0].Records)
		for _, claim := range report.Order.Claims {
			require.Empty(t, claim.Problem)
		}
	}
}

func TestInvalidSplitsAreRefusedWithExample(t *testing.T) {
	d := plain(t, "lines", 1)
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--split", "0.9..0.1"}, "the first fraction must be below the second, such as 0..0.9"},
		{[]string{"--split", "90%"}, "write two fractions between 0 and 1 with at most 9 digits after the point, such as 0..0.9"},
		{[]string{"--split", "0..0.9", "--split-by", "game"}, `--split-by ("game") must be one of record, shard, unit`},
		{[]string{"--split-seed", "3"}, "name a part, as in --split 0..0.9"},
	} {
		for _, verb := range []string{"cat", "inspect", "plan"} {
			r := tool(t, slices.Concat([]string{verb, d.dir}, d.flags, c.flags)...)
			require.Equal(t, exitUsage, r.code, "%s %q", verb, c.flags)
			require.Contains(t, r.stderr, c.want)
		}
	}
}

// TestScaleOfASplit logs what a split costs a mount, and checks its memory.
func TestScaleOfASplit(t *testing.T) {
	serve.Tier(t, serve.CI)
	d := largeDatasets()["fixed"](t)
	dir := t.TempDir()
	index(t, d.dataset, "--index-dir", dir)
	total := 0
	for _, by := range splitUnits {
		for _, part := range []string{"0..0.9", "0.9..1"} {
			began := time.Now()
			m := mountAt(t, d.dataset, t.TempDir(), "--index-dir", dir, "--workers", "4", "--split", part, "--split-by", by)
			mounted := milliseconds(began)
			records := 0
			for w := range 4 {
				info, err := os.Stat(m.path("worker-%d.ids", w))
				require.NoError(t, err)
				records += int(info.Size() / 16)
				_, err = os.Stat(m.path("worker-%d.bin", w))
				require.NoError(t, err)
			}
			t.Logf("%s by %s: %d of %d records, mounted after %d ms, all sizes after %d ms, %d MiB",
				part, by, records, d.records, mounted, milliseconds(began), heldBy(t, m.cmd.Process.Pid)>>20)
			m.end()
			total += records
		}
	}
	require.Equal(t, len(splitUnits)*d.records, total)
}

func TestREADMEAndCheckpointCountRecordsOfPart(t *testing.T) {
	d := plain(t, "jsonl", 4)
	s := usual().part("0..0.5", "record", 2)
	left := len(newReference(t, d).g(s))
	m := mountDataset(t, d, s)
	require.Contains(t, string(m.read("README")), fmt.Sprintf("\n%d records, divided among 3 workers", left))
	require.Contains(t, string(m.read("checkpoint")), strings.Repeat(" ", len(fmt.Sprint(left))-1)+"0")
	require.Contains(t, names(t, m.path("epoch-0/from-%d", left)), "worker-0-of-3.jsonl")
	_, err := os.Stat(m.path("epoch-0/from-%d", 1<<40))
	require.ErrorIs(t, err, os.ErrNotExist)
}
