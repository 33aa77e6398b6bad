package diskcache

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/pipeline/storage/storagetest"
	"github.com/lsiofs/lsiofs/uring"
)

func TestSuite(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"room for all":        func(*Config) {},
		"room for nothing":    func(c *Config) { c.BoundBytes = 1 },
		"all passes through":  func(c *Config) { c.BoundBytes, c.ShareBytes = 1<<30, 1<<30 },
		"one file, 32 KiB":    func(c *Config) { c.MaxFiles, c.MaxReadBytes, c.BufferBytes = 1, 32<<10, 64<<10 },
		"gaps are read":       func(c *Config) { c.GapBytes = 1 << 20 },
		"nothing is cachable": func(c *Config) { c.Identify = func(storage.Object) (Identity, bool) { return Identity{}, false } },
	} {
		for _, mode := range []uring.Mode{uring.ModePread, uring.ModeUring} {
			if testing.Short() && mode == uring.ModePread && name != "room for all" {
				continue // engine-dependent behaviour shows there
			}
			t.Run(string(mode)+" with "+name, func(t *testing.T) {
				engine, err := uring.Open(mode)
				if err != nil && mode == uring.ModeUring && os.Getenv("CI") != "true" {
					t.Skipf("io_uring is missing here: %v", err)
				}
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, engine.Close()) })
				storagetest.Run(t, func(t *testing.T, files map[string][]byte) storage.Storage {
					root := t.TempDir()
					for path, content := range files {
						full := filepath.Join(root, path)
						require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o700))
						require.NoError(t, os.WriteFile(full, content, 0o600))
					}
					below, err := local.Open(root, engine)
					require.NoError(t, err)
					c := DefaultConfig()
					c.Dir, c.Below, c.Engine, c.Identify, c.BoundBytes = filepath.Join(t.TempDir(), "cache"), below, engine, byPath, 1<<30
					change(&c)
					s, err := Open(c)
					require.NoError(t, err)
					t.Cleanup(func() { require.NoError(t, s.Close()) })
					return s
				})
			})
		}
	}
}
