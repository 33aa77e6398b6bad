package diskcache

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
)

// A cache that is smaller than the dataset is used up to its bound, minus what passes through, by a
// fill whose parts are in transit for long, and by many concurrent reads.
func TestSmallCacheIsFullyUsed(t *testing.T) {
	const objects, good = 8, 44 * mib
	for name, bring := range map[string]func(w *world, s *Storage){
		"a fill": func(w *world, s *Storage) {
			var all []storage.Object
			for i := range objects {
				all = append(all, w.objects[fmt.Sprint(i)])
			}
			s.Fill(all)
			require.ErrorIs(w.t, s.Warm(w.t.Context()), ErrNotFilled)
		},
		"reads": func(w *world, s *Storage) {
			for i := range objects {
				var reads []*storage.Read
				var done sync.WaitGroup
				for off := int64(0); off < 10*mib; off += 256 << 10 {
					done.Add(1)
					reads = append(reads, &storage.Read{Object: w.objects[fmt.Sprint(i)], OffsetBytes: off, Buf: make([]byte, 256<<10), Done: func(error) { done.Done() }})
				}
				s.Submit(reads)
				done.Wait()
				settle(s) // a disk that is slower than these lets them pass through
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, objectsOf(objects, 10*mib))
			s := w.open(func(c *Config) { c.BoundBytes, c.ShareBytes = 64*mib, 20*mib })
			bring(w, s)
			settle(s)
			recount(t, s)
			used, shared, _ := s.room.usage()
			require.Greater(t, used-shared, int64(good-9*mib), "shared: %d", shared)
			require.LessOrEqual(t, w.blocks(), int64(64*mib))
		})
	}
}
