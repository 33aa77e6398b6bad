package profile

import (
	"os"
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

	p := Defaults(KindSSD)
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
		p := Defaults(k)
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
		p := Defaults(k)
		require.Equal(t, Pass{ReadBytes: 1 << 20, SkipBytes: 24 << 10, HeaderBytes: 4 << 10, InFlightBytes: 16 << 20}, p.Pass)
		require.Equal(t, Ahead{Bytes: 32 << 20, QueuedBytes: 64 << 20, FirstStretchBytes: 256 << 10, StretchBytes: 8 << 20, DecodeBytes: 128 << 10}, p.Ahead)
		require.Equal(t, 7, p.Pass.ShardsAtATime(7))
	}
	require.Equal(t, 32, Pass{Shards: 32}.ShardsAtATime(7))
}

func TestUnsetFieldsTakeDefaults(t *testing.T) {
	p := Profile{Kind: KindDisk, ReadBytes: 8 << 10, Pass: Pass{SkipBytes: 5}, Ahead: Ahead{DecodeBytes: 6}}
	want := Defaults(KindDisk)
	want.Pass.SkipBytes, want.Ahead.DecodeBytes = 5, 6
	require.Equal(t, want.Pass, p.Or().Pass)
	require.Equal(t, want.Ahead, p.Or().Ahead)
	require.EqualValues(t, 8<<10, p.Or().ReadBytes)
	require.Zero(t, p.Or().GapBytes, "what tune measures is taken as it is")
	require.Equal(t, p, p.Or().without())
}

// storedBefore is a file as it was written by programs without Pass and Ahead.
const storedBefore = `{
  "version": 1,
  "place": {"kind": "virtual", "file_system": "ext4", "device": "vda", "identity": "fsid ext4 1"},
  "profile": {"kind": "virtual", "gap_bytes": 24576, "read_bytes": 262144, "depth": 32, "in_flight_bytes": 2097152, "align_bytes": 4096, "tuned": "2026-11-21T11:00:00Z"},
  "measured": [{"read_bytes": 4096, "depth": 1, "bytes_per_second": 1000000}]
}`

func TestProfileStoredByEarlierVersionIsRead(t *testing.T) {
	s, err := Parse([]byte(storedBefore))
	require.NoError(t, err)
	d := Defaults(KindVirtual)
	require.Equal(t, Profile{Kind: KindVirtual, GapBytes: 24 << 10, ReadBytes: 256 << 10, Depth: 32, InFlightBytes: 2 << 20, AlignBytes: 4096,
		Pass: d.Pass, Ahead: d.Ahead, Tuned: time.Date(2026, 11, 21, 11, 0, 0, 0, time.UTC)}, s.Profile)
	text, err := s.marshal()
	require.NoError(t, err)
	require.JSONEq(t, storedBefore, string(text), "and an earlier one reads what this one stores")
	require.NotZero(t, s.Profile.Pass, "which leaves the profile as it is")

	s.Profile.Ahead.Bytes = 1 << 30
	text, err = s.marshal()
	require.NoError(t, err)
	require.Contains(t, string(text), `"ahead": {
      "bytes": 1073741824
    }`, "what is no default is stored")
	again, err := Parse(text)
	require.NoError(t, err)
	require.Equal(t, s, again)
}

func TestPossibleIsBestRateOfReadsOfSimilarSize(t *testing.T) {
	measured := []Cell{
		{ReadBytes: 64 << 10, Depth: 1, BytesPerSecond: 1e8}, {ReadBytes: 64 << 10, Depth: 8, BytesPerSecond: 4e8},
		{ReadBytes: 1 << 20, Depth: 1, BytesPerSecond: 9e8}, {ReadBytes: 1 << 20, Depth: 4, BytesPerSecond: 2e9},
		{ReadBytes: 4 << 10, Depth: 1, BytesPerSecond: 1e7},
	}
	for _, c := range []struct {
		readBytes float64
		want      float64
	}{{100 << 10, 4e8}, {64 << 10, 4e8}, {1 << 20, 2e9}, {9 << 20, 2e9}, {5000, 1e7}, {100, 1e7}} {
		require.Equal(t, c.want, Possible(measured, c.readBytes), c.readBytes)
	}
	require.Zero(t, Possible(nil, 1<<20))
}

func TestDatasetsOfOneEndpointShareProfile(t *testing.T) {
	for root, want := range map[string]string{
		"s3://bucket/a/b":              "endpoint s3://bucket",
		"s3://bucket":                  "endpoint s3://bucket",
		"s3+http://127.0.0.1:7070/b/x": "endpoint s3+http://127.0.0.1:7070",
		"https://host:8080/train":      "endpoint https://host:8080",
		"https://user:secret@host/x":   "",
		"https:///x":                   "",
		"/data/train":                  "",
	} {
		require.Equal(t, want, Endpoint(KindObject, root).Identity, root)
	}
	dir := t.TempDir()
	f := FindEndpointIn(dir, KindObject, "s3://bucket/a")
	require.Equal(t, Defaults(KindObject), f.Profile)
	require.NoError(t, f.Problem)

	p := Defaults(KindObject)
	p.Depth, p.Tuned = 77, time.Unix(1e9, 0).UTC()
	file, err := Save(dir, Stored{Place: f.Place, Profile: p, Cells: []Cell{{ReadBytes: 1 << 20, Depth: 16, BytesPerSecond: 1}}})
	require.NoError(t, err)
	f = FindEndpointIn(dir, KindObject, "s3://bucket/another")
	require.Equal(t, 77, f.Profile.Depth)
	require.Equal(t, file, f.File)
	require.Len(t, f.Cells, 1)
	require.Equal(t, 128, FindEndpointIn(dir, KindObject, "s3://bucket2/a").Profile.Depth)
	require.Equal(t, 128, FindEndpointIn("", KindObject, "s3://bucket/a").Profile.Depth)

	require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
	f = FindEndpointIn(dir, KindObject, "s3://bucket/a")
	require.ErrorContains(t, f.Problem, "is ignored")
	require.Equal(t, 128, f.Profile.Depth)
}
