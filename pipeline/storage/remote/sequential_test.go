package remote_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/faultserver"
)

func (w *world) open(o storage.Object, off int64) io.ReadCloser {
	r, err := w.OpenSequential(w.t.Context(), o, off)
	require.NoError(w.t, err)
	return r
}

// Reading an object forward takes one request, wherever it begins.
func TestSequentialReadsTakeOneRequest(t *testing.T) {
	in(t, nil, func(t *testing.T, w *world) {
		for _, off := range []int64{0, 1, 4*mib - 1, 4 * mib} {
			r := w.open(w.a, off)
			got, err := io.ReadAll(r)
			require.NoError(t, err)
			require.True(t, bytes.Equal(w.server.Bytes("a.tar", off, 4*mib-off), got))
			require.NoError(t, r.Close())
			require.NoError(t, r.Close())
			_, err = r.Read(make([]byte, 1))
			require.ErrorIs(t, err, fs.ErrClosed)
		}
		require.Len(t, w.reads(), 3, "and none for nothing")
		w.server.Put("empty.tar", 0)
		got, err := io.ReadAll(w.open(w.stat("empty.tar"), 0))
		require.NoError(t, err)
		require.Empty(t, got)
		w.server.Put("small.tar", 1000)
		r := w.open(w.stat("small.tar"), 3)
		require.NoError(t, iotest.TestReader(r, w.server.Bytes("small.tar", 3, 997)))
	})
}

// A stream that breaks is resumed where it broke, whatever the reason.
func TestSequentialReadsAreResumed(t *testing.T) {
	for name, c := range map[string]struct {
		fault    faultserver.Fault
		requests int
		within   time.Duration
	}{
		"resets":         {faultserver.Reset(mib), 4, 3 * time.Second},
		"stalls":         {faultserver.Stall(mib), 4, 45 * time.Second},
		"no answer":      {faultserver.Hang(), 4, 32 * time.Second},
		"throttled":      {faultserver.Status(503, "SlowDown"), 4, 5 * time.Second},
		"an expired key": {faultserver.Status(401, ""), 3, time.Second},
		"drips":          {faultserver.Drip(time.Second), 4, 40 * time.Second},
		"a short body":   {faultserver.Together(faultserver.Short(mib), faultserver.Unannounced()), 4, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, nil, func(t *testing.T, w *world) {
				w.server.On(faultserver.Path("a.tar"), c.fault).Times(c.requests - 1)
				began := time.Now()
				r := w.open(w.a, 100)
				got, err := io.ReadAll(r)
				require.NoError(t, err)
				require.True(t, bytes.Equal(w.server.Bytes("a.tar", 100, 4*mib-100), got))
				require.Len(t, w.reads(), c.requests)
				require.LessOrEqual(t, time.Since(began), c.within)
				require.NoError(t, r.Close())
			})
		})
	}
}

func TestFailingSequentialReads(t *testing.T) {
	in(t, nil, func(t *testing.T, w *world) {
		other := w.a
		other.SizeBytes++
		_, err := w.OpenSequential(t.Context(), other, 0)
		require.ErrorIs(t, err, storage.ErrChanged)
		_, err = w.OpenSequential(t.Context(), w.a, 5*mib)
		require.ErrorContains(t, err, "a.tar")

		w.server.On(faultserver.Path("a.tar"), faultserver.Reset(mib)).Times(1)
		r := w.open(w.a, 0)
		p := make([]byte, mib/2)
		_, err = io.ReadFull(r, p)
		require.NoError(t, err)
		w.server.Change("a.tar")
		n, err := io.Copy(io.Discard, r)
		require.EqualValues(t, mib/2, n)
		require.ErrorIs(t, err, storage.ErrChanged, "no bytes of two versions")
		var failed *storage.Error
		require.ErrorAs(t, err, &failed)
		require.EqualValues(t, mib, failed.OffsetBytes)
		_, again := r.Read(p)
		require.Equal(t, err, again)
		require.NoError(t, r.Close())

		w.server.On(faultserver.Path("a.tar"), faultserver.Together(faultserver.Long(1), faultserver.Unannounced())).Times(1)
		_, err = io.ReadAll(w.open(w.stat("a.tar"), 0))
		require.ErrorContains(t, err, "more than the 4194304 bytes")

		w.server.On(faultserver.Path("a.tar"), faultserver.Status(500, ""))
		_, err = io.ReadAll(w.open(w.stat("a.tar"), 0))
		require.ErrorContains(t, err, "it has failed for")
	})
}

// The time that a stream's reader takes between reads does not count as a delay of the service.
func TestSequentialReadersMayPause(t *testing.T) {
	in(t, nil, func(t *testing.T, w *world) {
		r := w.open(w.a, 0)
		for i := range int64(4) {
			p := make([]byte, mib)
			_, err := io.ReadFull(r, p)
			require.NoError(t, err)
			require.True(t, bytes.Equal(w.server.Bytes("a.tar", i*mib, mib), p))
			time.Sleep(time.Hour)
		}
		require.NoError(t, r.Close())
		require.Equal(t, []string{"all"}, w.reads())
	})
}

// A pending Read ends when its stream is closed, when its context ends, and when the storage is
// closed.
func TestPendingSequentialReadsStop(t *testing.T) {
	for name, fault := range map[string]faultserver.Fault{"no answer": faultserver.Hang(), "a stall": faultserver.Stall(0), "between attempts": faultserver.Status(500, "")} {
		for _, who := range []string{"stream", "context", "storage"} {
			t.Run(fmt.Sprint(name, ", ended by the ", who), func(t *testing.T) {
				in(t, nil, func(t *testing.T, w *world) {
					w.server.On(faultserver.Path("a.tar"), fault)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					r, err := w.OpenSequential(ctx, w.a, 0)
					require.NoError(t, err)
					ended := make(chan error)
					go func() {
						_, err := r.Read(make([]byte, 10))
						ended <- err
					}()
					time.Sleep(5 * time.Second)
					began := time.Now()
					var want error = fs.ErrClosed
					switch who {
					case "stream":
						go func() { _ = r.Close() }()
					case "context":
						want = context.Canceled
						cancel()
					default:
						go func() { _ = w.Close() }()
					}
					require.ErrorIs(t, <-ended, want)
					require.Zero(t, time.Since(began))
					require.NoError(t, r.Close())
				})
			})
		}
	}
}
