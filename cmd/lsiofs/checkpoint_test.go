package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/checkpoint"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/goldentest"
	"github.com/lsiofs/lsiofs/pipeline/order"
	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// savedState returns the checkpoint of a run that went from two workers to four.
func savedState(last ...uint64) checkpoint.State {
	o := spec.Default().Order
	o.Seed = 42
	return checkpoint.State{
		Dataset: strings.Repeat("ab", 32), Order: o, Epoch: 3,
		Done: []order.Done{
			{Batch: 1, Dealing: spec.DealInterleaved, Consumed: []uint64{1000, 990}},
			{Batch: 2, Dealing: spec.DealInterleaved, Consumed: last},
		},
	}
}

// saveState writes a state of a dataset of 10000 records to a file.
func saveState(t *testing.T, path string, s checkpoint.State) string {
	require.NoError(t, os.WriteFile(path, s.Marshal(10_000), 0o600))
	return path
}

// asMount creates a directory that looks like a mount, as far as plain files can.
func asMount(t *testing.T, s checkpoint.State) string {
	mnt := t.TempDir()
	saveState(t, filepath.Join(mnt, "checkpoint"), s)
	require.NoError(t, os.WriteFile(filepath.Join(mnt, "dataset.json"), []byte(`{"records": 10000}`), 0o600))
	return mnt
}

func TestCheckpointShow(t *testing.T) {
	s := savedState(20, 20, 18, 18)
	file := saveState(t, filepath.Join(t.TempDir(), "c.json"), s)
	r := ok(t, "checkpoint", "show", file)
	goldentest.Equal(t, "checkpoint-show.txt", r.stdout)
	require.Equal(t, r.stdout, ok(t, "checkpoint", "show", asMount(t, s)).stdout, "a mount's is shown the same")

	j := ok(t, "checkpoint", "show", file, "--json")
	require.Equal(t, 1, strings.Count(j.stdout, "\n"))
	again, err := checkpoint.Parse([]byte(j.stdout))
	require.NoError(t, err)
	require.Equal(t, s, again)

	s.Order.Split = spec.Split{Part: spec.Part{To: 900_000_000}, Seed: 3, By: spec.SplitByUnit}
	require.Contains(t, ok(t, "checkpoint", "show", saveState(t, file, s)).stdout, "\nsplit        0..0.9 by unit, seed 3\n")
}

func TestCheckpointShowAcceptsShortForms(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"epoch": 3, "samples": 20480}`), 0o600))
	goldentest.Equal(t, "checkpoint-show-short.txt", ok(t, "checkpoint", "show", file).stdout)
	require.JSONEq(t, `{"epoch": 3, "samples": 20480}`, ok(t, "checkpoint", "show", file, "--json").stdout)
}

func TestInvalidCheckpointDocuments(t *testing.T) {
	dir := t.TempDir()
	for name, doc := range map[string]string{
		"empty": "", "text": "hello", "a list": "[]", "unknown field": `{"epoch": 1, "sample": 2}`, "another version": `{"version": 2}`,
		"no epoch": `{"samples": 3}`, "negative": `{"epoch": -1}`, "text behind": `{"epoch": 1} x`, "cut off": `{"version": 1, "dataset": "a`,
		"both forms": `{"version": 1, "samples": 3}`,
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
			require.NoError(t, os.WriteFile(file, []byte(doc), 0o600))
			r := lsiofs(t, "checkpoint", "show", file)
			require.Equal(t, exit.Checkpoint, r.code)
			require.Contains(t, r.stderr, file)
			r = lsiofs(t, "checkpoint", "merge", file)
			require.Equal(t, exit.Checkpoint, r.code)
			require.Contains(t, r.stderr, file)
		})
	}
}

func TestOversizedDocumentIsNotRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.json")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Truncate(file, 1<<40)) // sparse
	r := lsiofs(t, "checkpoint", "show", file)
	require.Equal(t, exit.Checkpoint, r.code)
	require.Contains(t, r.stderr, "exceeds the limit of 16777216 bytes")
}

func TestCheckpointSave(t *testing.T) {
	s := savedState(20, 20, 18, 18)
	mnt := asMount(t, s)
	file := filepath.Join(t.TempDir(), "c.json")
	r := ok(t, "checkpoint", "save", mnt, file)
	require.Equal(t, "saved "+file+": epoch 3, 2,066 records consumed\n", r.stderr)
	require.Empty(t, r.stdout)
	want, err := os.ReadFile(filepath.Join(mnt, "checkpoint"))
	require.NoError(t, err)
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "the mount's own bytes")

	r = ok(t, "checkpoint", "save", mnt, file, "--consumed", "4,4,2,2", "--json")
	require.JSONEq(t, fmt.Sprintf(`{"saved": %q, "epoch": 3, "consumed": 2002}`, file), r.stdout)
	got, err = os.ReadFile(file)
	require.NoError(t, err)
	require.Len(t, got, len(want), "numbers are as wide as the mount writes them")
	state, err := checkpoint.Parse(got)
	require.NoError(t, err)
	require.Equal(t, savedState(4, 4, 2, 2), state)
}

func TestCheckpointSaveRefusesImpossibleNumbers(t *testing.T) {
	mnt := asMount(t, savedState(0, 0, 0, 0))
	file := filepath.Join(t.TempDir(), "c.json")
	for consumed, says := range map[string]string{
		"1,2":         "has 2 numbers, but the mount has 4 workers",
		"1,2,3,x":     "not a number of records",
		"99999,0,0,0": "99999",
		"":            "not a number of records",
	} {
		r := lsiofs(t, "checkpoint", "save", mnt, file, "--consumed", consumed)
		require.Equal(t, exit.Usage, r.code, consumed)
		require.Contains(t, r.stderr, says)
		require.NoFileExists(t, file)
	}
}

