package filesystem

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

var tuned = time.Date(2026, 11, 21, 11, 30, 0, 0, time.UTC)

func storedFor(p Place) StoredProfile {
	s := StoredProfile{Place: p, Profile: storage.Profile{Kind: p.Kind, GapBytes: 36 << 10, ReadBytes: 512 << 10, Depth: 64, InFlightBytes: 4 << 20, AlignBytes: 4096, Tuned: tuned}.Or()}
	s.Cells = []Measurement{{4096, 1, 1e6}, {1 << 20, 8, 2.5e9}}
	return s
}

// identified returns the place of a directory, or of /dev/shm if the directory's file system has no
// identity, such as the root of some containers.
func identified(t *testing.T, dir string) Place {
	p, err := Look(dir)
	require.NoError(t, err)
	if p.Identity == "" {
		dir = "/dev/shm"
		p, err = Look(dir)
		require.NoError(t, err)
		require.NotEmpty(t, p.Identity)
	}
	return p
}

func TestStoredProfileIsFound(t *testing.T) {
	data, dir := t.TempDir(), filepath.Join(t.TempDir(), "cache", "lsiofs")
	place := identified(t, data)
	before := FindProfileIn(dir, data)
	require.Equal(t, FoundProfile{Profile: storage.DefaultProfile(place.Kind), Place: place}, before)

	s := storedFor(place)
	file, err := SaveProfile(dir, s)
	require.NoError(t, err)
	found := FindProfileIn(dir, data)
	require.Equal(t, FoundProfile{Profile: s.Profile, Place: place, File: file, Cells: s.Cells}, found)
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	s.Profile.Depth = 7
	again, err := SaveProfile(dir, s)
	require.NoError(t, err)
	require.Equal(t, file, again)
	require.Equal(t, 7, FindProfileIn(dir, data).Profile.Depth)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing is left of writing")

	require.Equal(t, before, FindProfileIn("", data), "no directory")
}

func TestInvalidProfilesAreIgnoredWithReason(t *testing.T) {
	data := t.TempDir()
	place := identified(t, data)
	sound := storedFor(place)
	text, err := sound.marshal()
	require.NoError(t, err)
	edited := func(old, new string) []byte {
		require.Contains(t, string(text), old)
		return bytes.Replace(text, []byte(old), []byte(new), 1)
	}
	other := sound
	other.Place.Identity = "uuid 1234"
	foreign, err := other.marshal()
	require.NoError(t, err)
	moved := sound
	moved.Place.Kind, moved.Profile.Kind = storage.KindNetwork, storage.KindNetwork
	if place.Kind == storage.KindNetwork {
		moved.Place.Kind, moved.Profile.Kind = storage.KindSSD, storage.KindSSD
	}
	elsewhere, err := moved.marshal()
	require.NoError(t, err)
	for _, c := range []struct {
		name string
		text []byte
		says string
	}{
		{"empty", nil, "it is not a profile"},
		{"cut off", text[:len(text)/2], "it is not a profile"},
		{"text behind it", append(bytes.Clone(text), "{}"...), "text follows it"},
		{"another version", edited(`"version": 1`, `"version": 2`), "its version (2) is not 1"},
		{"a field of later", edited(`"version": 1`, `"version": 1, "colour": 3`), "unknown field"},
		{"a depth of none", edited(`"depth": 64`, `"depth": 0`), "depth (0) must be between"},
		{"a gap of petabytes", edited(`"gap_bytes": 36864`, `"gap_bytes": 1e15`), "gap_bytes"},
		{"not measured", edited(`"tuned": "2026-11-21T11:30:00Z"`, `"tuned": "0001-01-01T00:00:00Z"`), "no time of measurement"},
		{"two kinds", edited(`"kind": "`+string(place.Kind)+`"`, `"kind": "ssd2"`), "it is for ssd2 and for"},
		{"too large", append(bytes.Clone(text), bytes.Repeat([]byte(" "), maxStoredBytes)...), "more than the"},
		{"of another file system", foreign, `it is for the file system "uuid 1234", not`},
		{"of another kind of storage", elsewhere, "lies on " + string(place.Kind) + " now"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, fileName(place.Identity))
			require.NoError(t, os.WriteFile(file, c.text, 0o600))
			f := FindProfileIn(dir, data)
			require.ErrorContains(t, f.Problem, c.says)
			require.ErrorContains(t, f.Problem, file)
			require.ErrorContains(t, f.Problem, "measure again with lsiofs tune")
			require.Equal(t, storage.DefaultProfile(place.Kind), f.Profile)
			require.Empty(t, f.File)
		})
	}
	t.Run("a directory in its place", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(dir, fileName(place.Identity)), 0o700))
		require.ErrorContains(t, FindProfileIn(dir, data).Problem, "not a regular file")
	})
	t.Run("a dataset that is not there", func(t *testing.T) {
		f := FindProfileIn(t.TempDir(), filepath.Join(data, "missing"))
		require.Error(t, f.Problem)
		require.Equal(t, storage.DefaultProfile(storage.KindUnknown), f.Profile)
	})
}

