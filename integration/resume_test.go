package integration

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// take reads the first n records of a worker file, as one reader from front to back does, and
// closes it. It returns their IDs.
func (m *mount) take(d dataset, w, n int) []string {
	m.t.Helper()
	ids := splitIDs(m.read("worker-%d.ids", w))
	offsets := splitOffsets(m.read("worker-%d.offsets", w))
	f, err := os.Open(m.path("worker-%d%s", w, d.ext))
	require.NoError(m.t, err)
	defer f.Close()
	buf := make([]byte, offsets[n])
	if n > 0 {
		_, err = f.ReadAt(buf, 0)
		require.NoError(m.t, err)
	}
	return ids[:n]
}

// requireTiles checks that the parts together are g without a gap and without a repetition,
// whatever the order within a part.
func requireTiles(t testing.TB, g []string, parts ...[]string) {
	t.Helper()
	all := slices.Concat(parts...)
	require.Len(t, all, len(g))
	slices.Sort(all)
	want := slices.Sorted(slices.Values(g))
	require.True(t, slices.Equal(want, all), "the records that came are not those of the epoch")
}

func TestWhatCameBeforeAResumePlusWhatComesAfterIsTheEpochExactly(t *testing.T) {
	r := rand.New(rand.NewPCG(*drawSeed, 4))
	for _, name := range []string{"tar", "jsonl", "npy"} {
		d := plain(t, name, 6)
		ref := newReference(t, d)
		for _, shuffle := range []string{"none", "reservoir", "block", "full"} {
			for range *draws {
				s := usual()
				s.Shuffle, s.Seed = shuffle, r.Uint64()
				t.Run(fmt.Sprintf("%s %s %d", name, shuffle, s.Seed), func(t *testing.T) { resumeThreeTimes(t, r, d, ref, s) })
			}
		}
	}
}

// resumeThreeTimes reads an epoch in four mounts, each with another number of workers, another
// batch and another deal.
func resumeThreeTimes(t *testing.T, r *rand.Rand, d dataset, ref *reference, s settings) {
	g := ref.g(s)
	saved := filepath.Join(t.TempDir(), "ckpt.json")
	var done []taken
	var came [][]string
	for stage := range 4 {
		s.Workers, s.Batch = 1+r.IntN(6), 1+r.IntN(4)
		s.Deal = []string{"interleaved", "interleaved", "contiguous"}[r.IntN(3)]
		s.Tail = []string{"keep", "drop", "pad"}[r.IntN(3)]
		if stage == 3 || s.Deal == "contiguous" && s.Tail == "pad" {
			s.Tail = "keep" // the last one has to read everything, without padding
		}
		var resume []string
		if stage > 0 {
			resume = []string{"--resume", saved}
		}
		m := mountDataset(t, d, s, resume...)
		for w := range s.Workers {
			want := splitIDs(ref.ask(question{settings: s, Worker: w, Done: done, Kind: "ids"}))
			requireSameIDs(t, want, splitIDs(m.read("worker-%d.ids", w)), "stage %d, worker %d of %+v after %+v", stage, w, s, done)
			requireSameBytes(t, ref.ask(question{settings: s, Worker: w, Done: done, Kind: "data"}),
				m.read("worker-%d%s", w, d.ext), "stage %d, worker %d", stage, w)
		}
		m.end() // the reads above count as delivered, so start again
		m = mountDataset(t, d, s, resume...)
		consumed := make([]int, s.Workers)
		for w := range s.Workers {
			n := len(splitIDs(m.read("worker-%d.ids", w)))
			if stage < 3 {
				n = r.IntN(n/2 + 1)
			}
			if s.Tail == "pad" { // take no padding
				own := s
				own.Tail = "keep"
				n = min(n, len(ref.ask(question{settings: own, Worker: w, Done: done, Kind: "ids"}))/16)
			}
			consumed[w] = n
			came = append(came, m.take(d, w, n))
		}
		done = m.checkpoint().Done
		if s.Deal == "interleaved" {
			require.Equal(t, taken{Batch: s.Batch, Consumed: consumed}, last(done))
		}
		shell(t, `cp "$1" "$2"`, m.path("checkpoint"), saved)
		m.end()
	}
	requireTiles(t, g, came...)
}

func last[T any](s []T) T { return s[len(s)-1] }

func requireSameIDs(t testing.TB, want, got []string, format string, args ...any) {
	t.Helper()
	if !slices.Equal(want, got) {
		require.Failf(t, "other records", "%s: %d records, want %d", fmt.Sprintf(format, args...), len(got), len(want))
	}
}