func TestCheckpointMerge(t *testing.T) {
	dir := t.TempDir()
	a := saveState(t, filepath.Join(dir, "a"), savedState(20, 20, 0, 0))
	b := saveState(t, filepath.Join(dir, "b"), savedState(0, 0, 18, 16))
	c := saveState(t, filepath.Join(dir, "c"), savedState(4, 22, 18, 18))

	merged, err := checkpoint.Parse([]byte(ok(t, "checkpoint", "merge", a, b, c).stdout))
	require.NoError(t, err)
	require.Equal(t, savedState(20, 22, 18, 18), merged)

	out := filepath.Join(dir, "out")
	r := ok(t, "checkpoint", "merge", a, b, "-o", out)
	require.Empty(t, r.stdout)
	doc, err := os.ReadFile(out)
	require.NoError(t, err)
	merged, err = checkpoint.Parse(doc)
	require.NoError(t, err)
	require.Equal(t, savedState(20, 20, 18, 16), merged)

	other := savedState(1, 1, 1, 1)
	other.Epoch = 4
	r = lsiofs(t, "checkpoint", "merge", a, saveState(t, filepath.Join(dir, "d"), other))
	require.Equal(t, exit.Checkpoint, r.code)
	require.Contains(t, r.stderr, "epoch")
}

func TestCheckpointRestoreWritesControlFile(t *testing.T) {
	mnt := asMount(t, savedState(0, 0, 0, 0))
	file := saveState(t, filepath.Join(t.TempDir(), "c.json"), savedState(1, 2, 3, 4))
	ok(t, "checkpoint", "restore", file, mnt)
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(mnt, "checkpoint"))
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))

	r := lsiofs(t, "checkpoint", "restore", file, t.TempDir())
	require.Equal(t, exit.Checkpoint, r.code)
	require.Contains(t, r.stderr, "is not a mount of lsiofs")

	r = lsiofs(t, "checkpoint", "restore", mnt, file)
	require.Equal(t, exit.Usage, r.code)
	require.Contains(t, r.stderr, mnt+" is a directory: the file comes first, as in lsiofs checkpoint restore ckpt.json ")

	r = lsiofs(t, "checkpoint", "restore", file+".gone", mnt)
	require.Equal(t, exit.Checkpoint, r.code)
	require.Equal(t, "lsiofs: checkpoint "+file+".gone: no such file or directory: name a file that holds a saved checkpoint\n", r.stderr)
}

func TestRefusalsQuoteReasonFromMount(t *testing.T) {
	mnt := t.TempDir()
	require.Contains(t, refusalReason(mnt, unix.EINVAL), "invalid argument")
	status, err := json.Marshal(map[string]any{"last_checkpoint_refusal": map[string]string{"reason": "checkpoint refused: another dataset"}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(mnt, "status.json"), status, 0o600))
	require.Equal(t, "checkpoint refused: another dataset", refusalReason(mnt, unix.EINVAL))
	require.NoError(t, os.WriteFile(filepath.Join(mnt, "status.json"), []byte(`{"last_checkpoint_refusal": null}`), 0o600))
	require.Contains(t, refusalReason(mnt, unix.EINVAL), "status may have the reason")
}

func TestEmptyFileIsNotACheckpoint(t *testing.T) {
	dir := t.TempDir()
	file, whole := filepath.Join(dir, "c.json"), saveState(t, filepath.Join(dir, "whole.json"), savedState(1, 2, 3, 4))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "checkpoint"), []byte("{}"), 0o600)) // as much of a mount as a directory can be
	for _, text := range []string{"", "\n \t\r\n", "\x00\x00\x00", "\ufeff"} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		for _, args := range [][]string{
			{"checkpoint", "show", file}, {"checkpoint", "restore", file, dir}, {"checkpoint", "merge", whole, file}, {"cat", dataset(t), "--resume", file},
		} {
			r := lsiofs(t, args...)
			require.Equal(t, exit.Checkpoint, r.code, "%q %q: %s", args, text, r.stderr)
			require.Contains(t, r.stderr, file+" holds no checkpoint")
		}
		require.Equal(t, "{}", read(t, dir, "checkpoint"))
	}
}

func TestDashMeansStandardInputAndOutput(t *testing.T) {
	dir := t.TempDir()
	a := saveState(t, filepath.Join(dir, "a.json"), savedState(1, 2, 3, 4))
	b := saveState(t, filepath.Join(dir, "b.json"), savedState(4, 3, 2, 1))
	merged := ok(t, "checkpoint", "merge", a, b).stdout
	require.Equal(t, merged, ok(t, "checkpoint", "merge", a, b, "-o", "-").stdout)
	for _, args := range [][]string{{"checkpoint", "show", "-"}, {"checkpoint", "show", b}, {"checkpoint", "merge", a, "-"}, {"checkpoint", "merge", a, b}} {
		c := program(t, args...)
		in, err := os.Open(b)
		require.NoError(t, err)
		defer in.Close()
		c.Stdin = in
		out, err := c.Output()
		require.NoError(t, err, "%q", args)
		if slices.Contains(args, "-") {
			require.Equal(t, ok(t, append(slices.Clone(args[:len(args)-1]), b)...).stdout, string(out), "%q", args)
		}
	}
	r := lsiofs(t, "cat", dataset(t), "--resume", "-")
	require.Equal(t, exit.Usage, r.code)
	require.Contains(t, r.stderr, "--resume can't be standard input")
	require.NoFileExists(t, "-")
}
