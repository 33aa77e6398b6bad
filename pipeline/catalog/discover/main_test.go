package discover

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/faulty"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/uring"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a directory, the options for finding shards in it, and a count of reads.
type world struct {
	t        *testing.T
	dir      string
	engine   uring.Engine
	known    func(storage.Object) (string, bool)
	indexDir string
	exclude  []string
	files    bool
	failure  error // of all reads, if set
	reads    atomic.Int64
	target   Target // of the last find
}

func newWorld(t *testing.T) *world {
	engine, err := uring.Open(uring.ModePread)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	return &world{t: t, dir: t.TempDir(), engine: engine}
}

func (w *world) write(path string, data []byte) {
	full := filepath.Join(w.dir, path)
	require.NoError(w.t, os.MkdirAll(filepath.Dir(full), 0o755))
	require.NoError(w.t, os.WriteFile(full, data, 0o644))
}

// find finds the shards of a target.
func (w *world) find(dataset string, format spec.Format) (found Found, err error) {
	if w.target, err = ParseTarget(dataset); err != nil {
		return Found{}, err
	}
	require.NoError(w.t, w.target.Exclude(w.exclude))
	s, err := local.Open(w.target.Root(), w.engine)
	require.NoError(w.t, err)
	counted := faulty.New(s)
	counted.Before = func(*storage.Read) error {
		w.reads.Add(1)
		return w.failure
	}
	defer counted.Close()
	return Shards(context.Background(), Config{
		Target: w.target, Format: format, Storage: counted, Reads: counted,
		IndexDir: w.indexDir, Known: w.known, Files: w.files, Log: slog.New(slog.DiscardHandler),
	})
}

// tarOf returns an archive of n samples.
func tarOf(n int, name string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range n {
		err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%s%d.txt", name, i), Mode: 0o644, Format: tar.FormatUSTAR})
		if err != nil {
			panic(err)
		}
	}
	_ = w.Close()
	return b.Bytes()
}

func linesOf(n int, tag string) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "{\"tag\": %q, \"i\": %d}\n", tag, i)
	}
	return b.Bytes()
}

// framesOf returns n TFRecord frames.
func framesOf(n int) []byte {
	var b []byte
	for i := range n {
		data := bytes.Repeat([]byte{byte(i)}, 10)
		length := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
		b = binary.LittleEndian.AppendUint32(append(b, length...), masked(length))
		b = binary.LittleEndian.AppendUint32(append(b, data...), masked(data))
	}
	return b
}

func masked(b []byte) uint32 {
	c := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	return (c>>15 | c<<17) + 0xa282ead8
}
