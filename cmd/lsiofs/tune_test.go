package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/cmd/lsiofs/exit"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/terminal"
	"github.com/lsiofs/lsiofs/cmd/lsiofs/tune"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/filesystem"
	storagetune "github.com/lsiofs/lsiofs/pipeline/tune"
)

// ownCache sets a cache directory of its own for a test's commands and returns lsiofs's directory
// in it.
func ownCache(t *testing.T) string {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	return filepath.Join(cache, "lsiofs")
}

// tuneQuickly runs tune with a small table and little data.
func tuneQuickly(t *testing.T, ctx context.Context, json bool, o tune.Options) (result, error) {
	t.Helper()
	if o.Seconds == 0 {
		o.Seconds = 0.3
	}
	o.Measured = func(path string) storagetune.Config {
		c := storagetune.Default(path)
		c.ReadBytes, c.Depths = []int64{4 << 10, 128 << 10, 1 << 20}, []int{1, 4, 16}
		c.MinDataBytes, c.DataBytes, c.TempBytes = 64<<20, 64<<20, 8<<20
		return c
	}
	var out, errs bytes.Buffer
	u := terminal.New(&out, &errs)
	u.JSON = json
	err := tune.Run(ctx, o, u)
	return result{exit.CodeOf(err), out.String(), errs.String()}, err
}

func TestMountsUseMeasurementsOfTune(t *testing.T) {
	cache, data := ownCache(t), dataset(t)
	before := ok(t, "tune", data, "--show").stdout
	require.Contains(t, before, "default for ")
	require.Contains(t, before, "lsiofs tune "+terminal.Quote(data))

	r, err := tuneQuickly(t, t.Context(), true, tune.Options{Path: data})
	require.NoError(t, err)
	var report tune.Report
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &report))
	require.Len(t, report.Cells, 9)
	require.Equal(t, cache, filepath.Dir(report.File))
	require.NoError(t, report.Profile.Validate())

	var found filesystem.FoundProfile
	require.NoError(t, json.Unmarshal([]byte(ok(t, "tune", data, "--show", "--json").stdout), &found))
	require.Equal(t, filesystem.FoundProfile{Profile: report.Profile, Place: report.Place, File: report.File, Cells: report.Cells}, found)
	day := report.Profile.Tuned.Format(time.DateOnly)
	for _, args := range [][]string{{"tune", data, "--show"}, {"inspect", data}, {"plan", data}, {"doctor"}} {
		require.Contains(t, lsiofs(t, args...).stdout, "tuned "+day, "%v", args)
	}
	require.Equal(t, report.Profile.GapBytes, func() int64 {
		p := planOf(t, data).Storages[0]
		require.Equal(t, report.Profile, p.Likes)
		return p.Likes.GapBytes
	}())
	// The profile belongs to the file system, not to the directory.
	require.Contains(t, ok(t, "tune", t.TempDir(), "--show").stdout, "tuned "+day)
}

func TestDamagedProfileWarnsAndDoesNotFail(t *testing.T) {
	cache, data := ownCache(t), dataset(t)
	want := ok(t, "cat", data).stdout
	place, err := filesystem.Look(data)
	require.NoError(t, err)
	p := storage.DefaultProfile(place.Kind)
	p.Tuned = time.Now()
	file, err := filesystem.SaveProfile(cache, filesystem.StoredProfile{Place: place, Profile: p})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, []byte(`{"version": 99}`), 0o600))
	for _, args := range [][]string{{"cat", data}, {"tune", data, "--show"}} {
		r := ok(t, args...)
		require.Contains(t, r.stderr, "its version (99) is not 1")
		require.Contains(t, r.stderr, "lsiofs tune")
	}
	require.Equal(t, want, ok(t, "cat", data).stdout)
	require.Contains(t, ok(t, "tune", data, "--show").stdout, "default for ")
}

// Streams have the same bytes whatever the storage's profile is.
func TestProfilesDoNotChangeStreams(t *testing.T) {
	cache, data := ownCache(t), dataset(t)
	place, err := filesystem.Look(data)
	require.NoError(t, err)
	want := ok(t, "cat", data).stdout
	for _, p := range []storage.Profile{
		{GapBytes: 0, ReadBytes: 4 << 10, Depth: 1, InFlightBytes: 4 << 10, AlignBytes: 1},
		{GapBytes: 1 << 20, ReadBytes: 4 << 10, Depth: 128, InFlightBytes: 512 << 10, AlignBytes: 4 << 10},
		{GapBytes: 0, ReadBytes: 4 << 20, Depth: 1, InFlightBytes: 4 << 20, AlignBytes: 512},
		{GapBytes: 1 << 20, ReadBytes: 4 << 20, Depth: 128, InFlightBytes: 512 << 20, AlignBytes: 4 << 10},
	} {
		p.Kind, p.Tuned = place.Kind, time.Now()
		_, err := filesystem.SaveProfile(cache, filesystem.StoredProfile{Place: place, Profile: p})
		require.NoError(t, err)
		require.Contains(t, ok(t, "tune", data, "--show").stdout, "tuned")
		got := ok(t, "cat", data)
		require.Equal(t, "taken: shard-{000..007}.tar, 8 shards\n", got.stderr)
		require.True(t, want == got.stdout, "%v", p)
	}
}

func TestTuneReport(t *testing.T) {
	cache := ownCache(t)
	dir := t.TempDir()
	r, err := tuneQuickly(t, t.Context(), false, tune.Options{Path: dir, DryRun: true})
	require.NoError(t, err)
	for _, words := range []string{"GiB/s, reads", "of 128 KiB", "*", "at a time: so many small reads", "gaps of up to", "tuned "} {
		require.Contains(t, r.stdout, words)
	}
	require.NotContains(t, r.stdout, "stored as")
	require.NoDirExists(t, cache, "a dry run stores nothing")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestCancelledTuneLeavesNothing(t *testing.T) {
	cache := ownCache(t)
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := tuneQuickly(t, ctx, false, tune.Options{Path: dir})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, exit.Interrupted, exit.CodeOf(exit.OrInterrupted(ctx, err)))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
	require.NoDirExists(t, cache)
}

func TestTuneRefusesInvalidArguments(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		code exit.Code
		says string
	}{
		{[]string{"tune", dir, "--seconds", "0"}, exit.Usage, "--seconds (0) must be between"},
		{[]string{"tune", dir, "--seconds", "nan"}, exit.Usage, "--seconds (NaN)"},
		{[]string{"tune", dir, "--show", "--dry-run"}, exit.Usage, "can't be combined"},
		{[]string{"tune", filepath.Join(dir, "x")}, exit.Dataset, "does not exist"},
	} {
		r := lsiofs(t, c.args...)
		require.Equal(t, c.code, r.code, r.stderr)
		require.Contains(t, r.stderr, c.says)
	}
}
