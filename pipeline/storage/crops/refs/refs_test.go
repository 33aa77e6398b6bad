package refs

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/pipeline/storage/storagetest"
	"github.com/lsiofs/lsiofs/uring"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// over opens the hierarchies that files of a directory describe.
func over(t testing.TB, dir string, c Config) *Storage {
	engine, err := uring.Open(uring.ModePread)
	require.NoError(t, err)
	under, err := local.OpenDirect(dir, engine, local.DirectOff)
	require.NoError(t, err)
	s := Wrap(under, c)
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, engine.Close())
	})
	return s
}

// writeReferences writes x.json, which holds small objects itself, and two files that it refers to.
func writeReferences(t testing.TB, dir string, files map[string][]byte) {
	refs := map[string]any{}
	data := []byte("before")
	for i, path := range slices.Sorted(maps.Keys(files)) {
		b := files[path]
		switch {
		case len(b) < 100 && i%2 == 0:
			refs[path] = "base64:" + base64.StdEncoding.EncodeToString(b)
		case len(b) > 1<<20:
			require.NoError(t, os.MkdirAll(filepath.Join(dir, "deep"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "deep", "whole.bin"), b, 0o644))
			refs[path] = []any{"{{d}}/whole.bin"}
		default:
			refs[path] = []any{"data.nc", len(data), len(b)}
			data = append(append(data, b...), "between"...)
		}
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "data.nc"), data, 0o644))
	writeJSON(t, dir, map[string]any{"version": 1, "templates": map[string]string{"d": "deep"}, "refs": refs})
}

func writeJSON(t testing.TB, dir string, document any) {
	b, err := json.Marshal(document)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x.json"), b, 0o644))
}

// writeZip writes x.zip with uncompressed members.
func writeZip(t testing.TB, dir string, files map[string][]byte) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, path := range slices.Sorted(maps.Keys(files)) {
		m, err := w.CreateHeader(&zip.FileHeader{Name: path, Method: zip.Store})
		require.NoError(t, err)
		_, err = m.Write(files[path])
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x.zip"), b.Bytes(), 0o644))
}

// rooted presents a directory of a storage as the root.
type rooted struct {
	*Storage
	in string
}

func (r rooted) out(o storage.Object) storage.Object {
	o.Path = strings.TrimPrefix(o.Path, r.in+"/")
	return o
}

func (r rooted) List(ctx context.Context, match func(string, bool) bool, visit func(storage.Object) error) error {
	return r.Storage.List(ctx, func(path string, isDir bool) bool {
		return path == "." || path == r.in || match(strings.TrimPrefix(path, r.in+"/"), isDir)
	}, func(o storage.Object) error { return visit(r.out(o)) })
}

func (r rooted) Stat(ctx context.Context, path string) (storage.Object, error) {
	o, err := r.Storage.Stat(ctx, r.in+"/"+path)
	return r.out(o), err
}

func (r rooted) Submit(reads []*storage.Read) {
	inner := make([]*storage.Read, len(reads))
	for i, x := range reads {
		done, y := x.Done, *x
		y.Object.Path = r.in + "/" + y.Object.Path
		y.Done = func(err error) {
			if e, ok := errors.AsType[*storage.Error](err); ok {
				e.Object = strings.TrimPrefix(e.Object, r.in+"/")
			}
			done(err)
		}
		inner[i] = &y
	}
	r.Storage.Submit(inner)
}

func TestReferencesPassCapabilitiesOn(t *testing.T) {
	storagetest.RunWrapper(t, func(_ *testing.T, below storage.Storage) storage.Storage {
		return Wrap(below, Config{One: "x.json"})
	}, map[string]storagetest.Passing{
		"Omitted":       storagetest.Passed,
		"Status":        storagetest.Passed,
		"AdjustProfile": storagetest.Passed,
		"StatStable":    storagetest.Own,
		"OpenResident":  storagetest.Own,
		"HeldBytes":     storagetest.Own,
	})
}

func TestReferencesAreAStorage(t *testing.T) {
	storagetest.Run(t, func(t *testing.T, files map[string][]byte) storage.Storage {
		dir := t.TempDir()
		writeReferences(t, dir, files)
		return rooted{over(t, dir, Config{One: "x.json"}), "x.json"}
	})
}