// savings are ways to save a checkpoint: $1 is the mount, $2 the file.
var savings = []struct{ name, program, line string }{
	{"cp", "cp", `cp "$1/checkpoint" "$2"`},
	{"cat", "cat", `cat "$1/checkpoint" > "$2"`},
	{"dd", "dd", `dd if="$1/checkpoint" of="$2" bs=7 status=none`},
	{"rsync", "rsync", `rsync "$1/checkpoint" "$2"`},
	{"busybox", "busybox", `busybox cp "$1/checkpoint" "$2"`},
	{"python", "python3", `python3 -c 'import shutil, sys; shutil.copyfile(sys.argv[1] + "/checkpoint", sys.argv[2])' "$1" "$2"`},
	{"node", "node", `node -e 'require("fs").copyFileSync(process.argv[1] + "/checkpoint", process.argv[2])' "$1" "$2"`},
	{"lsiofs checkpoint save", "sh", `"$LSIOFS" checkpoint save "$1" "$2"`},
	{"lsiofs checkpoint show", "sh", `"$LSIOFS" checkpoint show --json "$1" > "$2"`},
}

// restorings are ways to restore one: $1 is the file, $2 the mount.
var restorings = []struct{ name, program, line string }{
	{"cp", "cp", `cp "$1" "$2/checkpoint"`},
	{"cp -f", "cp", `cp -f "$1" "$2/checkpoint"`},
	{"cat", "cat", `cat "$1" > "$2/checkpoint"`},
	{"tee", "tee", `tee "$2/checkpoint" < "$1" > /dev/null`},
	{"dd", "dd", `dd if="$1" of="$2/checkpoint" bs=16 status=none`},
	{"echo", "sh", `echo "$(cat "$1")" > "$2/checkpoint"`},
	{"bash echo", "bash", `bash -c 'echo "$(cat "$1")" > "$2/checkpoint"' bash "$1" "$2"`},
	{"mv from another file system", "mv", `cp "$1" "$1.moved"; mv "$1.moved" "$2/checkpoint"`},
	{"mv of a scratch file", "mv", `cp "$1" "$2/new"; mv "$2/new" "$2/checkpoint"`},
	{"install", "install", `install -m 600 "$1" "$2/checkpoint"`},
	{"rsync", "rsync", `rsync --ignore-times "$1" "$2/checkpoint"`},
	{"rsync --inplace", "rsync", `rsync --inplace --ignore-times "$1" "$2/checkpoint"`},
	{"busybox cp", "busybox", `busybox cp "$1" "$2/checkpoint"`},
	{"python write", "python3", `python3 -c 'import sys; open(sys.argv[2] + "/checkpoint", "w").write(open(sys.argv[1]).read())' "$1" "$2"`},
	{"python os.replace", "python3", `python3 -c '
import os, sys
scratch = sys.argv[2] + "/.checkpoint.tmp"
with open(scratch, "w") as f:
    f.write(open(sys.argv[1]).read())
    f.flush()
    os.fsync(f.fileno())
os.replace(scratch, sys.argv[2] + "/checkpoint")' "$1" "$2"`},
	{"python shutil.copy", "python3", `python3 -c 'import shutil, sys; shutil.copy(sys.argv[1], sys.argv[2] + "/checkpoint")' "$1" "$2"`},
	{"node writeFileSync", "node", `node -e 'const fs = require("fs"); fs.writeFileSync(process.argv[2] + "/checkpoint", fs.readFileSync(process.argv[1]))' "$1" "$2"`},
	{"node copyFileSync", "node", `node -e 'const fs = require("fs"); fs.copyFileSync(process.argv[1], process.argv[2] + "/checkpoint")' "$1" "$2"`},
	{"lsiofs checkpoint restore", "sh", `"$LSIOFS" checkpoint restore "$1" "$2"`},
}

func TestEveryWayToSaveCheckpointGivesSameDocument(t *testing.T) {
	t.Setenv("LSIOFS", lsiofs)
	d := plain(t, "tar", 4)
	m := mountDataset(t, d, usual())
	for w, n := range []int{3, 0, 5} {
		m.take(d, w, n)
	}
	want := m.checkpoint()
	require.Equal(t, []int{3, 0, 5}, last(want.Done).Consumed)
	for _, way := range savings {
		t.Run(way.name, func(t *testing.T) {
			need(t, way.program)
			file := filepath.Join(t.TempDir(), "ckpt.json")
			shell(t, way.line, m.dir, file)
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, want, documentOf(t, b))
		})
	}
}

