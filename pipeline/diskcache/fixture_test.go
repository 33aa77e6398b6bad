package diskcache

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/faulty"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/uring"
)

func TestMain(m *testing.M) {
	if os.Getenv(stressVariable) != "" {
		stressChild()
		return
	}
	goleak.VerifyTestMain(m)
}

// byPath identifies an object by its listing, as a service would.
func byPath(o storage.Object) (Identity, bool) {
	return Identity{URL: "test://bucket/" + o.Path, Validator: fmt.Sprintf("%d in %d", o.Version.ModTimeNanos, o.Version.Inode)}, true
}

// world is a dataset in a directory, and a cache of it in another one.
type world struct {
	t       *testing.T
	data    string
	cache   string
	engine  uring.Engine
	below   *faulty.Storage // the storage that was opened last
	reads   atomic.Int64    // reads that reached it
	bytes   atomic.Int64
	log     syncBuffer
	objects map[string]storage.Object
	files   map[string][]byte
}

// syncBuffer is a log that may be read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func random(seed uint64, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), 7}).Read(b)
	return b
}

func newWorld(t *testing.T, files map[string][]byte) *world {
	engine, err := uring.Open(uring.ModeAuto)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	w := &world{t: t, data: t.TempDir(), cache: filepath.Join(t.TempDir(), "cache"), engine: engine, files: files}
	for path, content := range files {
		full := filepath.Join(w.data, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o700))
		require.NoError(t, os.WriteFile(full, content, 0o600))
	}
	return w
}

// config returns the configuration of a cache that holds everything and seals nothing, because when
// an object is sealed depends on timing.
func (w *world) config() Config {
	c := DefaultConfig()
	c.Dir, c.Engine, c.Identify, c.BoundBytes = w.cache, w.engine, byPath, 1<<40
	c.Log, c.noSeals = slog.New(slog.NewTextHandler(&w.log, nil)), true
	bare, err := local.Open(w.data, w.engine)
	require.NoError(w.t, err)
	w.below = faulty.New(bare)
	w.below.Before = func(r *storage.Read) error {
		w.reads.Add(1)
		w.bytes.Add(int64(len(r.Buf)))
		return nil
	}
	c.Below = w.below
	return c
}

// open opens a cache whose directory has been counted, and which counts it whenever a read needs
// that, however long it takes on a busy machine, so that each run caches the same.
func (w *world) open(change func(*Config)) *Storage {
	c := w.config()
	if change != nil {
		change(&c)
	}
	s, err := Open(c)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, s.Close()) })
	<-s.keeper.known
	s.keeper.quick = time.Hour
	w.objects = map[string]storage.Object{}
	require.NoError(w.t, s.List(w.t.Context(), func(string, bool) bool { return true }, func(o storage.Object) error {
		w.objects[o.Path] = o
		return nil
	}))
	return s
}

// settle waits until nothing is in progress, including writes.
func settle(s *Storage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.underWay > 0 {
		s.quiet.Wait()
	}
}

// read reads a range, requires the right bytes, and waits until they are written. It returns how
// many reads reached the storage below.
func (w *world) read(s *Storage, path string, off, n int) int64 {
	w.t.Helper()
	before := w.reads.Load()
	buf := make([]byte, n)
	require.NoError(w.t, storage.ReadAt(w.t.Context(), s, w.objects[path], buf, int64(off)))
	require.True(w.t, bytes.Equal(w.files[path][off:off+n], buf), "%s: %d bytes at %d", path, n, off)
	settle(s)
	return w.reads.Load() - before
}

// path returns the path of an object's file; ending is .data or .sums.
func (w *world) path(object, ending string) string {
	o := w.objects[object]
	id, _ := byPath(o)
	k := keyOf(id, o.SizeBytes)
	return filepath.Join(w.cache, storeName, k.folder(), k.name()+ending)
}

// blocks returns how much the cache's directory takes on its disk.
func (w *world) blocks() int64 {
	d, err := openDirectory(kernel{}, w.cache, slog.New(slog.DiscardHandler))
	require.NoError(w.t, err)
	defer d.close()
	sum := int64(0)
	require.NoError(w.t, d.files(func(f file) error { sum += f.blocks; return nil }))
	return sum
}

// privileged skips a test that needs root.
func privileged(t *testing.T, what string) {
	t.Helper()
	if os.Geteuid() != 0 {
		lacks(t, what+" takes root")
	}
}

// lacks skips a test for lack of something that CI has.
func lacks(t *testing.T, missing string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal("CI=true, and " + missing)
	}
	t.Skip(missing)
}

// pageCache skips a test if the kernel does not tell what the page cache holds of files in the
// directory for temporary files: then no page of a sealed object is checked.
func pageCache(t *testing.T) {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer f.Close()
	_, err = f.Write(make([]byte, pageBytes))
	require.NoError(t, err)
	if !local.Holds(int(f.Fd()), 0, pageBytes) {
		lacks(t, "the kernel does not tell what the page cache holds of "+filepath.Dir(f.Name())+" (cachestat, Linux 6.5, not on overlayfs)")
	}
}

var errTest = errors.New("test")

// lines returns how often a text occurs in the log.
func (w *world) lines(text string) int { return strings.Count(w.log.String(), text) }

// waitFor waits for something that happens without further calls. The keeper may rest for half a
// minute after a long count.
func waitFor(t *testing.T, is func() bool) {
	t.Helper()
	require.Eventually(t, is, 5*time.Minute, time.Millisecond)
}
