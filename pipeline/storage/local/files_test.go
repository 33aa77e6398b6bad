package local

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/uring"
)

// hanging makes the opening of some files wait until the test calls letGo.
func hanging(t *testing.T, s *Storage, hangs func(path string) bool) (letGo func()) {
	gone := make(chan struct{})
	open := s.files.openObject
	s.files.openObject = func(o storage.Object) (int, error) {
		if hangs(o.Path) {
			<-gone
		}
		return open(o)
	}
	letGo = func() {
		select {
		case <-gone:
		default:
			close(gone)
		}
	}
	t.Cleanup(letGo)
	return letGo
}

// More files hang in opening, for reads and for mappings, than there are openers or descriptors.
func TestHangingOpensBlockNoOther(t *testing.T) {
	for _, maps := range []bool{false, true} {
		for _, maxOpen := range []int{8, 512} {
			t.Run(fmt.Sprintf("mappings %v, %d descriptors", maps, maxOpen), func(t *testing.T) {
				root := t.TempDir()
				write(t, root, "healthy", "content")
				const hung = 3*maxOpeners + 1
				for i := range hung {
					write(t, root, fmt.Sprintf("hung-%d", i), "content")
				}
				s := openAt(t, root, maxOpen)
				s.pool.StuckAfter = 50 * time.Millisecond
				letGo := hanging(t, s, func(path string) bool { return path != "healthy" })
				done := make(chan error, hung)
				for i := range hung {
					o := stat(t, s, fmt.Sprintf("hung-%d", i))
					if !maps {
						s.Submit([]*storage.Read{{Object: o, Buf: make([]byte, 7), Done: func(err error) { done <- err }}})
						continue
					}
					s.Map(o, func(m storage.Mapping, err error) {
						if err == nil {
							err = m.Close()
						}
						done <- err
					})
				}
				require.Equal(t, "content", read(t, s, stat(t, s, "healthy")))
				require.Empty(t, done, "all others hang")
				letGo()
				for range hung {
					err := <-done
					if maps && s.Caps().Mapper == nil {
						require.ErrorIs(t, err, storage.ErrNotMapped)
						continue
					}
					require.NoError(t, err)
				}
				require.NoError(t, s.Close())
				require.Zero(t, s.pool.Stuck())
				require.Zero(t, s.files.open, "each descriptor is counted once")
				require.Zero(t, s.files.closing)
			})
		}
	}
}

// A file of a network file system is closed on a goroutine that may block, because its server has
// to be informed.
func TestFileWhoseCloseMayHangIsClosedByOpener(t *testing.T) {
	root := t.TempDir()
	for _, path := range []string{"a", "b"} {
		write(t, root, path, "content")
	}
	s := openAt(t, root, 1) // each open closes the previous file
	closing := make(chan *uring.File, 1)
	later := s.files.later
	s.files.later = func(f *uring.File) { closing <- f }
	require.Equal(t, "content", read(t, s, stat(t, s, "a")))
	s.files.mu.Lock()
	for _, f := range s.files.files {
		f.remote = true
	}
	s.files.mu.Unlock()
	require.Equal(t, "content", read(t, s, stat(t, s, "b")), "nobody waits for a file to be closed")
	select {
	case f := <-closing:
		later(f)
	case <-time.After(90 * time.Second):
		require.Fail(t, "it is to be closed")
	}
	require.NoError(t, s.Close())
	require.Zero(t, s.files.closing)
}
