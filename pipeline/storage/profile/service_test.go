package profile

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
