package listing

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
	"github.com/lsiofs/lsiofs/uring"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// openLocal opens a directory as a storage.
func openLocal(t testing.TB, dir string) storage.Storage {
	engine, err := uring.Open(uring.ModePread)
	require.NoError(t, err)
	under, err := local.OpenDirect(dir, engine, local.DirectOff)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, under.Close())
		require.NoError(t, engine.Close())
	})
	return under
}

// crops are of two elements along each of the dimensions t, y and x.
var crops = spec.Zarr{Crop: []spec.DimValue{{Dim: "t", Value: 2}, {Dim: "y", Value: 2}, {Dim: "x", Value: 2}}}

func named(paths ...string) spec.Zarr {
	z := crops
	for _, p := range paths {
		z.Fields = append(z.Fields, spec.Array{Pattern: p})
	}
	return z
}

func find(t testing.TB, under storage.Storage, z spec.Zarr) ([]*Grid, error) {
	return Find(t.Context(), Config{Under: under, Spec: z, Base: "base.zarr"})
}

// findOne returns the only cube of a directory.
func findOne(t testing.TB, dir string, z spec.Zarr) *Grid {
	list, err := find(t, openLocal(t, dir), z)
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

// refused returns the text of Find's error.
func refused(t testing.TB, under storage.Storage, z spec.Zarr) string {
	list, err := find(t, under, z)
	require.Error(t, err)
	require.Empty(t, list)
	return err.Error()
}

func write(t testing.TB, path, content string) {
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
}

// small has 3 by 2 by 2 objects.
var small = encode.Array{
	Shape: []int64{6, 4, 4}, Chunk: []int64{2, 2, 2}, Object: []int64{2, 2, 2}, Dims: []string{"t", "y", "x"}, DataType: "uint16", ItemBytes: 2,
}

// writeV3 writes an array without the objects for which has returns false; nil: all are written.
func writeV3(t testing.TB, dir string, a encode.Array, has func(place []int64) bool) {
	require.NoError(t, a.Write(dir, func(place []int64, b []byte) bool {
		clear(b)
		return has == nil || has(place)
	}))
}

// zarray returns the document of a version 2 array with the shape and objects of small.
func zarray(separator string) string {
	return fmt.Sprintf(`{"zarr_format": 2, "shape": [6, 4, 4], "chunks": [2, 2, 2], "dtype": "<u2", "compressor": null, "fill_value": 7,
"order": "C", "filters": null, "dimension_separator": %q}`, separator)
}

const zattrs = `{"_ARRAY_DIMENSIONS": ["t", "y", "x"]}`

// writeV2 writes a version 2 array with some objects.
func writeV2(t testing.TB, dir, separator string, objects ...string) {
	write(t, filepath.Join(dir, ".zarray"), zarray(separator))
	write(t, filepath.Join(dir, ".zattrs"), zattrs)
	b := binary.LittleEndian.AppendUint16(make([]byte, 14), 1)
	for _, name := range objects {
		write(t, filepath.Join(dir, name), string(b))
	}
}

const groupV3 = `{"zarr_format": 3, "node_type": "group"}`

// wrapped is a storage with some methods replaced.
type wrapped struct {
	storage.Storage
	list func(ctx context.Context, match func(string, bool) bool, visit func(storage.Object) error) error
	stat func(ctx context.Context, path string) (storage.Object, error)
}

func (w wrapped) Caps() storage.Caps { return storage.Caps{} }

func (w wrapped) List(ctx context.Context, match func(string, bool) bool, visit func(storage.Object) error) error {
	if w.list != nil {
		return w.list(ctx, match, visit)
	}
	return w.Storage.List(ctx, match, visit)
}

func (w wrapped) Stat(ctx context.Context, path string) (storage.Object, error) {
	if w.stat != nil {
		return w.stat(ctx, path)
	}
	return w.Storage.Stat(ctx, path)
}

// present returns the numbers of the existing objects of a small field.
func present(f *Field) (list []int64) {
	total := int64(1)
	for _, n := range f.counts {
		total *= n
	}
	for n := range total {
		if f.Has(n) {
			list = append(list, n)
		}
	}
	return list
}
