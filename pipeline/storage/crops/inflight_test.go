package crops

import (
	"bytes"
	"io/fs"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

// oneAtATime is a storage that reads one range at a time, however many are submitted. It counts the
// bytes that are waiting or being read.
type oneAtATime struct {
	storage.Storage
	asked chan *storage.Read
	ended sync.WaitGroup

	mu        sync.Mutex
	now, most int64
}

func newOneAtATime(under storage.Storage) *oneAtATime {
	s := &oneAtATime{Storage: under, asked: make(chan *storage.Read, 4096)}
	s.ended.Go(func() {
		for r := range s.asked {
			came := make(chan error, 1)
			under.Submit([]*storage.Read{{Object: r.Object, OffsetBytes: r.OffsetBytes, Buf: r.Buf, Done: func(err error) { came <- err }}})
			err := <-came
			s.count(-int64(len(r.Buf)))
			r.Done(err)
		}
	})
	return s
}

func (s *oneAtATime) Caps() storage.Caps { return storage.Caps{} }

func (s *oneAtATime) count(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now += n
	s.most = max(s.most, s.now)
}

func (s *oneAtATime) Submit(reads []*storage.Read) {
	for _, r := range reads {
		s.count(int64(len(r.Buf)))
		s.asked <- r
	}
}

func (s *oneAtATime) Close() error {
	close(s.asked)
	s.ended.Wait()
	return s.Storage.Close()
}

// All chunks of a shard are wanted before its index has been read. When it has, they are not all
// read at once.
func TestChunksWaitingForIndexAreReadWithinBound(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	a := small
	a.Codec, a.Object = encode.BloscLZ4, []int64{12, 40, 64}
	m := &made{dir: t.TempDir(), array: a}
	m.absent = write(t, m.dir, a)
	slow := newOneAtATime(openLocal(t, m.dir))
	m.Storage = Wrap(slow, Config{Spec: smallCrops, Base: "a.zarr"})
	defer func() { require.NoError(t, m.Storage.Close()) }()
	m.list(t)
	m.mu.Lock()
	m.maxInFlight = 4 << 10
	m.mu.Unlock()

	got, err := m.read(0, m.object.SizeBytes, 0)
	require.NoError(t, err)
	require.True(t, bytes.Equal(m.want(), got))
	slow.mu.Lock()
	defer slow.mu.Unlock()
	require.LessOrEqual(t, slow.most, int64(4<<10+2*(1<<10+16)), "the bound, and a chunk of 1 KiB for each of 2 workers")
	require.Positive(t, slow.most)
}

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
