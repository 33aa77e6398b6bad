package faulty

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/local/localtest"
	"github.com/lsiofs/lsiofs/pipeline/storage/storagetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newStorage(t *testing.T, files map[string][]byte) *Storage {
	f := New(localtest.Open(t, files))
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

func TestSuiteWithoutFaults(t *testing.T) {
	storagetest.Run(t, func(t *testing.T, files map[string][]byte) storage.Storage { return newStorage(t, files) })
}

func TestSuiteWithNoOpHooks(t *testing.T) {
	storagetest.Run(t, func(t *testing.T, files map[string][]byte) storage.Storage {
		f := newStorage(t, files)
		f.Before = func(*storage.Read) error { return nil }
		f.After = func(_ *storage.Read, err error) error { return err }
		return f
	})
}

func newWithObject(t *testing.T) (*Storage, storage.Object) {
	f := newStorage(t, map[string][]byte{"shard": []byte("0123456789")})
	o, err := f.Stat(t.Context(), "shard")
	require.NoError(t, err)
	return f, o
}

func TestNthFailsOneRead(t *testing.T) {
	f, o := newWithObject(t)
	f.Before = Nth(2)
	for i := range 5 {
		err := storage.ReadAt(t.Context(), f, o, make([]byte, 3), 1)
		if i == 2 {
			require.ErrorIs(t, err, ErrInjected)
			require.EqualError(t, err, "shard: bytes [1, 4): injected fault in read 2")
			continue
		}
		require.NoError(t, err)
	}
}

func TestTruncatedFailsReadsAfterCut(t *testing.T) {
	f, o := newWithObject(t)
	f.Before = Truncated("shard", 6)
	require.NoError(t, storage.ReadAt(t.Context(), f, o, make([]byte, 6), 0))
	require.ErrorIs(t, storage.ReadAt(t.Context(), f, o, make([]byte, 6), 1), storage.ErrChanged)
}

func TestAfterMayAlterBytes(t *testing.T) {
	f, o := newWithObject(t)
	f.After = func(r *storage.Read, err error) error {
		r.Buf[0] = 'x'
		return err
	}
	p := make([]byte, 3)
	require.NoError(t, storage.ReadAt(t.Context(), f, o, p, 4))
	require.Equal(t, "x56", string(p))
}

func TestHeldReadsWaitForReleaseOrClose(t *testing.T) {
	for name, let := range map[string]func(*Storage){
		"Release": (*Storage).Release,
		"Close":   func(f *Storage) { _ = f.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			f, o := newWithObject(t)
			f.Hold()
			done := make(chan error, 3)
			bufs := make([][]byte, cap(done))
			for i := range bufs {
				bufs[i] = make([]byte, 2)
				go f.Submit([]*storage.Read{{Object: o, OffsetBytes: int64(i), Buf: bufs[i], Done: func(err error) { done <- err }}})
			}
			f.WaitHeld(len(bufs))
			require.Empty(t, done)
			let(f)
			for range bufs {
				require.NoError(t, <-done)
			}
			for i, want := range []string{"01", "12", "23"} {
				require.Equal(t, want, string(bufs[i]))
			}
		})
	}
}

func TestReadAtReturnsWithItsContextAndLeavesReadRunning(t *testing.T) {
	f, o := newWithObject(t)
	f.Hold()
	arrived := make(chan struct{}, 1)
	f.After = func(_ *storage.Read, err error) error {
		arrived <- struct{}{}
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan error)
	go func() { returned <- storage.ReadAt(ctx, f, o, make([]byte, 3), 1) }()
	f.WaitHeld(1)
	cancel()
	require.ErrorIs(t, <-returned, context.Canceled)
	f.Release()
	<-arrived
	require.NoError(t, storage.ReadAt(t.Context(), f, o, nil, 1), "nothing is read at once")
}

// There is no way around the hooks.
func TestCapabilitiesThatReadAreLost(t *testing.T) {
	storagetest.RunWrapper(t, func(_ *testing.T, below storage.Storage) storage.Storage { return New(below) }, map[string]storagetest.Passing{
		"StatStable":    storagetest.Passed,
		"Omitted":       storagetest.Passed,
		"Parts":         storagetest.Passed,
		"Join":          storagetest.Passed,
		"Outline":       storagetest.Passed,
		"Check":         storagetest.Passed,
		"Hints":         storagetest.Passed,
		"Status":        storagetest.Passed,
		"AdjustProfile": storagetest.Passed,
		"HeldBytes":     storagetest.Passed,
	})
}
