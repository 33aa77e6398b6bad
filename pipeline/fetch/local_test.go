package fetch

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/faulty"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/uring"
)

// openStorage reads a dataset's files, and fails, holds or alters what a test
// says. It is closed when the test ends.
func openStorage(t testing.TB, dir string) *faulty.Storage {
	t.Helper()
	return faulty.New(openFiles(t, dir))
}

// openFiles is the storage alone, which can map.
func openFiles(t testing.TB, dir string) *local.Storage {
	t.Helper()
	engine, err := uring.Open(uring.ModePread)
	require.NoError(t, err)
	files, err := local.Open(dir, engine)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, files.Close())
		require.NoError(t, engine.Close())
	})
	return files
}

// listed is an object as the storage lists it.
func listed(t testing.TB, dir, path string) storage.Object {
	t.Helper()
	o, err := openStorage(t, dir).Stat(context.Background(), path)
	require.NoError(t, err)
	return o
}
