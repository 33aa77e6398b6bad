package catalog

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
)

// tarOfLarge returns an archive of n samples of one member of 8 KB.
func tarOfLarge(n int) []byte {
	head := tarOf(1, "x")[:512]
	var b bytes.Buffer
	for i := range n {
		h := bytes.Clone(head)
		copy(h, fmt.Sprintf("%06d.bin\x00", i))
		copy(h[124:], fmt.Sprintf("%011o", 8000))
		copy(h[148:], "        ")
		sum := 0
		for _, c := range h {
			sum += int(c)
		}
		copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
		b.Write(h)
		b.Write(bytes.Repeat([]byte{byte(i)}, 8192))
	}
	b.Write(make([]byte, 1024))
	return b.Bytes()
}

func TestIndexDoesNotDependOnHowShardsAreRead(t *testing.T) {
	w := newWorld(t)
	for i := range 3 {
		w.write(fmt.Sprintf("s%d.tar", i), tarOfLarge(400+i))
	}
	var queued *Catalog
	reads := w.readsOf(func() { queued = w.mustOpen() }) // its storage does not report what is resident
	require.GreaterOrEqual(t, reads, int64(3*3))
	sealed := w.sealed()
	var opened atomic.Bool
	atOnce := w.mustOpen(func(c *Config) {
		c.Rebuild = true
		c.OpenStorage = func(root, _ string) (storage.Storage, error) {
			s, err := local.Open(root, w.engine)
			return residents{&watched{Storage: s, w: w}, &opened}, err
		}
	})
	require.True(t, opened.Load())
	require.Equal(t, queued.Identity(), atOnce.Identity())
	require.True(t, bytes.Equal(sealed, w.sealed()))
}

// residents is watched storage that can also read from memory.
type residents struct {
	*watched
	opened *atomic.Bool
}

func (r residents) Caps() storage.Caps {
	c := r.watched.Caps()
	open := r.Storage.Caps().OpenResident
	c.OpenResident = func(o storage.Object) (storage.Resident, error) {
		r.opened.Store(true)
		return open(o)
	}
	return c
}
