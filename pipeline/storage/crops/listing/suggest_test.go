package listing

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func TestSuggestedFlagsFindAGrid(t *testing.T) {
	suggest := func(dir string) string {
		s, ok := Suggest(t.Context(), Config{Under: openLocal(t, dir)})
		require.Equal(t, ok, s.Flags != "")
		return s.Flags
	}
	dir := t.TempDir()
	require.Empty(t, suggest(dir))
	write(t, filepath.Join(dir, "a/x.txt"), "x")
	require.Empty(t, suggest(dir))
	writeV3(t, filepath.Join(dir, "x.zarr"), small, nil)
	require.Equal(t, "--crop t=4,y=4,x=4", suggest(dir))
	require.Equal(t, "--crop t=4,y=4,x=4", suggest(filepath.Join(dir, "x.zarr")))

	writeV2(t, filepath.Join(dir, "a/b"), ".")
	require.NoError(t, os.Remove(filepath.Join(dir, "a/b/.zattrs")))
	write(t, filepath.Join(dir, "a/.zgroup"), `{"zarr_format": 2}`)
	require.Equal(t, "--crop 4,4,4", suggest(dir), "of the first")
	flat := small
	flat.Shape, flat.Chunk, flat.Object, flat.Dims = []int64{6, 4}, []int64{2, 2}, []int64{2, 2}, []string{"t", "cell"}
	writeV3(t, filepath.Join(dir, "a/a"), flat, nil)
	writeV2(t, filepath.Join(dir, "a/c"), ".")
	require.Equal(t, "--array b --crop 4,4,4", suggest(dir), "of those with the most dimensions the first")
	write(t, filepath.Join(dir, "zarr.json"), groupV3)
	require.Equal(t, "--array a/b --crop 4,4,4", suggest(dir))

	got, ok := Suggest(t.Context(), Config{Under: openLocal(t, dir)})
	require.True(t, ok)
	require.Equal(t, []string{"a/a", "a/b", "a/c", "x.zarr"}, namesIn(got.Arrays), "where there are several, they are listed")
	got, ok = Suggest(t.Context(), Config{Under: openLocal(t, dir), Spec: spec.Zarr{Fields: []spec.Array{{Pattern: "a/a"}}}})
	require.True(t, ok)
	require.Equal(t, "--crop t=4,cell=4", got.Flags, "of the array that was named")
	got, ok = Suggest(t.Context(), Config{Under: openLocal(t, dir), Match: func(path string, isDir bool) bool { return path == "x.zarr" || isDir }})
	require.True(t, ok)
	require.Equal(t, Suggestion{Flags: "--crop t=4,y=4,x=4"}, got, "of what matches")

	dir = t.TempDir()
	write(t, filepath.Join(dir, "zarr.json"), groupV3)
	require.Equal(t, "--crop DIM=N,…", suggest(dir))
	write(t, filepath.Join(dir, "zarr.json"), "[")
	require.Equal(t, "--crop DIM=N,…", suggest(dir))
}

// namesIn returns the names of the arrays that lines describe.
func namesIn(lines string) (names []string) {
	for line := range strings.Lines(lines) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		names = append(names, name)
	}
	return names
}

// A request without the size of crops and without a selected region is refused: the error suggests
// what to type.
func TestErrorSuggestsCropIfNoneIsGiven(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "zarr.json"), groupV3)
	writeV3(t, filepath.Join(dir, "a"), small, nil)
	find := func(z spec.Zarr) error {
		_, err := Find(t.Context(), Config{Under: openLocal(t, dir), Spec: z, Base: "b.zarr"})
		return err
	}
	const needs = "--format zarr needs --crop: how many elements of each dimension a record has, as --crop t=4,y=4,x=4"
	require.EqualError(t, find(spec.Zarr{}), needs)
	writeV3(t, filepath.Join(dir, "b"), small, nil)
	require.ErrorContains(t, find(spec.Zarr{Fields: []spec.Array{{Pattern: "b"}}, Jitter: true}), needs+"; there are\n  a: t=")
	require.NoError(t, find(spec.Zarr{Fields: []spec.Array{{Pattern: "b"}}, Select: []spec.Selection{{Dim: "t", Begin: 0, End: 2}}}), "a region that is one crop")
	require.ErrorContains(t, find(spec.Zarr{Select: []spec.Selection{{Dim: "t", Begin: 0, End: 2}}}), "the hierarchy has 2 arrays with all dimensions of --select: choose with --array")
	require.ErrorContains(t, find(spec.Zarr{Select: []spec.Selection{{Dim: "day", Begin: 0, End: 2}}}), "the hierarchy has no array with all dimensions of --select")
	dir = t.TempDir()
	require.ErrorContains(t, find(spec.Zarr{}), "--format zarr needs --crop: how many elements of each dimension a record has, as --crop time=24,y=128,x=128")
}

// TestSuggestionsExamineBoundedNumberOfNames: most datasets are not hierarchies.
func TestSuggestionsExamineBoundedNumberOfNames(t *testing.T) {
	names, stats := 0, atomic.Int64{}
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
			stats.Add(1)
			return storage.Object{}, fmt.Errorf("%s: %w", path, os.ErrNotExist)
		},
	}
	_, ok := Suggest(t.Context(), Config{Under: under})
	require.False(t, ok)
	require.LessOrEqual(t, names, namesAmong)
	require.LessOrEqual(t, stats.Load(), int64(3*(firstAmong+1)))
}