func TestZipFileIsAStorage(t *testing.T) {
	storagetest.Run(t, func(t *testing.T, files map[string][]byte) storage.Storage {
		dir := t.TempDir()
		writeZip(t, dir, files)
		return rooted{over(t, dir, Config{Match: func(path string, _ bool) bool { return path == "x.zip" }}), "x.zip"}
	})
}

func everything(string, bool) bool { return true }

// listed returns everything that a storage lists.
func listed(t testing.TB, s *Storage) map[string]storage.Object {
	found := map[string]storage.Object{}
	require.NoError(t, s.List(t.Context(), everything, func(o storage.Object) error { found[o.Path] = o; return nil }))
	return found
}

func bytesOf(t testing.TB, s *Storage, o storage.Object) ([]byte, error) {
	b := make([]byte, o.SizeBytes)
	return b, storage.ReadAt(t.Context(), s, o, b, 0)
}

func TestRewrittenFileIsAnErrorForItsObjects(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	write("a.nc", "0123456789")
	write("b.nc", "abcdefghij")
	writeJSON(t, dir, map[string]any{"a/0": []any{"a.nc", 2, 3}, "a/1": []any{"b.nc", 2, 3}, "a/2": "own"})
	s := over(t, dir, Config{One: "x.json"})
	before := listed(t, s)
	require.Len(t, before, 3)
	write("a.nc", "987654321")
	_, err := bytesOf(t, s, before["x.json/a/0"])
	require.ErrorIs(t, err, storage.ErrChanged)
	for path, want := range map[string]string{"x.json/a/1": "cde", "x.json/a/2": "own"} {
		b, err := bytesOf(t, s, before[path])
		require.NoError(t, err)
		require.Equal(t, want, string(b))
	}
	now, err := s.Stat(t.Context(), "x.json/a/0")
	require.NoError(t, err)
	require.NotEqual(t, before["x.json/a/0"].Version, now.Version)
	_, err = bytesOf(t, s, before["x.json/a/0"])
	require.ErrorIs(t, err, storage.ErrChanged, "it is no more what it was listed as")

	require.NoError(t, os.Remove(filepath.Join(dir, "a.nc")))
	_, err = s.Stat(t.Context(), "x.json/a/0")
	require.NotErrorIs(t, err, fs.ErrNotExist, "nobody may take it for absent")
	require.ErrorContains(t, err, "x.json/a/0: the file a.nc, which it refers to, is not there")
	require.ErrorContains(t, s.List(t.Context(), everything, func(storage.Object) error { return nil }), "a.nc")
}

func TestRewrittenReferenceFileIsAnErrorForChangedObjects(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.nc"), []byte("0123456789"), 0o644))
	writeJSON(t, dir, map[string]any{"a/0": []any{"a.nc", 2, 3}, "a/1": []any{"a.nc", 2, 3}, "a/2": "own", "a/3": "other"})
	s := over(t, dir, Config{One: "x.json"})
	before := listed(t, s)
	writeJSON(t, dir, map[string]any{"a/0": []any{"a.nc", 2, 3}, "a/1": []any{"a.nc", 3, 3}, "a/2": "own", "a/3": "OTHER", "a/4": "new"})
	_, err := s.Stat(t.Context(), "x.json/a/4")
	require.NoError(t, err, "it was looked at, and is there")
	for _, path := range []string{"x.json/a/0", "x.json/a/2"} {
		_, err := bytesOf(t, s, before[path])
		require.NoError(t, err)
	}
	for _, path := range []string{"x.json/a/1", "x.json/a/3"} {
		_, err := bytesOf(t, s, before[path])
		require.ErrorIs(t, err, storage.ErrChanged, path)
	}
}

