package filter

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/uring"
)

// looks calls before at each look at a file.
type looks struct {
	storage.Storage
	before func(path string, look int)
	made   map[string]int
}

func (l looks) Stat(ctx context.Context, path string) (storage.Object, error) {
	l.made[path]++
	l.before(path, l.made[path])
	return l.Storage.Stat(ctx, path)
}

// A file that is closed while a run waits for others is filtered; one that is not closed is named.
// Not parallel: processes that other tests start have its files open until their exec.
func TestWriterAboutToCloseIsWaitedFor(t *testing.T) {
	dir := t.TempDir()
	open := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		require.NoError(t, err)
		return f
	}
	closes, stays := open("closes.txt"), open("stays.txt")
	defer func() { require.NoError(t, stays.Close()) }()
	engine, err := uring.Open(uring.ModePread)
	require.NoError(t, err)
	defer func() { require.NoError(t, engine.Close()) }()
	files, err := local.Open(dir, engine)
	require.NoError(t, err)
	defer func() { require.NoError(t, files.Close()) }()
	s := newSources(looks{files, func(path string, look int) {
		if path == "closes.txt" && look == 2 {
			require.NoError(t, closes.Close())
		}
	}, map[string]int{}}, dir, 0)
	require.NoError(t, s.list(t.Context(), func(string) bool { return false }))
	require.NoError(t, s.settle(t.Context()))
	n, one := s.unsettled()
	require.Equal(t, uint64(1), n)
	require.Equal(t, "stays.txt", one)
}