func TestListingMarksInvalidProfiles(t *testing.T) {
	dir := t.TempDir()
	require.Empty(t, ListProfiles(dir, 10))
	require.Empty(t, ListProfiles(filepath.Join(dir, "missing"), 10))
	s := storedFor(Place{Kind: storage.KindDisk, FileSystem: "xfs", Identity: "uuid 1"})
	file, err := SaveProfile(dir, s)
	require.NoError(t, err)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "storage-zz.json"), text, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "something.index"), nil, 0o600))
	list := ListProfiles(dir, 10)
	require.Len(t, list, 2)
	require.NoError(t, list[0].Problem)
	require.Equal(t, s.Profile, list[0].Stored.Profile)
	require.ErrorContains(t, list[1].Problem, "another file system")
	require.Len(t, ListProfiles(dir, 1), 1)
}

func TestOnlyValidProfilesAreStored(t *testing.T) {
	dir := t.TempDir()
	s := storedFor(Place{Kind: storage.KindDisk})
	_, err := SaveProfile(dir, s)
	require.ErrorContains(t, err, "nothing tells this file system from others")
	s.Place.Identity, s.Profile.Depth = "x", -1
	_, err = SaveProfile(dir, s)
	require.ErrorContains(t, err, "depth (-1)")
	s.Profile.Depth = 1
	_, err = SaveProfile(filepath.Join("/proc", "lsiofs"), s)
	require.ErrorContains(t, err, "storage profile: ")
	s.Cells = make([]Measurement, maxCells+1)
	_, err = SaveProfile(dir, s)
	require.ErrorContains(t, err, "measurements")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func drawStored(t *rapid.T) StoredProfile {
	k := rapid.SampledFrom(storage.Kinds).Draw(t, "kind")
	s := storedFor(Place{Kind: k, Identity: rapid.StringN(1, 40, -1).Draw(t, "identity"), Device: rapid.String().Draw(t, "device")})
	s.Version = storedVersion
	p := &s.Profile
	p.AlignBytes = 1 << rapid.IntRange(0, 20).Draw(t, "align")
	p.ReadBytes = rapid.Int64Range(max(1, storage.MinReadBytes/p.AlignBytes), storage.MaxReadBytes/p.AlignBytes).Draw(t, "read") * p.AlignBytes
	p.GapBytes = rapid.Int64Range(0, storage.MaxGapBytes).Draw(t, "gap")
	p.Depth = rapid.IntRange(1, storage.MaxDepth).Draw(t, "depth")
	p.InFlightBytes = rapid.Int64Range(p.ReadBytes, storage.MaxInFlight).Draw(t, "in flight")
	if rapid.Bool().Draw(t, "all is set") {
		bytes := func(name string, low, high int64) int64 { return rapid.Int64Range(low, high).Draw(t, name) }
		p.Pass = storage.Pass{ReadBytes: bytes("pass", storage.MinReadBytes, storage.MaxReadBytes), SkipBytes: bytes("skip", 1, storage.MaxGapBytes),
			HeaderBytes: 1 << bytes("header", 10, 26), InFlightBytes: bytes("pass in flight", storage.MinReadBytes, storage.MaxInFlight), Shards: int(bytes("shards", 0, storage.MaxDepth))}
		p.Ahead = storage.Ahead{Bytes: bytes("ahead", storage.MinReadBytes, storage.MaxAheadBytes), QueuedBytes: bytes("queued", storage.MinReadBytes, 2*storage.MaxInFlight),
			StretchBytes: bytes("stretch", storage.MinReadBytes, storage.MaxReadBytes), DecodeBytes: bytes("decode", storage.MinReadBytes, storage.MaxReadBytes)}
		p.Ahead.FirstStretchBytes = bytes("first stretch", storage.MinReadBytes, p.Ahead.StretchBytes)
	}
	s.Cells = nil
	for range rapid.IntRange(0, 5).Draw(t, "cells") {
		s.Cells = append(s.Cells, Measurement{rapid.Int64().Draw(t, "size"), rapid.Int().Draw(t, "depth"), float64(rapid.Uint32().Draw(t, "rate"))})
	}
	return s
}

func TestStoredProfileRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawStored(t)
		text, err := s.marshal()
		require.NoError(t, err)
		read, err := ParseProfile(text)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(s), fmt.Sprint(read))
	})
}

