package diskcache

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/faulty"
)

// streaming is a storage with streams, which it counts.
type streaming struct {
	*faulty.Storage
	w     *world
	opens atomic.Int64
	hang  atomic.Bool // they deliver nothing until they are closed
	fail  atomic.Pointer[error]
}

func (s *streaming) Caps() storage.Caps {
	c := s.Storage.Caps()
	c.OpenSequential = s.OpenSequential
	return c
}

func (s *streaming) OpenSequential(ctx context.Context, o storage.Object, off int64) (io.ReadCloser, error) {
	s.opens.Add(1)
	if s.hang.Load() {
		return hanging{ctx}, nil
	}
	r := io.Reader(bytes.NewReader(s.w.files[o.Path][off:]))
	if err := s.fail.Load(); err != nil {
		r = io.MultiReader(io.LimitReader(r, mib+5), iotest.ErrReader(&storage.Error{Object: o.Path, Err: *err}))
	}
	return io.NopCloser(iotest.HalfReader(r)), nil
}

type hanging struct{ ctx context.Context }

func (h hanging) Read([]byte) (int, error) { <-h.ctx.Done(); return 0, h.ctx.Err() }
func (h hanging) Close() error             { return nil }

func openStreaming(w *world, change func(*Config)) (*Storage, *streaming) {
	var below *streaming
	s := w.open(func(c *Config) {
		below = &streaming{Storage: w.below, w: w}
		c.Below = below
		if change != nil {
			change(c)
		}
	})
	return s, below
}

// forward reads an object from off on, and requires the right bytes.
func (w *world) forward(s *Storage, path string, off int64) {
	w.t.Helper()
	r, err := s.OpenSequential(w.t.Context(), w.objects[path], off)
	require.NoError(w.t, err)
	got, err := io.ReadAll(r)
	require.NoError(w.t, err)
	require.True(w.t, bytes.Equal(w.files[path][off:], got), "%s from %d on", path, off)
	require.NoError(w.t, r.Close())
	require.NoError(w.t, r.Close())
	_, err = r.Read(make([]byte, 1))
	require.ErrorIs(w.t, err, fs.ErrClosed)
	settle(s)
}

// What is read from front to back is one stream of the storage below, and is cached afterwards.
func TestStreamIsCachedWhileRead(t *testing.T) {
	w := newWorld(t, map[string][]byte{"large": random(1, 10*mib+5), "small": random(2, 5000), "empty": {}})
	s, below := openStreaming(w, nil)
	w.forward(s, "large", 0)
	require.EqualValues(t, 1, below.opens.Load())
	require.Zero(t, w.reads.Load())
	w.forward(s, "large", 0)
	w.forward(s, "large", 3*mib+77)
	require.Zero(t, w.read(s, "large", 100, 10*mib-100))
	require.EqualValues(t, 1, below.opens.Load(), "it comes from the disk")
	w.forward(s, "small", 7)
	require.EqualValues(t, 1, w.reads.Load()+below.opens.Load()-1, "one request")
	w.forward(s, "empty", 0)
	require.EqualValues(t, 1, w.reads.Load()+below.opens.Load()-1)
	require.Zero(t, s.Stats().BadPages)

	r, err := s.OpenSequential(t.Context(), w.objects["small"], 3)
	require.NoError(t, err)
	require.NoError(t, iotest.TestReader(r, w.files["small"][3:]))
	require.NoError(t, r.Close())
	_, err = s.OpenSequential(t.Context(), w.objects["small"], 5001)
	require.Error(t, err)
}

// With some pages cached and others missing, the bytes are right, and there are few requests: small
// holes are read as ranges, and a stream continues over few cached pages.
func TestStreamOverHoles(t *testing.T) {
	w := newWorld(t, objectsOf(2, 12*mib))
	s, below := openStreaming(w, nil)
	random := rand.New(rand.NewPCG(1, 2))
	for range 40 { // islands of some pages
		w.read(s, "0", random.IntN(12*mib-20_000), 1+random.IntN(20_000))
	}
	w.reads.Store(0)
	w.forward(s, "0", 0)
	require.EqualValues(t, 1, below.opens.Load())
	require.LessOrEqual(t, w.reads.Load(), int64(1))

	w.read(s, "1", 0, 6*mib)
	w.read(s, "1", 6*mib+40_960, 6*mib-40_960)
	w.reads.Store(0)
	w.forward(s, "1", 0)
	require.EqualValues(t, 1, below.opens.Load(), "no stream for a hole of ten pages")
	require.EqualValues(t, 1, w.reads.Load())
}

