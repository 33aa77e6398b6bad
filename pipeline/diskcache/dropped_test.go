package diskcache

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/identity"
)

// watched is a disk that checks files before their pages are dropped.
type watched struct {
	kernel
	before func(fd int)
}

func (x watched) punch(fd int, off, n int64) error {
	x.before(fd)
	return x.kernel.punch(fd, off, n)
}

// Some file systems (tmpfs) change a file's times only when its pages are gone. Readers of a sealed
// object would find zeros in a file that looks unchanged, so the times change first.
func TestFileLooksChangedBeforeItsPagesAreDropped(t *testing.T) {
	w := sealWorld(t)
	var sealed storage.Object
	looked := 0
	s := w.open(func(c *Config) {
		withSeals(c)
		c.disk = watched{before: func(fd int) {
			if looked++; sealed.Path != "" {
				assert.ErrorIs(t, identity.Check(fd, sealed), storage.ErrChanged)
			}
		}}
	})
	w.read(s, "a.tar", 0, 1<<20+77)
	w.sealed(s, "a.tar")
	sealed, _ = s.seals.of(w.objects["a.tar"])
	d, err := OpenDirectory(w.cache, nil) // as another process would
	require.NoError(t, err)
	defer d.Close()
	d.dir.disk = s.dir.disk
	id, _ := byPath(w.objects["a.tar"])
	before := looked
	freed, err := d.dir.trim(keyOf(id, 1<<20+77), 64<<10)
	require.NoError(t, err)
	require.Positive(t, freed)
	require.Greater(t, looked, before)
	w.read(s, "a.tar", 0, 1<<20+77)
}

// The same with a cache in memory, while pages are dropped and read.
func TestDroppedPagesInMemoryAreNotReadAsZeros(t *testing.T) {
	const memory = "/dev/shm"
	var fs unix.Statfs_t
	if unix.Statfs(memory, &fs) != nil || int64(fs.Type) != unix.TMPFS_MAGIC {
		t.Skip("no tmpfs at " + memory)
	}
	const size = 8 << 20
	w := newWorld(t, map[string][]byte{"a.tar": random(1, size)})
	dir, err := os.MkdirTemp(memory, "lsiofs-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	w.cache = filepath.Join(dir, "cache")
	s := w.open(withSeals)
	o := w.objects["a.tar"]
	id, _ := byPath(o)
	for range 12 {
		w.read(s, "a.tar", 0, size)
		w.sealed(s, "a.tar")
		d, err := OpenDirectory(w.cache, nil)
		require.NoError(t, err)
		var reading sync.WaitGroup
		begun, stop := make(chan struct{}), make(chan struct{})
		reading.Go(func() {
			buf, once := make([]byte, 64<<10), sync.OnceFunc(func() { close(begun) })
			for at := 0; ; at = (at + len(buf)) % size {
				if !assert.NoError(t, storage.ReadAt(t.Context(), s, o, buf, int64(at))) || !assert.True(t, bytes.Equal(w.files["a.tar"][at:at+len(buf)], buf), "at %d", at) {
					once()
					return
				}
				once()
				select {
				case <-stop:
					return
				default:
				}
			}
		})
		<-begun
		_, err = d.dir.trim(keyOf(id, size), size)
		require.NoError(t, err)
		close(stop)
		reading.Wait()
		require.NoError(t, d.Close())
		if t.Failed() {
			return
		}
	}
}
