package profile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDefaultsOfAllKindsAreValid(t *testing.T) {
	for _, k := range Kinds {
		p := Defaults(k)
		require.NoError(t, p.Validate())
		require.Equal(t, k, p.Kind)
		require.Contains(t, p.String(), "default for "+string(k))
	}
	require.Equal(t, Defaults(KindUnknown), Defaults("punched cards"))
	require.Equal(t, Defaults(KindUnknown), Profile{}.Or())
	require.Equal(t, Defaults(KindDisk), Defaults(KindDisk).Or())
}

func TestProfilesSayWhatTheyAre(t *testing.T) {
	p := Profile{Kind: KindSSD, GapBytes: 12 << 10, ReadBytes: 256 << 10, Depth: 64, InFlightBytes: 8 << 20, AlignBytes: 4096,
		Tuned: time.Date(2026, 11, 21, 11, 0, 0, 0, time.UTC)}
	require.Equal(t, "ssd, tuned 2026-11-21: reads of up to 256 KiB, 64 or 8.0 MiB at a time, across gaps of up to 12 KiB", p.String())
}

func TestValidateNamesAllProblems(t *testing.T) {
	err := Profile{Kind: "x", GapBytes: -1, ReadBytes: 1, Depth: 0, AlignBytes: 3}.Validate()
	for _, words := range []string{`kind ("x")`, "gap_bytes (-1)", "read_bytes (1)", "depth (0)", "in_flight_bytes (0)", "align_bytes (3) must be a power of two"} {
		require.ErrorContains(t, err, words)
	}
	require.Error(t, Profile{}.Validate())
}
