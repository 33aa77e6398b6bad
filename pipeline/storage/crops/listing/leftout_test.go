package listing

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// Everything next to the stores that is not used is reported with the reason: a store without the
// array, with another one, without its documents, or with too few elements, and what is not a store
// at all.
func TestUnusedEntriesNextToStoresAreReported(t *testing.T) {
	dir := t.TempDir()
	group := func(store string, arrays ...string) {
		write(t, filepath.Join(dir, store, ".zgroup"), `{"zarr_format": 2}`)
		for _, a := range arrays {
			writeV2(t, filepath.Join(dir, store, a), ".", "0.0.0")
		}
	}
	group("2018.zarr", "v", "w")
	group("2019.zarr", "w")
	group("2020.zarr")
	group("deep/er/2021.zarr", "v")
	writeV2(t, filepath.Join(dir, "2022.zarr/v"), ".", "0.0.0")
	require.NoError(t, os.Remove(filepath.Join(dir, "2022.zarr/v/.zarray")))
	require.NoError(t, os.Remove(filepath.Join(dir, "2022.zarr/v/.zattrs")))
	group("2023.zarr")
	write(t, filepath.Join(dir, "2023.zarr/.zmetadata"), `{"zarr_consolidated_format": 1, "metadata": {"v/.zarray": `+zarray(".")+`}}`)
	group("2024.zarr", "v")
	write(t, filepath.Join(dir, "2024.zarr/v/.zarray"), strings.Replace(zarray("."), "[6, 4, 4]", "[1, 4, 4]", 1))
	write(t, filepath.Join(dir, "2025.zarr"), "a file")
	write(t, filepath.Join(dir, "2027.ZIP"), "a zip file")
	write(t, filepath.Join(dir, "deep/2028.zip"), "a zip file")
	write(t, filepath.Join(dir, "zips/2029.zip"), "a zip file")
	write(t, filepath.Join(dir, "zips/list.txt"), "a text")
	write(t, filepath.Join(dir, "2030.json"), "{}")
	write(t, filepath.Join(dir, "README"), "a text")
	write(t, filepath.Join(dir, "notes/2018.txt"), "nothing")
	write(t, filepath.Join(dir, "notes/2018.json"), "{}")
	write(t, filepath.Join(dir, "notes/old/2017.txt"), "nothing")
	write(t, filepath.Join(dir, "notes.old/2017.txt"), "nothing") // sorts between notes and its contents
	writeV3(t, filepath.Join(dir, "2026.zarr"), small, nil)       // an array itself

	plain := map[string]bool{}
	told := func(z spec.Zarr, match func(string, bool) bool) (cubes []string, out map[string]string) {
		out = map[string]string{}
		list, err := Find(t.Context(), Config{Under: openLocal(t, dir), Spec: z, Match: match, LeftOut: func(u Unused) {
			require.NotContains(t, out, u.Path, "told twice")
			out[u.Path], plain[u.Path] = u.Why, u.Plain
		}})
		require.NoError(t, err)
		for _, c := range list {
			cubes = append(cubes, c.Object.Path)
		}
		return cubes, out
	}
	const nothing = "neither it nor what is in it has a zarr.json, .zgroup or .zarray: files whose names begin with a dot may not have been copied"
	const zipFile = "it is a zip file, and these are read alone, or by a pattern of their own, such as *.zip"
	want := map[string]string{
		"2027.ZIP": zipFile, "deep/2028.zip": zipFile, "zips/2029.zip": zipFile, "zips/list.txt": "it is a file, not a directory", "README": "it is a file, not a directory",
		"2030.json": "it is a file; files of references are read alone, or by a pattern of their own, such as *.json",
		"2019.zarr": "it has no array v", "2020.zarr": "it has no array v", "2022.zarr": nothing,
		"2023.zarr": "it has no array v: 2023.zarr/.zmetadata has the array v, whose own document 2023.zarr/v/.zarray is missing: write it again, as it is there, or copy it from where the store was made",
		"2024.zarr": "there is no crop", "2025.zarr": "it is a file, not a directory", "2026.zarr": "it has no array v", "notes": nothing, "notes.old": nothing,
	}
	cubes, out := told(named("v"), nil)
	require.Equal(t, []string{"2018.zarr", "2024.zarr", "deep/er/2021.zarr"}, cubes)
	require.Contains(t, out["2024.zarr"], "t")
	want["2024.zarr"] = out["2024.zarr"] // the message of the cut
	require.Equal(t, want, out)
	for path := range out {
		require.Equal(t, path == "README" || path == "2030.json" || path == "zips/list.txt", plain[path], path)
	}

	cubes, out = told(named("v"), func(p string, isDir bool) bool {
		ok, _ := path.Match("20*.zarr", p)
		return ok && !isDir
	})
	require.Equal(t, []string{"2018.zarr", "2024.zarr"}, cubes)
	for _, path := range []string{"notes", "notes.old", "2027.ZIP", "deep/2028.zip", "zips/2029.zip", "zips/list.txt", "2030.json", "README"} {
		delete(want, path)
	}
	require.Equal(t, want, out)
}

// counted counts calls of Stat.
type counted struct {
	storage.Storage
	stats atomic.Int64
}

func (c *counted) Caps() storage.Caps { return storage.Caps{} }

