// Package localtest opens a storage of real files, for tests of storages that wrap another one.
package localtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/uring"
)

// Open opens a storage with the given files, by path, which reads with pread. The caller closes it
// before the test ends.
func Open(t *testing.T, files map[string][]byte) storage.Storage {
	t.Helper()
	root := t.TempDir()
	for path, content := range files {
		full := filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o700))
		require.NoError(t, os.WriteFile(full, content, 0o600))
	}
	engine, err := uring.Open(uring.ModePread)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	s, err := local.Open(root, engine)
	require.NoError(t, err)
	return s
}
