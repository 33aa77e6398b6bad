package catalog

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/faulty"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
)

func TestTransientErrorsDoNotStopIndexPass(t *testing.T) {
	w := newWorld(t)
	for i := range 3 {
		w.write(fmt.Sprintf("s%d", i), tarOfLarge(20+i)) // the format is found from the content
	}
	sound := w.mustOpen()
	failsOnce := func(errno unix.Errno) func(*Config) {
		return func(c *Config) {
			c.Rebuild = true
			c.OpenStorage = func(root, _ string) (storage.Storage, error) {
				s, err := local.Open(root, w.engine)
				f := faulty.New(s)
				var mu sync.Mutex
				failed := map[string]bool{}
				f.Before = func(r *storage.Read) error {
					mu.Lock()
					defer mu.Unlock()
					key := fmt.Sprint(r.Object.Path, r.OffsetBytes)
					if failed[key] {
						return nil
					}
					failed[key] = true
					return errno
				}
				return f, err
			}
		}
	}
	passed := w.mustOpen(failsOnce(unix.ETIMEDOUT))
	require.Equal(t, sound.Identity(), passed.Identity())
	_, err := w.open(failsOnce(unix.EIO))
	require.ErrorIs(t, err, unix.EIO, "which does not pass")
}
