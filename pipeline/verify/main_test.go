package verify

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lsiofs/lsiofs/pipeline/catalog"
	"github.com/lsiofs/lsiofs/pipeline/format"
	"github.com/lsiofs/lsiofs/pipeline/format/synthetic"
	"github.com/lsiofs/lsiofs/pipeline/spec"
	"github.com/lsiofs/lsiofs/pipeline/storage"
	"github.com/lsiofs/lsiofs/pipeline/storage/faulty"
	"github.com/lsiofs/lsiofs/pipeline/storage/local"
	"github.com/lsiofs/lsiofs/uring"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dataset has files, their catalog, and a storage that a test may break.
type dataset struct {
	dir     string
	files   []string
	catalog *catalog.Catalog
	storage *faulty.Storage
}

// makeDataset writes and indexes shards of records in some format and codec.
func makeDataset(t testing.TB, format, codec string, shards, records, recordBytes int) dataset {
	t.Helper()
	d := dataset{dir: t.TempDir()}
	shape := synthetic.Shape{Format: format, Codec: codec, RecordBytes: int64(recordBytes), Seed: 1}
	require.NoError(t, shape.Validate())
	for i := range shards {
		path := filepath.Join(d.dir, fmt.Sprintf("s%d%s", i, shape.Extension()))
		f, err := os.Create(path)
		require.NoError(t, err)
		require.NoError(t, shape.WriteShard(f, uint64(i*records), uint64(records), nil))
		require.NoError(t, f.Close())
		d.files = append(d.files, path)
	}
	d.open(t, format, int64(recordBytes))
	return d
}

func (d *dataset) open(t testing.TB, format string, recordBytes int64) {
	t.Helper()
	engine, err := uring.Open(uring.ModePread)
	require.NoError(t, err)
	f := spec.Format{Name: format, Remainder: spec.RemainderCorrupt}
	if format == "fixed" {
		f.RecordBytes = recordBytes
	}
	var s storage.Storage
	c, err := catalog.Open(context.Background(), catalog.Config{
		Dataset: d.dir, Format: f, OnCorrupt: spec.CorruptSkip, IndexDir: t.TempDir(),
		OpenStorage: func(root, _ string) (storage.Storage, error) {
			s, err = local.Open(root, engine)
			return s, err
		},
	})
	require.NoError(t, err)
	d.catalog, d.storage = c, faulty.New(s)
	t.Cleanup(func() {
		require.NoError(t, d.storage.Close())
		require.NoError(t, c.Close())
		require.NoError(t, engine.Close())
	})
}

// small is a profile with many small reads, so that small shards have several.
var small = storage.Profile{Kind: storage.KindSSD, ReadBytes: 8 << 10, Depth: 4, InFlightBytes: 64 << 10, AlignBytes: 4 << 10}

func (d *dataset) verify(t testing.TB) Report {
	t.Helper()
	r, err := Shards(context.Background(), Config{Catalog: d.catalog, Storage: d.storage, Profile: small})
	require.NoError(t, err)
	return r
}

// change modifies a file without changing its size or time.
func change(t testing.TB, path string, to func(b []byte)) {
	t.Helper()
	before, err := os.Stat(path)
	require.NoError(t, err)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	to(b)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(b, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoError(t, os.Chtimes(path, before.ModTime(), before.ModTime()))
}

// decode returns the decoded bytes of the only shard, nil if it has no codec.
func (d *dataset) decode(t testing.TB) []byte {
	t.Helper()
	codec := d.catalog.Shard(0).Codec
	if codec == nil {
		return nil
	}
	raw, err := os.ReadFile(d.files[0])
	require.NoError(t, err)
	r, err := format.NewDecoded(codec, bytes.NewReader(raw), int64(len(raw)), format.Entry{})
	require.NoError(t, err)
	defer r.Close()
	b, err := io.ReadAll(r)
	require.NoError(t, err)
	return b
}
