package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/goldentest"
	runs "github.com/lsiofs/lsiofs/pipeline/run"
)

// takenRun returns a run directory with one epoch for each of the given sets of shards.
func takenRun(t *testing.T, epochs ...string) string {
	return takenRunAt(t, func(int) string { return "2126-11-21T22:28:47Z" }, epochs...)
}

// takenRunAt is takenRun with the times at which the epochs were taken.
func takenRunAt(t *testing.T, at func(epoch int) string, epochs ...string) string {
	path := t.TempDir()
	d, err := runs.Open(path, runs.Info{Format: "lc0", Kind: "V6", Newest: "name"})
	require.NoError(t, err)
	for i, shards := range epochs {
		text := "lsiofs/1 dataset lc0\n"
		for name := range strings.FieldsSeq(shards) {
			text += "1000 8356000 10 " + name + "\n"
		}
		n := uint64(len(strings.Fields(shards)))
		_, err := d.Take(runs.Epoch{
			Epoch: uint64(i), Shards: n, Records: 1000 * n, Units: 10 * n, Bytes: 8356000 * n, NewShards: 1, NewRecords: 1000, NewUnits: 10,
			Window: "2shards", Taken: at(i), By: "node3/4711",
		}, []byte(text))
		require.NoError(t, err)
	}
	return path
}

func TestSnapshotsListsEpochs(t *testing.T) {
	path := takenRun(t, "a.gz", "a.gz b.gz", "b.gz c.gz")
	goldentest.Equal(t, "snapshots.txt", ok(t, "snapshots", path).stdout)
	var e struct {
		runs.Epoch
		Kept bool `json:"kept"`
	}
	d, err := runs.Read(path)
	require.NoError(t, err)
	first, err := d.Epoch(0)
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(path, "snapshots", first.Snapshot+".gz")))
	for i, line := range strings.Split(strings.TrimSpace(ok(t, "snapshots", path, "--json").stdout), "\n") {
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		want, err := d.Epoch(uint64(i))
		require.NoError(t, err)
		require.Equal(t, want, e.Epoch)
		require.Equal(t, i > 0, e.Kept)
	}
	require.Contains(t, ok(t, "snapshots", path).stdout, "gone")
	require.Contains(t, ok(t, "snapshots", takenRun(t)).stderr, "no epoch")
}

func TestSnapshotsListsUnneededShards(t *testing.T) {
	path, data := takenRun(t, "a.gz", "a.gz x/b.gz", "c.gz x/b.gz", "c.gz d.gz", "d.gz e.gz"), t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(data, "x"), 0o755))
	for _, name := range []string{"a.gz", "x/b.gz", "c.gz", "d.gz", "new.gz"} {
		require.NoError(t, os.WriteFile(filepath.Join(data, name), []byte(name), 0o644))
	}
	unused := func(args ...string) string {
		return ok(t, append([]string{"snapshots", path, "--unused", data}, args...)...).stdout
	}
	at := func(names ...string) (list string) {
		for _, name := range names {
			list += filepath.Join(data, name) + "\n"
		}
		return list
	}
	require.Equal(t, at("a.gz", "x/b.gz"), unused())
	require.Equal(t, at("a.gz"), unused("--keep", "3"))
	require.Equal(t, at("a.gz", "c.gz", "x/b.gz"), unused("--keep", "1"))
	require.Empty(t, unused("--keep", "100"))
	require.Equal(t, fmt.Sprintf(`{"path":%q,"bytes":4}`+"\n", filepath.Join(data, "a.gz")), unused("--keep", "3", "--json"))

	// A file changed since the latest epoch was taken may be new.
	later := time.Date(2127, 1, 1, 0, 0, 0, 0, time.UTC)
	require.NoError(t, os.Chtimes(filepath.Join(data, "a.gz"), later, later))
	require.Equal(t, at("x/b.gz"), unused())

	// If the needed snapshots can't be read, nothing is listed as unused.
	d, err := runs.Read(path)
	require.NoError(t, err)
	e, err := d.Epoch(4)
	require.NoError(t, err)
	require.NoError(t, os.Remove(filepath.Join(path, "snapshots", e.Snapshot+".gz")))
	r := lsiofs(t, "snapshots", path, "--unused", data)
	require.Equal(t, exit.Dataset, r.code)
	require.Empty(t, r.stdout)
}

// A shard is deleted and its name reused shortly before the latest epoch is taken. The new file had
// not settled, so no epoch has it yet.
func TestSnapshotsNeverListsNewFileUnderOldName(t *testing.T) {
	data, now := t.TempDir(), time.Now()
	path := takenRunAt(t, func(epoch int) string {
		return now.Add(time.Duration(epoch-1)*24*time.Hour + 12*time.Hour).UTC().Format(time.RFC3339)
	}, "a.gz c.gz", "c.gz d.gz", "d.gz e.gz", "e.gz")
	for _, name := range []string{"a.gz", "c.gz"} {
		require.NoError(t, os.WriteFile(filepath.Join(data, name), []byte(name), 0o644))
	}
	// a.gz was written after epoch 0, which had an earlier file of that name; c.gz before epoch 1.
	require.Equal(t, filepath.Join(data, "c.gz")+"\n", ok(t, "snapshots", path, "--unused", data).stdout)
}

func TestSnapshotsExplainsErrors(t *testing.T) {
	r := lsiofs(t, "snapshots", t.TempDir())
	require.Equal(t, exit.Dataset, r.code)
	require.Contains(t, r.stderr, "name a run directory, which contains run.json")
	for _, args := range [][]string{{"snapshots"}, {"snapshots", "/run", "--keep", "3"}, {"snapshots", "/run", "--unused", "/data", "--keep", "0"}} {
		require.Equal(t, exit.Usage, lsiofs(t, args...).code, args)
	}
}
