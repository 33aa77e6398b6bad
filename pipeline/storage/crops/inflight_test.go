package crops

import (
	"bytes"
	"runtime"
	"sync"
	"testing"

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
	require.LessOrEqual(t, slow.most, int64(4<<10+2*(1<<10+16)), "the bound, and a brick of 1 KiB for each of 2 workers")
	require.Positive(t, slow.most)
}