// A damaged page of a stream is read again, and only that.
func TestStreamOverDamagedPage(t *testing.T) {
	w := newWorld(t, objectsOf(1, 4*mib))
	s, below := openStreaming(w, nil)
	w.forward(s, "0", 0)
	f, err := os.OpenFile(w.path("0", ".data"), os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("wrong"), 2*mib)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	w.forward(s, "0", 0)
	require.EqualValues(t, 1, s.Stats().BadPages)
	require.EqualValues(t, 1, w.reads.Load())
	require.EqualValues(t, 1, below.opens.Load())
}

// If there is no room, or nothing may be cached, or the cache is off, a stream passes through.
func TestUncachedStream(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no room":    func(c *Config) { c.BoundBytes = 1 },
		"all share":  func(c *Config) { c.BoundBytes, c.ShareBytes = 64*mib, 64*mib },
		"no version": func(c *Config) { c.Identify = func(storage.Object) (Identity, bool) { return Identity{}, false } },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, objectsOf(1, 4*mib))
			s, below := openStreaming(w, change)
			before := w.blocks()
			if name == "no version" {
				r, err := s.OpenSequential(t.Context(), w.objects["0"], 5)
				require.NoError(t, err)
				require.NoError(t, iotest.TestReader(io.LimitReader(r, 4*mib), w.files["0"][5:]))
				require.NoError(t, r.Close())
			} else {
				w.forward(s, "0", 5)
			}
			require.EqualValues(t, 1, below.opens.Load())
			require.Equal(t, before, w.blocks())
		})
	}
}

// A storage without streams is read in ranges.
func TestStreamOverStorageWithoutStreams(t *testing.T) {
	w := newWorld(t, objectsOf(1, 4*mib))
	s := w.open(nil)
	w.forward(s, "0", 123)
	require.EqualValues(t, 4, w.reads.Load())
	w.forward(s, "0", 0)
	require.EqualValues(t, 4, w.reads.Load(), "whole pages were read")
}

// An error names the object, and comes after all bytes before it.
func TestFailingStream(t *testing.T) {
	w := newWorld(t, objectsOf(1, 4*mib))
	s, below := openStreaming(w, nil)
	below.fail.Store(&errTest)
	r, err := s.OpenSequential(t.Context(), w.objects["0"], 0)
	require.NoError(t, err)
	got, err := io.ReadAll(r)
	require.ErrorIs(t, err, errTest)
	var of *storage.Error
	require.ErrorAs(t, err, &of)
	require.Equal(t, "0", of.Object)
	require.EqualValues(t, mib, of.OffsetBytes)
	require.True(t, bytes.Equal(w.files["0"][:mib], got))
	require.NoError(t, r.Close())
}

// A Read that waits ends with the stream, with its context, and with the cache.
func TestWaitingStreamStops(t *testing.T) {
	for name, end := range map[string]func(s *Storage, r io.Closer, cancel func()){
		"closed":    func(_ *Storage, r io.Closer, _ func()) { _ = r.Close() },
		"cancelled": func(_ *Storage, _ io.Closer, cancel func()) { cancel() },
		"all ends":  func(s *Storage, _ io.Closer, _ func()) { _ = s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, objectsOf(1, 4*mib))
			s, below := openStreaming(w, nil)
			below.hang.Store(true)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, err := s.OpenSequential(ctx, w.objects["0"], 0)
			require.NoError(t, err)
			read := make(chan error, 1)
			go func() {
				_, err := r.Read(make([]byte, 10))
				read <- err
			}()
			waitFor(t, func() bool { return below.opens.Load() > 0 })
			end(s, r, cancel)
			err = <-read
			if name == "cancelled" {
				require.ErrorIs(t, err, context.Canceled)
			} else {
				require.ErrorIs(t, err, fs.ErrClosed)
			}
			require.NoError(t, r.Close())
		})
	}
	w := newWorld(t, objectsOf(1, mib))
	s, _ := openStreaming(w, nil)
	require.NoError(t, s.Close())
	_, err := s.OpenSequential(t.Context(), w.objects["0"], 0)
	require.ErrorIs(t, err, fs.ErrClosed)
}
