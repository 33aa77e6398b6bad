package catalog

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/uring"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a dataset directory, an index directory, and a record of reads and log lines.
type world struct {
	t *testing.T
	// cleanup registers a function to be called when the world ends: with its test, or with one
	// draw of it.
	cleanup func(func())
	data    string
	index   string
	engine  uring.Engine
	log     logLines
	reads   atomic.Int64 // ranges that were read from shards
	// onRead, if set, is called before a read; its error fails the read.
	onRead func(o storage.Object) error
	// onHold, if set, receives reads, which then hang until their Done is called.
	onHold func(r *storage.Read)
}

func newWorld(t *testing.T) *world { return newWorldUntil(t, t.Cleanup) }

// newWorldUntil makes a world that ends before its test: cleanup is that of a draw. Otherwise a
// test with many draws would hold the files of all of them open.
func newWorldUntil(t *testing.T, cleanup func(func())) *world {
	w := &world{t: t, cleanup: cleanup}
	w.data, w.index = w.tempDir(), filepath.Join(w.tempDir(), "index")
	engine, err := uring.Open(uring.ModePread)
	require.NoError(t, err)
	w.engine = engine
	cleanup(func() { require.NoError(t, engine.Close()) })
	return w
}

// tempDir makes a directory that exists until the world ends.
func (w *world) tempDir() string {
	dir := w.t.TempDir()
	w.cleanup(func() { require.NoError(w.t, os.RemoveAll(dir)) })
	return dir
}

func (w *world) write(path string, data []byte) {
	full := filepath.Join(w.data, path)
	require.NoError(w.t, os.MkdirAll(filepath.Dir(full), 0o755))
	require.NoError(w.t, os.WriteFile(full, data, 0o644))
}

func (w *world) config() Config {
	return Config{
		Dataset: w.data, Format: spec.Format{Name: "auto", Remainder: spec.RemainderCorrupt}, OnCorrupt: spec.CorruptFail,
		IndexDir: w.index, Log: slog.New(slog.NewTextHandler(&w.log, nil)),
		OpenStorage: func(root, _ string) (storage.Storage, error) {
			s, err := local.Open(root, w.engine)
			return &watched{Storage: s, w: w}, err
		},
	}
}

// open opens the dataset; change modifies the configuration.
func (w *world) open(change ...func(*Config)) (*Catalog, error) {
	c := w.config()
	for _, f := range change {
		f(&c)
	}
	return w.openWith(context.Background(), c)
}

// openWith opens the dataset with a configuration, and closes the storage.
func (w *world) openWith(ctx context.Context, c Config) (*Catalog, error) {
	var opened []storage.Storage
	openStorage := c.OpenStorage
	c.OpenStorage = func(root, indexDir string) (storage.Storage, error) {
		s, err := openStorage(root, indexDir)
		if err == nil {
			opened = append(opened, s)
		}
		return s, err
	}
	catalog, err := Open(ctx, c)
	for _, s := range opened {
		require.NoError(w.t, s.Close())
	}
	return catalog, err
}

func (w *world) mustOpen(change ...func(*Config)) *Catalog {
	c, err := w.open(change...)
	require.NoError(w.t, err)
	w.cleanup(func() { require.NoError(w.t, c.Close()) })
	return c
}

// readsOf returns how many ranges are read while f runs.
func (w *world) readsOf(f func()) int64 {
	before := w.reads.Load()
	f()
	return w.reads.Load() - before
}

func (w *world) indexFiles(pattern string) []string {
	list, err := filepath.Glob(filepath.Join(w.index, pattern))
	require.NoError(w.t, err)
	return list
}

// sealed returns the stored index, of which there must be exactly one.
func (w *world) sealed() []byte {
	list := w.indexFiles("*.index")
	require.Len(w.t, list, 1)
	b, err := os.ReadFile(list[0])
	require.NoError(w.t, err)
	return b
}

// indexName returns the common prefix of the names of all files of the dataset's index. It is the
// same for an index in another directory.
func (w *world) indexName() string {
	dir := w.t.TempDir()
	w.mustOpen(func(c *Config) { c.IndexDir = dir })
	list, err := filepath.Glob(filepath.Join(dir, "*.index"))
	require.NoError(w.t, err)
	require.Len(w.t, list, 1)
	require.NoError(w.t, os.MkdirAll(w.index, 0o700))
	return strings.TrimSuffix(filepath.Base(list[0]), ".index")
}

// watched is real storage that counts its reads.
type watched struct {
	storage.Storage
	w *world
}

func (s *watched) Caps() storage.Caps { return s.Storage.Caps().OnlySubmit() }

func (s *watched) Submit(reads []*storage.Read) {
	for _, r := range reads {
		s.w.reads.Add(1)
		if s.w.onRead != nil {
			if err := s.w.onRead(r.Object); err != nil {
				r.Done(&storage.Error{Object: r.Object.Path, OffsetBytes: r.OffsetBytes, SizeBytes: int64(len(r.Buf)), Err: err})
				continue
			}
		}
		if s.w.onHold != nil {
			s.w.onHold(r)
			continue
		}
		s.Storage.Submit([]*storage.Read{r})
	}
}

// logLines collects log lines.
type logLines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func skipping(c *Config) { c.OnCorrupt = spec.CorruptSkip }

func dataset(path string) func(*Config) { return func(c *Config) { c.Dataset = path } }

// tarOf returns an archive of n samples of two members each.
func tarOf(n int, name string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range n {
		for _, ending := range []string{"txt", "cls"} {
			body := strings.Repeat(ending, 1+i*37%400)
			err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%s%04d.%s", name, i, ending), Mode: 0o644, Size: int64(len(body)), Format: tar.FormatUSTAR})
			if err == nil {
				_, err = w.Write([]byte(body))
			}
			if err != nil {
				panic(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func linesOf(n int, tag string) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, `{"tag": "%s", "i": %d, "x": "%s"}`+"\n", tag, i, strings.Repeat("y", i%90))
	}
	return b.Bytes()
}

func gz(members ...[]byte) []byte {
	var b bytes.Buffer
	for _, m := range members {
		w := gzip.NewWriter(&b)
		_, _ = w.Write(m)
		_ = w.Close()
	}
	return b.Bytes()
}

func framesOf(n int) []byte {
	var b []byte
	for i := range n {
		data := bytes.Repeat([]byte{byte(i)}, 10+i%50)
		length := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
		b = append(b, length...)
		b = binary.LittleEndian.AppendUint32(b, masked(length))
		b = append(b, data...)
		b = binary.LittleEndian.AppendUint32(b, masked(data))
	}
	return b
}

func masked(b []byte) uint32 {
	c := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	return (c>>15 | c<<17) + 0xa282ead8
}
