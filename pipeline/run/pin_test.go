package run

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func pinnedInfo() Info {
	i := games
	i.Run, i.Made = strings.Repeat("ab", 16), "2026-11-21T22:30:00Z"
	return i
}

// A checkpoint continues in a new directory: with its run, from its epoch on.
func TestPinnedRunContinuesFromItsEpoch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new")
	for range 2 { // a second time changes nothing
		d, err := Pin(path, pinnedInfo(), epochOf(7), textOf(7))
		require.NoError(t, err)
		require.Equal(t, pinnedInfo().Run, d.Info().Run)
		latest, err := d.Latest()
		require.NoError(t, err)
		require.EqualValues(t, 7, latest)
	}
	d := opened(t, path)
	_, err := d.Epoch(6)
	require.ErrorIs(t, err, fs.ErrNotExist)
	took, err := d.Take(epochOf(8), textOf(8))
	require.NoError(t, err)
	require.Equal(t, pinnedInfo().Run, took.Run)
	numbers, err := d.Numbers()
	require.NoError(t, err)
	require.Equal(t, []uint64{7, 8}, numbers)
	kept, err := d.Kept()
	require.NoError(t, err)
	require.ElementsMatch(t, []string{Fingerprint(textOf(7)), Fingerprint(textOf(8))}, kept)
}

func TestPinningDoesNotReplaceOtherRunsOrSnapshots(t *testing.T) {
	path := t.TempDir()
	opened(t, path)
	_, err := Pin(path, pinnedInfo(), epochOf(7), textOf(7))
	require.ErrorContains(t, err, "name a directory that has none with --run")
	path = t.TempDir()
	_, err = Pin(path, pinnedInfo(), epochOf(7), textOf(7))
	require.NoError(t, err)
	_, err = Pin(path, pinnedInfo(), epochOf(7), textOf(6))
	require.ErrorContains(t, err, "name the snapshot of the checkpoint")
	other := pinnedInfo()
	other.Kind = "V7"
	_, err = Pin(path, other, epochOf(7), textOf(7))
	require.ErrorContains(t, err, `its kind is "V6"`)
}

// Whichever call fails, the directory has no run yet, or a complete one.
func TestAnyCallOfPinningMayFail(t *testing.T) {
	for k := 0; ; k++ {
		path := t.TempDir()
		f := &failing{at: k}
		_, err := pin(path, pinnedInfo(), epochOf(7), textOf(7), f)
		if f.calls <= k {
			require.NoError(t, err)
			require.Greater(t, k, 8)
			return
		}
		if err == nil {
			continue // it did not matter
		}
		if !errors.Is(err, errBroken) {
			t.Fatal(err)
		}
		d, err := Pin(path, pinnedInfo(), epochOf(7), textOf(7))
		require.NoError(t, err)
		_, err = d.Snapshot(Fingerprint(textOf(7)))
		require.NoError(t, err)
		latest, err := d.Latest()
		require.NoError(t, err)
		require.EqualValues(t, 7, latest)
	}
}