func (c *counted) Stat(ctx context.Context, path string) (storage.Object, error) {
	c.stats.Add(1)
	return c.Storage.Stat(ctx, path)
}

// However many stores are left out, only for the first few requests are made to find out why.
func TestOnlyFirstFewOmittedStoresAreExplained(t *testing.T) {
	dir := t.TempDir()
	looks := func(stores int) int64 {
		for i := range stores {
			write(t, filepath.Join(dir, fmt.Sprintf("no/%03d.zarr/.zgroup", i)), `{"zarr_format": 2}`)
		}
		write(t, filepath.Join(dir, "yes.zarr/.zgroup"), `{"zarr_format": 2}`)
		writeV2(t, filepath.Join(dir, "yes.zarr/v"), ".", "0.0.0")
		under, left := &counted{Storage: openLocal(t, dir)}, 0
		_, err := Find(t.Context(), Config{Under: under, Spec: named("v"), LeftOut: func(u Unused) { left++; require.Equal(t, "it has no array v", u.Why) }})
		require.NoError(t, err)
		require.Equal(t, stores, left)
		return under.stats.Load()
	}
	few, more, most := looks(mostExplained), looks(2*mostExplained), looks(3*mostExplained)
	require.Equal(t, more-few, most-more)
	require.Greater(t, few, more-few, "each of the first takes more requests than each of the others")
}

// If no directory is a store, the error explains how to name files that may describe some.
func TestFilesThatMayBeStoresAreNamedIfThereIsNoStore(t *testing.T) {
	dir := t.TempDir()
	for _, step := range []struct{ file, says string }{
		{"notes.txt", "; name the directory of an array, or one that holds some"},
		{"b.json", "; there is b.json, perhaps a file of references: name it, or several such files by a pattern, such as *.json"},
		{"in/1.zip", "; there is in/1.zip, a zip file: name it, or several such files by a pattern, such as *.zip"},
		{"in/0.zip", "; there is in/0.zip, a zip file: name it, or several such files by a pattern, such as *.zip"},
	} {
		write(t, filepath.Join(dir, step.file), "x")
		require.Contains(t, refused(t, openLocal(t, dir), named("v")), "there is no Zarr store: no directory has a zarr.json, .zgroup or .zarray"+step.says)
	}
}

// A store that is read completely, and has nothing next to it, leaves nothing out.
func TestNothingIsLeftOutOfCompleteStores(t *testing.T) {
	dir := t.TempDir()
	for i := range 8 {
		writeV3(t, filepath.Join(dir, fmt.Sprintf("in/%d.zarr", i)), small, nil)
	}
	for _, at := range []string{dir, filepath.Join(dir, "in/0.zarr")} {
		_, err := Find(t.Context(), Config{Under: openLocal(t, at), Spec: crops, LeftOut: func(u Unused) { t.Errorf("%s: %s", u.Path, u.Why) }})
		require.NoError(t, err)
	}
}

// If a single store is meant, the error names the document that is missing.
func TestMissingDocumentIsNamed(t *testing.T) {
	for name, z := range map[string]spec.Zarr{"named": named("g/a"), "not named": crops} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, ".zgroup"), `{"zarr_format": 2}`)
			write(t, filepath.Join(dir, ".zmetadata"), `{"zarr_consolidated_format": 1, "metadata": {"g/.zgroup": {}, "g/a/.zarray": `+zarray("/")+`}}`)
			write(t, filepath.Join(dir, "g/a/0/0/0"), "x")
			text := refused(t, openLocal(t, dir), z)
			require.Contains(t, text, ".zmetadata has the array g/a, whose own document g/a/.zarray is missing")
			write(t, filepath.Join(dir, "zarr.json"), `{"zarr_format": 3, "node_type": "group", "consolidated_metadata": {"kind": "inline", "must_understand": false, "metadata": {"g/a": {"node_type": "array"}}}}`)
			text = refused(t, openLocal(t, dir), z)
			require.Contains(t, text, "zarr.json has the array g/a, whose own document g/a/zarr.json is missing")
		})
	}
}

// The objects of an array whose name begins with a dot can't be listed: this is reported before
// anything is read.
func TestArrayWithHiddenNameIsRefused(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, ".zgroup"), `{"zarr_format": 2}`)
	for _, at := range []string{".mask", "g/.x/mask"} {
		writeV2(t, filepath.Join(dir, at), ".", "0.0.0")
		require.Contains(t, refused(t, openLocal(t, dir), named(at)), "the array "+at+" has a name that begins with a dot, which listings pass over")
	}
	require.EqualValues(t, 1, findOne(t, filepath.Join(dir, ".mask"), crops).Fields[0].Present(), "as the dataset itself it is read")
}

func TestDocumentOfHierarchyIsFoundByPath(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "v2/.zgroup"), `{"zarr_format": 2}`)
	writeV2(t, filepath.Join(dir, "v2/a"), ".", "0.0.0")
	write(t, filepath.Join(dir, "v3/zarr.json"), groupV3)
	write(t, filepath.Join(dir, "none/x"), "x")
	under := openLocal(t, dir)
	for at, want := range map[string]string{"v2": "v2/.zgroup", "v2/a": "v2/a/.zarray", "v3": "v3/zarr.json", "none": "", "nothing": ""} {
		require.Equal(t, want, DocumentAt(t.Context(), under, at))
	}
}
