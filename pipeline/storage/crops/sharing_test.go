package crops

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/faulty"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

// sharer returns a storage over one that can hold reads, and the counter of reads that reach that.
func sharer(t *testing.T, codec encode.Codec, memory int64) (m *made, below *faulty.Storage, reads *atomic.Int64) {
	a := small
	a.Codec, a.Object = codec, a.Chunk
	m = &made{dir: t.TempDir(), array: a}
	m.absent = write(t, m.dir, a)
	below, reads = faulty.New(openLocal(t, m.dir)), new(atomic.Int64)
	below.Before = func(*storage.Read) error { reads.Add(1); return nil }
	m.Storage = Wrap(below, Config{Spec: smallCrops, Base: "a.zarr", MemoryBytes: memory, TrustAbsence: true})
	t.Cleanup(func() { require.NoError(t, m.Storage.Close()) })
	m.list(t)
	reads.Store(0) // those of the listing
	return m, below, reads
}

// submit reads a range; the result is sent to done.
func (m *made) submit(off int64, b []byte, wanted func() bool, done chan error) {
	m.Submit([]*storage.Read{{Object: m.object, OffsetBytes: off, Buf: b, Wanted: wanted, Done: func(err error) { done <- err }}})
}

// readsOfFirst returns how many reads the first crop takes if it is read alone.
func readsOfFirst(t *testing.T, codec encode.Codec) int {
	m, _, reads := sharer(t, codec, 0)
	_, err := m.read(int64(len(m.cubes["a.zarr"].header)), m.cubes["a.zarr"].row.Bytes, 0)
	require.NoError(t, err)
	require.Positive(t, reads.Load())
	return int(reads.Load())
}

// waitWants waits until the chunks being read have that many wants.
func (m *made) waitWants(t *testing.T, want int) {
	t.Helper()
	require.Eventually(t, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		n := 0
		for _, r := range m.reading {
			n += len(r.wants)
		}
		return n == want
	}, time.Minute, time.Millisecond)
}

// A chunk that is being read for one reader is not read again for another that needs it meanwhile,
// however little memory there is.
func TestReadsOfChunksInFlightAreShared(t *testing.T) {
	for _, codec := range []encode.Codec{encode.None, encode.BloscLZ4, encode.Zstd} {
		for _, memory := range []int64{0, 1 << 20} {
			t.Run(fmt.Sprint(codec, memory), func(t *testing.T) {
				m, below, reads := sharer(t, codec, memory)
				want := m.want()
				off, n := int64(len(m.cubes["a.zarr"].header)), m.cubes["a.zarr"].row.Bytes
				below.Hold()
				const readers = 3
				var buffers [readers][]byte
				done := make(chan error, readers)
				chunks := readsOfFirst(t, codec)
				for i := range buffers {
					buffers[i] = make([]byte, n)
					m.submit(off, buffers[i], nil, done)
					below.WaitHeld(chunks)
				}
				m.waitWants(t, readers*chunks)
				below.Release()
				for range readers {
					require.NoError(t, <-done)
				}
				for _, b := range buffers {
					require.True(t, bytes.Equal(want[off:off+n], b))
				}
				require.EqualValues(t, chunks, reads.Load())
				require.Empty(t, m.reading)
			})
		}
	}
}

// A read is begun for one reader, which does not want it any more, before or after another one shares
// it. That one gets its bytes: of the same read, or of another if the first was cancelled already. If
// the read fails, both get its error.
func TestASharedReadDoesNotEndWithTheReaderThatBeganIt(t *testing.T) {
	chunks := readsOfFirst(t, encode.BloscLZ4)
	for name, c := range map[string]struct {
		cancelled, late bool
		first, second   error
		reads           int
	}{
		"wanted by the second": {cancelled: true, first: storage.ErrUnwanted, reads: chunks},
		"cancelled before":     {cancelled: true, late: true, first: storage.ErrUnwanted, reads: chunks},
		"failed":               {first: errFault, second: errFault, reads: chunks},
	} {
		t.Run(name, func(t *testing.T) {
			m, below, reads := sharer(t, encode.BloscLZ4, 1<<20)
			want := m.want()
			off, n := int64(len(m.cubes["a.zarr"].header)), m.cubes["a.zarr"].row.Bytes
			b := make([]byte, n)
			first, second := make(chan error, 1), make(chan error, 1)
			var wanted atomic.Bool
			wanted.Store(true)
			share := sync.OnceFunc(func() {
				m.submit(off, b, nil, second)
				m.waitWants(t, 2*chunks)
			})
			below.Before = func(*storage.Read) error { reads.Add(1); return c.second }
			if c.late {
				below.After = func(_ *storage.Read, err error) error { share(); return err }
			}
			reads.Store(0)
			below.Hold()
			m.submit(off, make([]byte, n), wanted.Load, first)
			below.WaitHeld(chunks)
			wanted.Store(!c.cancelled)
			if !c.late {
				share()
			}
			below.Release()
			require.ErrorIs(t, <-first, c.first)
			if err := <-second; c.second != nil {
				require.ErrorIs(t, err, c.second)
			} else {
				require.NoError(t, err)
				require.True(t, bytes.Equal(want[off:off+n], b))
			}
			require.EqualValues(t, c.reads, reads.Load())
			require.Empty(t, m.reading)
		})
	}
}
