package storage_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote"
	"github.com/lsiofs/lsiofs/pipeline/storage/remote/faultserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const kib = 1 << 10

// world is an object of 1 MB on a server.
type world struct {
	server *faultserver.Server
	engine *remote.Storage
	object storage.Object
	bytes  []byte
}

func newWorld(t *testing.T) *world {
	w := &world{server: faultserver.New()}
	w.server.Put("a.tar", 1_000_000)
	var err error
	w.engine, err = remote.New(faultserver.Connect(t, w.server), remote.DefaultConfig())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.engine.Close()) })
	w.object, err = w.engine.Stat(t.Context(), "a.tar")
	require.NoError(t, err)
	w.bytes = w.server.Bytes("a.tar", 0, w.object.SizeBytes)
	return w
}

// asked returns the requests since the last call, as "from-" if they extend to the object's end.
func (w *world) asked(from *int) (list []string) {
	log := w.server.Log()
	for _, r := range log[*from:] {
		switch {
		case r.Method != "GET":
		case r.Begin < 0:
			list = append(list, "0-")
		case r.End == w.object.SizeBytes:
			list = append(list, fmt.Sprint(r.Begin/1000, "k-"))
		default:
			list = append(list, fmt.Sprint(r.Begin/1000, "k+", (r.End-r.Begin)/1000, "k"))
		}
	}
	*from = len(log)
	return list
}

// Consecutive reads take one request, even with short skips. After a long skip, ranges are
// requested until reads are consecutive again.
func TestConsecutiveReadsTakeOneRequest(t *testing.T) {
	w := newWorld(t)
	log := 0
	for _, c := range []struct {
		what  string
		reads []int64 // offsets of reads of 10 kB, in kB
		want  []string
	}{
		{"from the start to the end", []int64{0, 10, 20, 30, 985, 995}, []string{"0-", "985k+10k", "995k-"}},
		{"short skips", []int64{0, 50, 100, 150, 200, 250}, []string{"0-"}},
		{"large members", []int64{0, 200, 400, 600, 800}, []string{"0-", "200k+10k", "400k+10k", "600k+10k", "800k+10k"}},
		{"large and small ones in turn", []int64{0, 200, 210, 400, 410, 600, 610}, []string{"0-", "200k+10k", "210k+10k", "400k+10k", "410k+10k", "600k+10k", "610k+10k"}},
		{"small ones behind a large one", []int64{0, 300, 310, 320, 330, 340, 390}, []string{"0-", "300k+10k", "310k+10k", "320k-"}},
		{"steps back", []int64{0, 100, 0, 10, 500, 10}, []string{"0-", "0-", "500k+10k", "10k-"}},
		{"a beginning elsewhere", []int64{500, 510}, []string{"500k-"}},
	} {
		w.asked(&log)
		r := storage.NewStream(t.Context(), w.engine, w.object, 100_000, 0)
		for _, at := range c.reads {
			p := make([]byte, 10_000)
			n, err := r.ReadAt(p, at*1000)
			if at*1000+10_000 > w.object.SizeBytes {
				require.ErrorIs(t, err, io.EOF)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, w.bytes[at*1000:][:n], p[:n], c.what)
		}
		r.Close()
		require.Equal(t, c.want, w.asked(&log), c.what)
	}
}

// A stream that was read to its end leaves its connection to the next one.
func TestConnectionsAreReused(t *testing.T) {
	// With a fake clock: net/http closes a connection if it has not noted that the request was
	// written within 50 ms of the answer.
	synctest.Test(t, testConnectionsAreUsedAgain)
}

func testConnectionsAreUsedAgain(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		r := storage.NewStream(t.Context(), w.engine, w.object, 100, 0)
		_, err := io.Copy(io.Discard, io.NewSectionReader(r, 0, w.object.SizeBytes))
		require.NoError(t, err)
		r.Close()
	}
	connections := map[string]bool{}
	for _, q := range w.server.Log() {
		connections[q.Connection] = true
	}
	require.Len(t, connections, 1)
}

func TestReaderIsAReaderAt(t *testing.T) {
	w := newWorld(t)
	rapid.Check(t, func(t *rapid.T) {
		skip, most := rapid.Int64Range(0, 200_000).Draw(t, "skip"), rapid.SampledFrom([]int{0, 5000}).Draw(t, "most")
		r := storage.NewStream(context.Background(), w.engine, w.object, skip, most)
		defer r.Close()
		at := int64(0)
		for range rapid.IntRange(1, 10).Draw(t, "reads") {
			p := make([]byte, rapid.IntRange(0, 60_000).Draw(t, "size"))
			n, err := r.ReadAt(p, at)
			left := max(w.object.SizeBytes-at, 0)
			require.EqualValues(t, min(int64(len(p)), left), n)
			if int64(len(p)) > left || left == 0 {
				require.ErrorIs(t, err, io.EOF)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, w.bytes[min(at, w.object.SizeBytes):][:n], p[:n])
			at += int64(n) + rapid.Int64Range(0, 300_000).Draw(t, "skips")
			if rapid.IntRange(0, 4).Draw(t, "back") == 0 {
				at = rapid.Int64Range(0, at).Draw(t, "to")
			}
		}
	})
	_, err := storage.NewStream(t.Context(), w.engine, w.object, 0, 0).ReadAt(nil, -1)
	require.ErrorContains(t, err, "a.tar: read at offset -1")
}

// broken returns streams that are wrong.
type broken struct {
	storage.Storage
	stream func() io.Reader
}

func (b broken) Caps() storage.Caps {
	return storage.Caps{OpenSequential: func(context.Context, storage.Object, int64) (io.ReadCloser, error) {
		return io.NopCloser(b.stream()), nil
	}}
}

// A stream that ends too early, too late, or fails is an error, and no bytes are made up.
func TestWrongStreamsAreErrors(t *testing.T) {
	o := storage.Object{Path: "a.tar", SizeBytes: 10 * kib}
	fault := errors.New("it broke")
	of := func(n int, err error) func() io.Reader {
		return func() io.Reader { return io.MultiReader(io.LimitReader(zeros{}, int64(n)), iotest.ErrReader(err)) }
	}
	for _, c := range []struct {
		stream func() io.Reader
		n      int
		words  string
	}{
		{of(10*kib-1, io.EOF), 10*kib - 1, "a.tar: the stream ended at byte 10239 of 10240: unexpected EOF"},
		{of(10*kib+1, io.EOF), 10 * kib, "a.tar: the stream has more than the object's 10240 bytes"},
		{of(100, fault), 100, "it broke"},
		{of(10*kib, fault), 10 * kib, "it broke"},
	} {
		r := storage.NewStream(t.Context(), broken{stream: c.stream}, o, 0, 0)
		n, err := r.ReadAt(make([]byte, 10*kib), 0)
		require.EqualError(t, err, c.words)
		require.Equal(t, c.n, n)
		r.Close()
		r = storage.NewStream(t.Context(), broken{stream: of(50, fault)}, o, 10*kib, 0)
		_, err = r.ReadAt(make([]byte, 10), 0)
		require.NoError(t, err)
		_, err = r.ReadAt(make([]byte, 10), 200)
		require.ErrorIs(t, err, fault, "while it skips")
		r.Close()
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
