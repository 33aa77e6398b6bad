package web

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/integration/servers"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/target"
	"github.com/lsiofs/lsiofs/pipeline/storage/storagetest"
)

// engine returns a storage of named files in a server's root.
func engine(t *testing.T, url string, names ...string) *remote.Storage {
	w := parse(t, url+"/any.tar")
	w.Names = nil
	for _, name := range names {
		w.Names = append(w.Names, target.Name{Path: name, Raw: target.Escape(name), SizeBytes: -1})
	}
	source, err := Open(t.Context(), w, Options{Transport: transport(t, Settings{})})
	require.NoError(t, err)
	config := remote.DefaultConfig()
	config.Hedge = true
	s, err := remote.New(named{source, len(names)}, config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// named is a source that may have no named files: then it lists nothing.
type named struct {
	*Source
	names int
}

func (n named) List(ctx context.Context, page string, visit func(remote.Listed) error) ([]string, error) {
	if n.names == 0 {
		return nil, ctx.Err()
	}
	return n.Source.List(ctx, page, visit)
}

// Runs the suite of all storages with ETags, with dates, and without ranges.
func TestStorageOnNginx(t *testing.T) {
	for name, settings := range map[string]string{"ETags": "", "dates": "etag off;", "no ranges": "max_ranges 0;"} {
		t.Run(name, func(t *testing.T) {
			storagetest.Run(t, func(t *testing.T, files map[string][]byte) storage.Storage {
				dir := t.TempDir()
				require.NoError(t, os.Chmod(dir, 0o755))
				var names []string
				for path, content := range files {
					write(t, dir, path, content, written)
					names = append(names, path)
				}
				return engine(t, servers.Nginx(t, dir, settings), names...)
			})
		})
	}
}

// nginx gives both versions the same ETag, so the file is not listed until that second is over.
// Then the second version is read.
func TestFileRewrittenInSecondOfItsListing(t *testing.T) {
	for name, settings := range map[string]string{"ETags": "", "dates": "etag off;"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.Chmod(dir, 0o755))
			url := servers.Nginx(t, dir, settings)
			s := engine(t, url, "x.tar")
			now := time.Now().Truncate(time.Second)
			write(t, dir, "x.tar", bytes.Repeat([]byte("a"), 1000), now)
			before, err := open(t, url+"/x.tar").Head(t.Context(), "x.tar")
			require.NoError(t, err)

			var o storage.Object
			var ended time.Time
			listed := make(chan error, 1)
			go func() {
				err := s.List(t.Context(), func(string, bool) bool { return true }, func(is storage.Object) error { o = is; return nil })
				ended = time.Now()
				listed <- err
			}()
			require.Eventually(t, func() bool { return s.Stats().Requests["200"] > 0 }, time.Minute, time.Millisecond)
			write(t, dir, "x.tar", bytes.Repeat([]byte("b"), 1000), now)
			require.NoError(t, <-listed)
			require.False(t, ended.Before(now.Add(2*time.Second)), "it waits")

			after, err := open(t, url+"/x.tar").Head(t.Context(), "x.tar")
			require.NoError(t, err)
			require.Equal(t, before.Validator, after.Validator, "nginx shows no difference")
			require.Zero(t, after.Unsettled)
			p := make([]byte, 1000)
			require.NoError(t, storage.ReadAt(t.Context(), s, o, p, 0))
			content, err := os.ReadFile(filepath.Join(dir, "x.tar"))
			require.NoError(t, err)
			require.True(t, bytes.Equal(content, p))
		})
	}
}
