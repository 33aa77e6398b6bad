package snapshot

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/hardlink"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/uring"
)

func TestDeletedShardsWithAndWithoutHold(t *testing.T) {
	for _, hold := range []bool{false, true} {
		p := newPlace(t)
		n := open(t, p, func(c *Config) {
			if hold {
				c.Hold = hardlink.NewLinks(p.data)
				c.Storage = hardlink.Wrap(c.Storage.(*local.Storage), c.Hold)
			}
		})
		p.put(t, 10, "1.txt", "x/2.txt")
		n.eventually("1.txt", "x/2.txt")
		c, e, err := n.Catalog(t.Context(), 0, true)
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		links, _ := filepath.Glob(filepath.Join(p.data, ".lsiofs", "hold", e.Run, "*"))
		if hold {
			require.Len(t, links, 2)
			// A link does not make a file look changed.
			require.NoError(t, n.watcher.Scan(t.Context()))
			n.eventually("1.txt", "x/2.txt")
			require.Zero(t, n.Status().Settling)
		} else {
			require.Empty(t, links)
		}
		require.NoError(t, os.Remove(filepath.Join(p.data, "x/2.txt")))
		engine, err := uring.Open(uring.ModePread)
		require.NoError(t, err)
		defer func() { require.NoError(t, engine.Close()) }()
		fresh, err := local.Open(p.data, engine) // it has no file open
		require.NoError(t, err)
		var readers storage.Storage = fresh
		if hold {
			readers = hardlink.Wrap(fresh, n.config.Hold)
		}
		defer func() { require.NoError(t, readers.Close()) }()
		read := func(i int) (string, error) {
			o := c.Shard(i).Object
			b := make([]byte, o.SizeBytes)
			err := storage.ReadAt(t.Context(), readers, o, b, 0)
			return string(b), err
		}
		text, err := read(0)
		require.NoError(t, err)
		require.Equal(t, string(lines("1.txt", 10)), text)
		text, err = read(1)
		if !hold {
			require.ErrorIs(t, err, storage.ErrChanged)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, string(lines("x/2.txt", 10)), text)
		n.eventually("1.txt")
		_, paths := n.taken(1)
		require.Equal(t, []string{"1.txt"}, paths, "what is gone is in no further epoch")
	}
}
