package crops

import (
	"io/fs"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

// Reads are submitted while the storage is closed, and afterwards. Each gets one answer: its bytes
// or an error. Reads submitted before a Close was called have been answered when it returns.
func TestReadsAreAnsweredBeforeLaterCloseReturns(t *testing.T) {
	a := small
	a.Codec = encode.BloscLZ4
	for range 5 {
		m := open(t, a, smallCrops, 1<<20)
		want := m.want()
		var submitters sync.WaitGroup
		var submitted, answered atomic.Int64
		for i := range 4 {
			submitters.Go(func() {
				for n := range 40 {
					off := int64(i*211+n*97) % (m.object.SizeBytes - 700)
					b := make([]byte, 700)
					r := &storage.Read{Object: m.object, OffsetBytes: off, Buf: b}
					r.Done = func(err error) {
						if err == nil && string(b) != string(want[off:off+700]) {
							t.Error("other bytes")
						} else if err != nil {
							// Close is the only cause of errors.
							assert.ErrorIs(t, err, fs.ErrClosed)
						}
						answered.Add(1)
					}
					submitted.Add(1)
					m.Submit([]*storage.Read{r})
				}
			})
		}
		require.NoError(t, m.Storage.Close())
		submitters.Wait()
		require.NoError(t, m.Storage.Close())
		require.Equal(t, submitted.Load(), answered.Load())
	}
}
