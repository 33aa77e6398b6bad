package storage_test

import (
	"bytes"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/faulty"
	"github.com/lsiofs/lsiofs/pipeline/storage/local/localtest"
	"github.com/lsiofs/lsiofs/pipeline/storage/storagetest"
)

func openFaulty(t *testing.T, files map[string][]byte) *faulty.Storage {
	t.Helper()
	return faulty.New(localtest.Open(t, files))
}

func TestRetryingPassesTheSuite(t *testing.T) {
	storagetest.Run(t, func(t *testing.T, files map[string][]byte) storage.Storage {
		return storage.NewRetrying(openFaulty(t, files))
	})
}

// retries is how often a read is repeated.
const retries = 4

// Only reads that are submitted are repeated: everything else is the storage's below.
func TestRetriesPassAllCapabilitiesOn(t *testing.T) {
	want := map[string]storagetest.Passing{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[storage.Caps]()) {
		want[f.Name] = storagetest.Passed
	}
	storagetest.RunWrapper(t, func(_ *testing.T, below storage.Storage) storage.Storage { return storage.NewRetrying(below) }, want)
}

func TestOnlyTransientErrorsAreRetriedAFewTimes(t *testing.T) {
	for _, c := range []struct {
		name            string
		err             error
		times           int64
		fails           bool
		retries, gaveUp uint64
	}{
		{"passes at once", syscall.EAGAIN, 1, false, 1, 0},
		{"passes at the last attempt", syscall.ETIMEDOUT, retries, false, retries, 0},
		{"never passes", syscall.EINTR, 1 << 30, true, retries, 1},
		{"a disk's own", syscall.EIO, 1, true, 0, 0},
		{"changed", storage.ErrChanged, 1, true, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			below := openFaulty(t, map[string][]byte{"a": []byte("content")})
			var n atomic.Int64
			below.Before = func(*storage.Read) error {
				if n.Add(1) <= c.times {
					return c.err
				}
				return nil
			}
			s := storage.NewRetrying(below)
			o, err := s.Stat(t.Context(), "a")
			require.NoError(t, err)
			b := make([]byte, 4)
			err = storage.ReadAt(t.Context(), s, o, b, 3)
			if c.fails {
				require.ErrorIs(t, err, c.err)
				require.ErrorContains(t, err, "a: bytes [3, 7): ")
			} else {
				require.NoError(t, err)
				require.Equal(t, "tent", string(b))
			}
			require.Equal(t, storage.RetryStats{Retries: c.retries, GaveUp: c.gaveUp}, s.Stats())
			require.NoError(t, s.Close())
		})
	}
}

func TestPendingRetryIsCancellableAndStopsAtClose(t *testing.T) {
	below := openFaulty(t, map[string][]byte{"a": bytes.Repeat([]byte("x"), 100)})
	var failed atomic.Int64
	below.Before = func(*storage.Read) error { failed.Add(1); return syscall.EAGAIN }
	s := storage.NewRetrying(below)
	o, err := s.Stat(t.Context(), "a")
	require.NoError(t, err)
	done := make(chan error, 3)
	s.Submit([]*storage.Read{{Object: o, Buf: make([]byte, 1), Wanted: func() bool { return failed.Load() == 0 }, Done: func(err error) { done <- err }}})
	require.Equal(t, storage.ErrUnwanted, <-done)

	submit := func() {
		s.Submit([]*storage.Read{{Object: o, Buf: make([]byte, 1), Done: func(err error) { done <- err }}})
	}
	submit()
	submit()
	for s.Stats().Waiting == 0 {
		select {
		case err := <-done: // it failed before this goroutine could see it waiting
			require.ErrorIs(t, err, syscall.EAGAIN)
			submit()
		default:
			runtime.Gosched()
		}
	}
	require.NoError(t, s.Close())
	require.Error(t, <-done)
	require.Error(t, <-done)
	require.NoError(t, s.Close(), "once more is fine")
}

// Each read has all its attempts, though what keeps count of them is reused, and each of them is the
// same read.
func TestEachReadIsRetriedAsIfItWereTheFirst(t *testing.T) {
	below := openFaulty(t, map[string][]byte{"a": []byte("content")})
	var mu sync.Mutex
	asked := map[uint64]int{}
	below.Before = func(r *storage.Read) error {
		mu.Lock()
		defer mu.Unlock()
		if asked[r.Epoch]++; asked[r.Epoch] == 1 {
			return syscall.EAGAIN
		}
		return nil
	}
	s := storage.NewRetrying(below)
	o, err := s.Stat(t.Context(), "a")
	require.NoError(t, err)
	const rounds, reads = 8, 64
	for round := range uint64(rounds) {
		done := make(chan error, reads)
		var list []*storage.Read
		for i := range uint64(reads) {
			list = append(list, &storage.Read{Object: o, OffsetBytes: 3, Epoch: round*reads + i, Buf: make([]byte, 4), Done: func(err error) { done <- err }})
		}
		s.Submit(list)
		for range list {
			require.NoError(t, <-done)
		}
		for _, r := range list {
			require.Equal(t, "tent", string(r.Buf))
		}
	}
	require.Len(t, asked, rounds*reads)
	for epoch, n := range asked {
		require.Equal(t, 2, n, "epoch %d", epoch)
	}
	require.Equal(t, storage.RetryStats{Retries: rounds * reads}, s.Stats())
	require.NoError(t, s.Close())
}
