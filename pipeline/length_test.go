package pipeline

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
)

// An epoch that would take hours to lay out is refused before anything is computed that grows with
// its length, whatever made it so long; one that takes minutes gives a warning.
func TestOverlongEpochIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		spec func(t *testing.T) spec.Spec
		says string
	}{
		"a length that is a typing error": {func(t *testing.T) spec.Spec {
			s := mixSpec(t)
			s.Order.Length = 1_000_000_000_000
			return s
		}, "an epoch has a length of 1000000000000 (1,000,000,000,000) records, which would take 11h6m40s to lay out on one core: at most 68719476736 are supported: give a shorter --mix-length, or more even weights"},
		"weights that differ too much": {func(t *testing.T) spec.Spec {
			s := mixSpec(t)
			s.Mix.Length, s.Mix.Sources[0].Weight, s.Mix.Sources[1].Weight = spec.MixAll, 1, million(1_000_000)
			return s
		}, "more even weights"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(t.Context(), c.spec(t), Options{})
			require.ErrorContains(t, err, c.says)
		})
	}
	var said bytes.Buffer
	g := &generation{mount: &mount{log: slog.New(slog.NewTextHandler(&said, nil))}}
	require.NoError(t, g.checkLengthOf(longEpochRecords, "help"))
	require.Empty(t, said.String())
	require.NoError(t, g.checkLengthOf(maxEpochRecords, "help"))
	require.Contains(t, said.String(), "the epoch is long")
	require.ErrorContains(t, g.checkLengthOf(maxEpochRecords+1, "help"), "an epoch has a length of 68719476737 (68,719,476,737) records, which would take 45m49s to lay out on one core: at most 68719476736 are supported: help")
}

// The bound applies to the records that a split or sample selects; the whole dataset may have more,
// up to one bit each.
func TestEpochLengthCountsOnlySelection(t *testing.T) {
	require.NoError(t, checkWhole(maxSelected, "help"))
	require.EqualError(t, checkWhole(maxSelected+1, "help"), "the dataset has 274,877,906,945 records, and a --split or --sample chooses from 274877906944 at most: help")

	s := cropSpec(t, t.TempDir())
	writeCube(t, s.Dataset, 0, 20)
	records := open(t, s).Records()
	half := s
	half.Order.Split = spec.Split{Part: spec.Part{To: 500_000_000}, Seed: 1, By: spec.SplitByRecord}
	part := open(t, half).Records()
	require.Less(t, part, records)
	sampled := s
	sampled.Order.Sample = spec.Subsample{Of: 3}
	third := open(t, sampled).Records()
	for _, c := range []struct {
		spec    spec.Spec
		records uint64
	}{{s, records}, {half, part}, {sampled, third}} {
		d, err := Open(t.Context(), c.spec, Options{maxRecords: c.records})
		require.NoError(t, err)
		require.NoError(t, d.Close())
		_, err = Open(t.Context(), c.spec, Options{maxRecords: c.records - 1})
		require.ErrorContains(t, err, fmt.Sprintf("an epoch has a length of %d (%[1]d) records", c.records))
		require.ErrorContains(t, err, "a larger --crop or --stride, a --select, a --split, or --sample 1/N make it shorter")
	}

	lines, release := open(t, testSpec(t, makeLines(t))).acquire()
	defer release()
	require.Contains(t, lines.fewer(), "larger records")
}