func TestEveryWayToRestoreCheckpointWorks(t *testing.T) {
	t.Setenv("LSIOFS", lsiofs)
	d := plain(t, "tar", 4)
	s := usual()
	ref := newReference(t, d)
	m := mountDataset(t, d, s)
	doc := m.checkpoint()
	for i, way := range restorings {
		t.Run(way.name, func(t *testing.T) {
			need(t, way.program)
			doc.Epoch = uint64(i)
			doc.Done = []taken{{Batch: 2, Consumed: []int{6 + i, 1, 9, i}}}
			file := filepath.Join(t.TempDir(), "ckpt.json")
			require.NoError(t, os.WriteFile(file, doc.json(t), 0o600))
			shell(t, way.line, file, m.dir)

			s.Epoch = doc.Epoch
			for w := range s.Workers {
				requireFile(t, ref.ask(question{settings: s, Worker: w, Done: doc.Done, Kind: "data"}), m.path("worker-%d.tar", w))
				requireFile(t, ref.ask(question{settings: s, Worker: w, Done: doc.Done, Kind: "ids"}), m.path("worker-%d.ids", w))
				requireFile(t, ref.ask(question{settings: s, Worker: w, Done: doc.Done, Kind: "offsets"}), m.path("worker-%d.offsets", w))
			}
			require.Equal(t, doc.Done[0], m.checkpoint().Done[0])
		})
	}
}

func TestShortFormsRestore(t *testing.T) {
	d := plain(t, "jsonl", 4)
	s := usual()
	ref := newReference(t, d)
	m := mountDataset(t, d, s)
	for _, c := range []struct {
		doc   string
		epoch uint64
		from  int
	}{
		{`{"epoch": 3}`, 3, 0},
		{`{"epoch":3,"samples":20}`, 3, 20},
		{` { "samples" : 0 , "epoch" : 4 } `, 4, 0},
		{fmt.Sprintf(`{"epoch": 1, "samples": %d}`, len(ref.g(s))), 1, len(ref.g(s))},
	} {
		t.Run(c.doc, func(t *testing.T) {
			m.restore([]byte(c.doc))
			s.Epoch = c.epoch
			for w := range s.Workers {
				requireFile(t, ref.ask(question{settings: s, Worker: w, From: c.from, Kind: "data"}), m.path("worker-%d.jsonl", w))
			}
			require.Equal(t, c.epoch, m.checkpoint().Epoch)
			require.Contains(t, names(t, m.dir), fmt.Sprintf("epoch-%d", c.epoch))
		})
	}
}

func TestDocumentKeepsItsSizeUntilRestore(t *testing.T) {
	d := plain(t, "jsonl", 4)
	m := mountDataset(t, d, usual())
	size := len(m.read("checkpoint"))
	for w := range 3 {
		m.take(d, w, 11)
		require.Len(t, m.read("checkpoint"), size)
	}
	info, err := os.Stat(m.path("checkpoint"))
	require.NoError(t, err)
	require.EqualValues(t, size, info.Size())
}

func TestCheckpointCommands(t *testing.T) {
	d := plain(t, "jsonl", 4)
	s := usual()
	s.Workers = 2
	ref := newReference(t, d)
	m := mountDataset(t, d, s)
	dir := t.TempDir()
	first, second, merged := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "m")

	toolOK(t, "checkpoint", "save", m.dir, first, "--consumed", "10,3")
	toolOK(t, "checkpoint", "save", m.dir, second, "--consumed", "4,12")
	require.NoError(t, os.WriteFile(merged, toolOK(t, "checkpoint", "merge", first, second), 0o600))
	b, err := os.ReadFile(merged)
	require.NoError(t, err)
	require.Equal(t, []taken{{Batch: 1, Consumed: []int{10, 12}}}, documentOf(t, b).Done)

	shown := toolOK(t, "checkpoint", "show", merged)
	require.Contains(t, string(shown), "2 workers in batches of 1: [10 12]\n")
	toolOK(t, "checkpoint", "restore", merged, m.dir)
	done := []taken{{Batch: 1, Consumed: []int{10, 12}}}
	requireFile(t, ref.ask(question{settings: s, Worker: 1, Done: done, Kind: "data"}), m.path("worker-1.jsonl"))

	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 3, "saving leaves no temporary files")

	for _, refused := range [][]string{
		{"checkpoint", "save", m.dir, first, "--consumed", "1"},
		{"checkpoint", "save", m.dir, first, "--consumed", "1,2,3"},
		{"checkpoint", "save", m.dir, first, "--consumed", "1,99999"},
		{"checkpoint", "restore", filepath.Join(dir, "nothing"), m.dir},
		{"checkpoint", "merge", first, filepath.Join(dir, "nothing")},
	} {
		r := tool(t, refused...)
		require.NotZero(t, r.code, "%q", refused)
		require.NotEmpty(t, r.stderr)
	}
	b, err = os.ReadFile(first)
	require.NoError(t, err)
	require.Equal(t, []int{10, 3}, last(documentOf(t, b).Done).Consumed, "a refused save leaves the file as it was")
}

