package listing

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func TestSuggestionsAreFlagsThatFindACube(t *testing.T) {
	suggest := func(dir string) string {
		flags, ok := Suggest(t.Context(), openLocal(t, dir), func(string, bool) bool { return true })
		require.Equal(t, ok, flags != "")
		return flags
	}
	dir := t.TempDir()
	require.Empty(t, suggest(dir))
	write(t, filepath.Join(dir, "a/x.txt"), "x")
	require.Empty(t, suggest(dir))
	writeV3(t, filepath.Join(dir, "x.zarr"), small, nil)
	require.Equal(t, "--format zarr --crop t=4,y=4,x=4", suggest(dir))
	require.Equal(t, "--format zarr --crop t=4,y=4,x=4", suggest(filepath.Join(dir, "x.zarr")))

	writeV2(t, filepath.Join(dir, "a/b"), ".")
	require.NoError(t, os.Remove(filepath.Join(dir, "a/b/.zattrs")))
	write(t, filepath.Join(dir, "a/.zgroup"), `{"zarr_format": 2}`)
	require.Equal(t, "--format zarr --crop 4,4,4", suggest(dir), "of the first")
	flat := small
	flat.Shape, flat.Brick, flat.Object, flat.Dims = []int64{6, 4}, []int64{2, 2}, []int64{2, 2}, []string{"t", "cell"}
	writeV3(t, filepath.Join(dir, "a/a"), flat, nil)
	writeV2(t, filepath.Join(dir, "a/c"), ".")
	require.Equal(t, "--format zarr --array b --crop 4,4,4", suggest(dir), "of those with the most dimensions the first")
	write(t, filepath.Join(dir, "zarr.json"), groupV3)
	require.Equal(t, "--format zarr --array a/b --crop 4,4,4", suggest(dir))

	dir = t.TempDir()
	write(t, filepath.Join(dir, "zarr.json"), groupV3)
	require.Equal(t, "--format zarr --crop DIM=N,…", suggest(dir))
	write(t, filepath.Join(dir, "zarr.json"), "[")
	require.Equal(t, "--format zarr --crop DIM=N,…", suggest(dir))
}

// TestSuggestionsLookAtABoundedNumberOfNames: most datasets are no hierarchies.
func TestSuggestionsLookAtABoundedNumberOfNames(t *testing.T) {
	names, stats := 0, 0
	under := wrapped{
		Storage: openLocal(t, t.TempDir()),
		list: func(_ context.Context, match func(string, bool) bool, visit func(storage.Object) error) error {
			for i := range 1_000_000 {
				names++
				match(fmt.Sprint(i), true)
				if o := fmt.Sprint(i, ".jpg"); match(o, false) {
					if err := visit(storage.Object{Path: o}); err != nil {
						return err
					}
				}
			}
			return nil
		},
		stat: func(_ context.Context, path string) (storage.Object, error) {
			stats++
			return storage.Object{}, fmt.Errorf("%s: %w", path, os.ErrNotExist)
		},
	}
	_, ok := Suggest(t.Context(), under, func(string, bool) bool { return true })
	require.False(t, ok)
	require.LessOrEqual(t, names, namesAmong)
	require.LessOrEqual(t, stats, 3*(firstAmong+1))
}
