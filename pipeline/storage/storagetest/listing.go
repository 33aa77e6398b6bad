package storagetest

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

func everything(string, bool) bool { return true }

func list(t *testing.T, s storage.Storage, match func(string, bool) bool) map[string]storage.Object {
	found := make(map[string]storage.Object)
	require.NoError(t, s.List(t.Context(), match, func(o storage.Object) error {
		require.NotContains(t, found, o.Path, "an object is visited once")
		found[o.Path] = o
		return nil
	}))
	return found
}

func paths(objects map[string]storage.Object) []string {
	names := make([]string, 0, len(objects))
	for path := range objects {
		names = append(names, path)
	}
	return names
}

func testListFindsAll(t *testing.T, newStorage New) {
	files := contents()
	for _, hidden := range []string{".hidden", ".lsiofs/index", "deep/.cache/part", "deep/.part"} {
		files[hidden] = []byte("x")
	}
	found := list(t, open(t, newStorage, files), everything)
	require.Len(t, found, len(sizes))
	for path, size := range sizes {
		require.Contains(t, found, path)
		require.EqualValues(t, size, found[path].SizeBytes, path)
		require.Equal(t, path, found[path].Path)
	}
}

func testListMatches(t *testing.T, newStorage New) {
	s := open(t, newStorage, map[string][]byte{
		"a.tar": nil, "b.txt": nil, "in/c.tar": nil, "in/d.txt": nil, "in/side/e.tar": nil, "out/f.tar": nil, "out/side/g.tar": nil, ".h/i.tar": nil,
	})
	var asked sync.Map
	found := list(t, s, func(path string, isDir bool) bool {
		asked.Store(path, isDir)
		if isDir {
			return path != "out"
		}
		return strings.HasSuffix(path, ".tar")
	})
	require.ElementsMatch(t, []string{"a.tar", "in/c.tar", "in/side/e.tar"}, paths(found))
	for path, isDir := range map[string]bool{"in": true, "out": true, "in/side": true, "in/d.txt": false} {
		got, ok := asked.Load(path)
		require.True(t, ok, "match is asked about %s", path)
		require.Equal(t, isDir, got, path)
	}
	for _, path := range []string{"out/f.tar", "out/side", ".h", ".h/i.tar"} {
		_, ok := asked.Load(path)
		require.False(t, ok, "%s is not even looked at", path)
	}
}

func testListStops(t *testing.T, newStorage New) {
	s := open(t, newStorage, map[string][]byte{"a": nil, "b/c": nil, "d/e/f": nil})
	enough := errors.New("enough")
	visits := 0
	require.ErrorIs(t, s.List(t.Context(), everything, func(storage.Object) error { visits++; return enough }), enough)
	require.Equal(t, 1, visits)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := s.List(ctx, everything, func(storage.Object) error { return errors.New("visited") })
	require.ErrorIs(t, err, context.Canceled)
}

func testListEmpty(t *testing.T, newStorage New) {
	require.Empty(t, list(t, open(t, newStorage, nil), everything))
}

func testStat(t *testing.T, newStorage New) {
	s := open(t, newStorage, contents())
	for path, listed := range list(t, s, everything) {
		got, err := s.Stat(t.Context(), path)
		require.NoError(t, err)
		require.Equal(t, listed, got)
	}
}

func testStatMissing(t *testing.T, newStorage New) {
	s := open(t, newStorage, contents())
	for _, path := range []string{"nothing", "deep/nothing", "nothing/at/all", "deep"} {
		_, err := s.Stat(t.Context(), path)
		require.ErrorIs(t, err, fs.ErrNotExist, path)
		require.Contains(t, err.Error(), path)
	}
}
