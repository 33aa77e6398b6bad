package crops

import (
	"bytes"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/zarr/encode"
)

// changesOnce is a storage in which one object appears changed once, at call number fail of
// Unchanged. Submit returns only after its reads have been answered and, for an index, after the
// answer has been processed.
type changesOnce struct {
	storage.Storage
	noted func() bool

	mu            sync.Mutex
	asked, fail   int
	open, misused int
}

type watched struct {
	*changesOnce
	under  storage.Resident
	closed bool
}

func (s *changesOnce) Caps() storage.Caps { return storage.Caps{OpenResident: s.OpenResident} }

func (s *changesOnce) OpenResident(o storage.Object) (storage.Resident, error) {
	r, err := s.Storage.Caps().OpenResident(o)
	if err != nil || r == nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	return &watched{changesOnce: s, under: r}, nil
}

// Submit reads each range, and waits until the answer has been processed.
func (s *changesOnce) Submit(reads []*storage.Read) {
	for _, r := range reads {
		came := make(chan error, 1)
		s.Storage.Submit([]*storage.Read{{Object: r.Object, OffsetBytes: r.OffsetBytes, Buf: r.Buf, Done: func(err error) { came <- err }}})
		r.Done(<-came)
	}
	s.mu.Lock()
	first := s.asked == s.fail+1
	s.mu.Unlock()
	for n := 0; first && !s.noted() && n < 10_000; n++ {
		time.Sleep(time.Millisecond)
	}
}

func (r *watched) use() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		r.misused++
	}
}

func (r *watched) Holds(off, n int64) bool { r.use(); return !r.closed && r.under.Holds(off, n) }

func (r *watched) ReadAt(p []byte, off int64) bool {
	r.use()
	return !r.closed && r.under.ReadAt(p, off)
}

func (r *watched) Unchanged() error {
	r.use()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if r.asked == r.fail+1 {
		return storage.ErrChanged
	}
	return nil
}

func (r *watched) Close() error {
	r.use()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	r.open--
	return r.under.Close()
}

// An object read from memory may turn out to be another version while chunks of a group wait to be
// read from it. Nothing is then read from the closed object: all bytes come from the storage, and
// are right.
func TestReplacedObjectIsNotReadFromMemory(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	a := small
	a.Codec, a.Object = encode.BloscLZ4, []int64{12, 40, 64}
	for fail, more := 0, true; more; fail++ {
		m := &made{dir: t.TempDir(), array: a}
		m.absent = write(t, m.dir, a)
		under := &changesOnce{Storage: openLocal(t, m.dir), fail: fail}
		m.Storage = Wrap(under, Config{Spec: smallCrops, Base: "a.zarr"})
		under.noted = func() bool {
			m.indexes.mu.Lock()
			defer m.indexes.mu.Unlock()
			return len(m.indexes.byKey) > 0
		}
		m.list(t)
		got, err := m.read(0, m.object.SizeBytes, 0)
		require.NoError(t, err)
		require.True(t, bytes.Equal(m.want(), got))
		require.NoError(t, m.Storage.Close())
		require.Zero(t, under.misused, "after change %d", fail)
		require.Zero(t, under.open)
		more = under.asked > fail
		require.Positive(t, under.asked)
	}
}