// A directory that does not match is not looked at: the files of its objects may be missing.
func TestFilesOfUnwantedObjectsAreNotChecked(t *testing.T) {
	dir := t.TempDir()
	writeJSON(t, dir, map[string]any{"a/0": "x", "b/0": []any{"gone.nc", 0, 1}, "b-c/0": "y"})
	var found []string
	var asked []string
	s := over(t, dir, Config{One: "x.json"})
	require.NoError(t, s.List(t.Context(), func(path string, isDir bool) bool {
		asked = append(asked, path)
		return path != "x.json/b"
	}, func(o storage.Object) error { found = append(found, o.Path); return nil }))
	require.Equal(t, []string{"x.json/a/0", "x.json/b-c/0"}, found)
	require.Equal(t, []string{".", "x.json", "x.json/a", "x.json/a/0", "x.json/b-c", "x.json/b-c/0", "x.json/b"}, asked)
}

// Bytes in memory are read from there, and none outside an object.
func TestObjectsAreReadFromMemoryWithinTheirRanges(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.nc"), []byte("0123456789"), 0o644))
	writeJSON(t, dir, map[string]any{"a/0": []any{"a.nc", 2, 3}, "a/1": "own", "a/2": []any{"a.nc"}})
	s := over(t, dir, Config{One: "x.json"})
	for path, o := range listed(t, s) {
		r, err := s.OpenResident(o)
		require.NoError(t, err)
		b := make([]byte, o.SizeBytes)
		require.True(t, r.ReadAt(b, 0), "%s was written just now", path)
		want, err := bytesOf(t, s, o)
		require.NoError(t, err)
		require.Equal(t, string(want), string(b))
		require.False(t, r.ReadAt(b, 1))
		require.False(t, r.ReadAt(b, -1))
		require.False(t, r.Holds(0, o.SizeBytes+1))
		require.NoError(t, r.Unchanged())
		require.NoError(t, r.Close())
		o.Version.ModTimeNanos++
		_, err = s.OpenResident(o)
		require.ErrorIs(t, err, storage.ErrChanged)
	}
}

// Files stay open for other objects in them, but not after they have changed.
func TestFileStaysOpenForAllItsObjects(t *testing.T) {
	dir := t.TempDir()
	references := map[string]any{}
	for i := range maxIdle + 5 {
		name := fmt.Sprintf("%d.nc", i)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("0123456789"), 0o644))
		references[fmt.Sprintf("a/%d", i)] = []any{name, 1, 2}
		references[fmt.Sprintf("b/%d", i)] = []any{name, 5, 2}
	}
	writeJSON(t, dir, references)
	s := over(t, dir, Config{One: "x.json"})
	objects := listed(t, s)
	text := func(path string) (string, error) {
		r, err := s.OpenResident(objects[path])
		if err != nil {
			return "", err
		}
		b := make([]byte, 2)
		require.True(t, r.ReadAt(b, 0))
		err = r.Unchanged()
		require.NoError(t, r.Close())
		return string(b), err
	}
	for i := range maxIdle + 5 {
		got, err := text(fmt.Sprintf("x.json/a/%d", i))
		require.NoError(t, err)
		require.Equal(t, "12", got)
	}
	require.Len(t, s.idle.list, maxIdle)
	last := fmt.Sprintf("x.json/b/%d", maxIdle+4)
	got, err := text(last)
	require.NoError(t, err)
	require.Equal(t, "56", got)
	require.Len(t, s.idle.list, maxIdle)
	require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.nc", maxIdle+4)), []byte("9876543210x"), 0o644))
	_, err = text(last)
	require.ErrorIs(t, err, storage.ErrChanged)
	require.Len(t, s.idle.list, maxIdle-1)
	_, err = text(last)
	require.ErrorIs(t, err, storage.ErrChanged, "when it is opened")
	require.NoError(t, s.Close())
	require.Empty(t, s.idle.list)
}

func TestOnlyDatasetFilesAreDirectories(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.json", i)), []byte(`{"a/0": "x"}`), 0o644))
	}
	s := over(t, dir, Config{Match: func(path string, isDir bool) bool { return path != "1.json" }})
	require.ElementsMatch(t, []string{"0.json/a/0", "2.json/a/0"}, slices.Collect(maps.Keys(listed(t, s))))
	_, err := s.Stat(t.Context(), "1.json/a/0")
	require.ErrorIs(t, err, fs.ErrNotExist)
}