func TestResumeTakesOrderFromFileAndRefusesOther(t *testing.T) {
	d := plain(t, "jsonl", 4)
	s := usual()
	m := mountDataset(t, d, s)
	m.take(d, 0, 5)
	file := filepath.Join(t.TempDir(), "ckpt.json")
	shell(t, `cp "$1" "$2"`, m.path("checkpoint"), file)
	m.end()

	// The file is sufficient: order, workers and batch are the document's.
	m = mountAt(t, d, t.TempDir(), "--resume", file)
	done := []taken{{Batch: 1, Consumed: []int{5, 0, 0}}}
	requireFile(t, newReference(t, d).ask(question{settings: s, Worker: 2, Done: done, Kind: "data"}), m.path("worker-2.jsonl"))
	m.end()

	for _, flags := range [][]string{{"--seed", "43"}, {"--shuffle", "block"}, {"--lanes", "8"}, {"--chunk-records", "9"}, {"--shuffle-size", "47"}} {
		_, err := tryMount(t, d, t.TempDir(), append(flags, "--resume", file)...)
		require.ErrorContains(t, err, flags[0], "%q differs from the file", flags)
	}
	other := plain(t, "jsonl", 5)
	_, err := tryMount(t, other, t.TempDir(), "--resume", file)
	require.ErrorContains(t, err, "shard-0004.jsonl", "a refusal for another dataset names the shards that differ")
}

func TestDocumentHasOrderFieldsOfDesign(t *testing.T) {
	m := mountDataset(t, plain(t, "jsonl", 2), usual())
	doc := m.checkpoint()
	require.Equal(t, 1, doc.Version)
	want := map[string]json.RawMessage{
		"seed": json.RawMessage("42"), "shuffle": json.RawMessage(`"reservoir"`), "size": json.RawMessage("48"),
		"lanes": json.RawMessage("4"), "groups": json.RawMessage("1"), "batch": json.RawMessage("1"),
		"chunk_bytes": json.RawMessage("3000"), "chunk_records": json.RawMessage("8"),
	}
	require.Equal(t, want, doc.Order)
	require.Equal(t, []taken{{Batch: 1, Consumed: []int{0, 0, 0}}}, doc.Done)
}

// The file of a position is the whole document, for every kind of dataset: after restoring it, the
// mount has the same streams as those next to that file. The fake datasets of unit tests have no
// samples and mixtures.
func TestAPositionSavedAsAFileGoesOnWithTheRestOfItsEpoch(t *testing.T) {
	d := plain(t, "jsonl", 4)
	for name, c := range map[string]struct {
		d     dataset
		flags []string
	}{
		"plain": {d, nil}, "split": {d, []string{"--split", "0..0.7"}}, "sample": {d, []string{"--sample", "1/3"}},
		"mixture": {mixtureOf(t, d, nil, "a=2", d.dir, "b=1", plain(t, "jsonl", 2).dir), nil},
	} {
		t.Run(name, func(t *testing.T) {
			d, flags := c.d, c.flags
			m := mountDataset(t, d, usual(), flags...)
			all := splitIDs(m.read("epoch-3/worker-0-of-1.ids"))
			n := len(all) / 3
			saved := filepath.Join(t.TempDir(), "ckpt.json")
			shell(t, `cp "$1" "$2"`, m.path("epoch-3/from-%d/checkpoint", n), saved)
			rest := splitIDs(m.read("epoch-3/from-%d/worker-0-of-1.ids", n))
			require.Equal(t, all[n:], rest)
			m.end()

			again := mountAt(t, d, t.TempDir(), append(flags, "--resume", saved, "--workers", "2")...)
			requireTiles(t, rest, splitIDs(again.read("worker-0.ids")), splitIDs(again.read("worker-1.ids")))
			require.EqualValues(t, 3, again.checkpoint().Epoch)
		})
	}
}