func FuzzParse(f *testing.F) {
	s := storedFor(Place{Kind: storage.KindVirtual, FileSystem: "ext4", Device: "vda", Identity: "fsid ext4 1"})
	text, err := s.marshal()
	require.NoError(f, err)
	f.Add(text)
	f.Add(text[:len(text)-3])
	f.Add([]byte(`{"version":1,"place":{"kind":"ssd","identity":"x"},"profile":{"kind":"ssd","read_bytes":1e308},"measured":[{"read_bytes":-1}]}`))
	f.Add([]byte(`[]`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := ParseProfile(text)
		if err != nil {
			require.Equal(t, StoredProfile{}, s)
			return
		}
		require.NoError(t, s.Profile.Validate())
		require.LessOrEqual(t, len(s.Cells), maxCells)
		again, err := s.marshal()
		if err != nil {
			return // a short text may become long when it is indented
		}
		read, err := ParseProfile(again)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(s), fmt.Sprint(read))
	})
}

// storedBefore is a file as it was written by programs without storage.Pass and storage.Ahead.
const storedBefore = `{
  "version": 1,
  "place": {"kind": "virtual", "file_system": "ext4", "device": "vda", "identity": "fsid ext4 1"},
  "profile": {"kind": "virtual", "gap_bytes": 24576, "read_bytes": 262144, "depth": 32, "in_flight_bytes": 2097152, "align_bytes": 4096, "tuned": "2026-11-21T11:00:00Z"},
  "measured": [{"read_bytes": 4096, "depth": 1, "bytes_per_second": 1000000}]
}`

func TestProfileStoredByEarlierVersionIsRead(t *testing.T) {
	s, err := ParseProfile([]byte(storedBefore))
	require.NoError(t, err)
	d := storage.DefaultProfile(storage.KindVirtual)
	require.Equal(t, storage.Profile{Kind: storage.KindVirtual, GapBytes: 24 << 10, ReadBytes: 256 << 10, Depth: 32, InFlightBytes: 2 << 20, AlignBytes: 4096,
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
	again, err := ParseProfile(text)
	require.NoError(t, err)
	require.Equal(t, s, again)
}

func TestPossibleIsBestRateOfReadsOfSimilarSize(t *testing.T) {
	measured := []Measurement{
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
		require.Equal(t, want, Endpoint(storage.KindObject, root).Identity, root)
	}
	dir := t.TempDir()
	f := FindEndpointProfileIn(dir, storage.KindObject, "s3://bucket/a")
	require.Equal(t, storage.DefaultProfile(storage.KindObject), f.Profile)
	require.NoError(t, f.Problem)

	p := storage.DefaultProfile(storage.KindObject)
	p.Depth, p.Tuned = 77, time.Unix(1e9, 0).UTC()
	file, err := SaveProfile(dir, StoredProfile{Place: f.Place, Profile: p, Cells: []Measurement{{ReadBytes: 1 << 20, Depth: 16, BytesPerSecond: 1}}})
	require.NoError(t, err)
	f = FindEndpointProfileIn(dir, storage.KindObject, "s3://bucket/another")
	require.Equal(t, 77, f.Profile.Depth)
	require.Equal(t, file, f.File)
	require.Len(t, f.Cells, 1)
	require.Equal(t, 128, FindEndpointProfileIn(dir, storage.KindObject, "s3://bucket2/a").Profile.Depth)
	require.Equal(t, 128, FindEndpointProfileIn("", storage.KindObject, "s3://bucket/a").Profile.Depth)

	require.NoError(t, os.WriteFile(file, []byte("{"), 0o600))
	f = FindEndpointProfileIn(dir, storage.KindObject, "s3://bucket/a")
	require.ErrorContains(t, f.Problem, "is ignored")
	require.Equal(t, 128, f.Profile.Depth)
}
