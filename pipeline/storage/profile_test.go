package storage

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDefaultsOfAllKindsAreValid(t *testing.T) {
	for _, k := range Kinds {
		p := DefaultProfile(k)
		require.NoError(t, p.Validate())
		require.Equal(t, k, p.Kind)
		require.Contains(t, p.String(), "default for "+string(k))
	}
	require.Equal(t, DefaultProfile(KindUnknown), DefaultProfile("punched cards"))
	require.Equal(t, DefaultProfile(KindUnknown), Profile{}.Or())
	require.Equal(t, DefaultProfile(KindDisk), DefaultProfile(KindDisk).Or())
}

func TestProfilesDescribeThemselves(t *testing.T) {
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

	p := DefaultProfile(KindSSD)
	p.Pass, p.Ahead = Pass{ReadBytes: 1, SkipBytes: -1, HeaderBytes: 3000, InFlightBytes: 1 << 40, Shards: -1}, Ahead{Bytes: 1, QueuedBytes: 1 << 40, FirstStretchBytes: 2 << 20, StretchBytes: 1 << 20}
	err = p.Validate()
	for _, words := range []string{"pass.read_bytes (1)", "pass.skip_bytes (-1)", "pass.header_bytes (3000) must be a power of two", "pass.in_flight_bytes (1099511627776)", "pass.shards (-1)",
		"ahead.bytes (1)", "ahead.queued_bytes (1099511627776)", "ahead.first_stretch_bytes (2097152) must be between 4096 and 1048576", "ahead.decode_bytes (0)"} {
		require.ErrorContains(t, err, words)
	}
}

// Services get many requests at a time, long before the data is needed.
func TestServiceDefaults(t *testing.T) {
	for _, k := range []Kind{KindObject, KindWeb} {
		p := DefaultProfile(k)
		require.Equal(t, Profile{Kind: k, GapBytes: 128 << 10, ReadBytes: 8 << 20, Depth: 128, InFlightBytes: 256 << 20, AlignBytes: 4 << 10, Pass: p.Pass, Ahead: p.Ahead}, p)
		require.Equal(t, 32, p.Pass.ShardsAtATime(2))
		require.EqualValues(t, 1<<20, p.Pass.SkipBytes)
		require.EqualValues(t, 64<<10, p.Pass.HeaderBytes)
		require.EqualValues(t, 128<<20, p.Ahead.Bytes)
	}
}

// Passes and reading ahead have the same defaults for all file systems.
func TestDefaultsOfPassesAndPrefetching(t *testing.T) {
	for _, k := range []Kind{KindDisk, KindSSD, KindVirtual, KindMemory, KindNetwork, KindUnknown} {
		p := DefaultProfile(k)
		require.Equal(t, Pass{ReadBytes: 1 << 20, SkipBytes: 24 << 10, HeaderBytes: 4 << 10, InFlightBytes: 16 << 20}, p.Pass)
		require.Equal(t, Ahead{Bytes: 32 << 20, QueuedBytes: 64 << 20, FirstStretchBytes: 256 << 10, StretchBytes: 8 << 20, DecodeBytes: 128 << 10}, p.Ahead)
		require.Equal(t, 7, p.Pass.ShardsAtATime(7))
	}
	require.Equal(t, 32, Pass{Shards: 32}.ShardsAtATime(7))
}

func TestUnsetFieldsTakeDefaults(t *testing.T) {
	p := Profile{Kind: KindDisk, ReadBytes: 8 << 10, Pass: Pass{SkipBytes: 5}, Ahead: Ahead{DecodeBytes: 6}}
	want := DefaultProfile(KindDisk)
	want.Pass.SkipBytes, want.Ahead.DecodeBytes = 5, 6
	require.Equal(t, want.Pass, p.Or().Pass)
	require.Equal(t, want.Ahead, p.Or().Ahead)
	require.EqualValues(t, 8<<10, p.Or().ReadBytes)
	require.Zero(t, p.Or().GapBytes, "what tune measures is taken as it is")
	require.Equal(t, p, p.Or().WithoutDefaults())
}
