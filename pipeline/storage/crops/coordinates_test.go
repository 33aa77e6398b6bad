package crops

import (
	"bytes"
	"compress/gzip"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// The chunks of a coordinate are bounded like those of other arrays: if one claims 64 GiB, nothing
// is decoded.
func TestCoordinateOfHugeChunksIsRefused(t *testing.T) {
	dir := t.TempDir()
	put := func(path, text string) {
		path = filepath.Join(dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	put(".zgroup", `{"zarr_format":2}`)
	put("a/.zarray", `{"zarr_format":2,"shape":[4],"chunks":[2],"dtype":"<i2","compressor":null,"fill_value":0,"order":"C","filters":null}`)
	put("a/.zattrs", `{"_ARRAY_DIMENSIONS":["t"]}`)
	put("t/.zarray", `{"zarr_format":2,"shape":[4],"chunks":[8589934592],"dtype":"<i8","compressor":{"id":"gzip","level":1},"fill_value":0,"order":"C","filters":null}`)
	put("t/.zattrs", `{"_ARRAY_DIMENSIONS":["t"]}`)
	var stored bytes.Buffer
	z := gzip.NewWriter(&stored)
	_, err := z.Write(make([]byte, 32))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	put("t/0", stored.String())

	s := Wrap(openLocal(t, dir), Config{
		Spec: spec.Zarr{Fields: []spec.Array{{Pattern: "a"}}, Crop: []spec.DimValue{{Dim: "t", Value: 2}}}, Base: "g.zarr", MaxChunkBytes: 1 << 30,
	})
	defer func() { require.NoError(t, s.Close()) }()
	var found storage.Object
	require.NoError(t, s.List(context.Background(), func(string, bool) bool { return true }, func(o storage.Object) error { found = o; return nil }))
	c := s.Cube(found.Path)
	list, err := s.Coordinates(context.Background(), c)
	require.NoError(t, err)
	require.Len(t, list, 1)
	_, err = s.ReadCoordinate(context.Background(), c, list[0])
	require.ErrorContains(t, err, "array t has chunks of 64 GiB, more than the 1.0 GiB of --max-record")
}
